/* SPDX-License-Identifier: MIT */
/* dice.h - random numbers for the oracles: the same for a seed everywhere. */
#pragma once
#include <stdint.h>

static uint64_t dice; /* the seed, then the state */

/*
 * 0 to n - 1: the linear congruential generator of Knuth's MMIX, without the
 * low bits, which repeat soonest.
 */
static uint32_t roll(uint32_t n)
{
	dice = dice * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(dice >> 33) % n;
}
