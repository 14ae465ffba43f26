/* SPDX-License-Identifier: MIT */
/*
 * lockref.h - a spin lock and a reference count in one word of 8 bytes, as in
 * include/linux/lockref.h: while nobody holds the lock, one compare-and-
 * exchange of the whole word both makes sure of that and changes the count.
 *
 * Only the shape is here. What is done when the lock is held or the exchange
 * fails is what models differ in, so each has its own way to take a reference.
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

union lockref {
	_Atomic uint64_t whole;
	struct {
		_Atomic uint32_t lock;
		_Atomic uint32_t count;
	};
};

/* A lockref's value, taken apart by field and not by byte order. */
union lockref_value {
	uint64_t whole;
	struct {
		uint32_t lock;
		uint32_t count;
	};
};

_Static_assert(sizeof(union lockref) == 8, "one compare-and-exchange wide");
