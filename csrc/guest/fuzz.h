/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fuzz.h - random operations on the file system layer, the same for all kernels.
 *
 * An operation draws what it does from its number and the seed alone, so it is
 * the same whatever was left out before it. It says what it did, calls the
 * kernel once, and what came back is compared between kernels: nothing may
 * depend on time, addresses, or numbers that the kernel gives out.
 */
#pragma once
#include "guest.h"

struct fuzz_op {
	const char *family; /* success is counted by this name */
	unsigned weight;
	long (*run)(void); /* as a system call: -1 and errno */
};

/* All operations, up to one without a family. */
extern const struct fuzz_op fuzz_ops[];

/* Draw from this operation's numbers from now on. */
void fuzz_draw(uint64_t seed, uint64_t number);
unsigned fuzz_below(unsigned n);

/* In the world's process, before it changes its root: what operations need. */
void fuzz_open_world(const char *world);
/* Take the world, or what it was before, as root and current directory. */
void fuzz_enter(void);
void fuzz_leave(void);
/* What operations find; in the world. */
void fuzz_make_scene(void);

/* What the last operation did, and what it got beside its result. */
extern char fuzz_did[1024], fuzz_got[1024];
