/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * guest.h - what every part of the guest program shares.
 *
 * The guest program is the only program in a lab kernel: it runs as /init,
 * gets everything ready, runs one workload and reports on the second serial
 * port. Run by hand, as "ct WORKLOAD NAME=VALUE...", it does the same in a
 * mount namespace of its own and reports on standard output.
 *
 * An error is one line to the host, after which the process ends: no caller
 * has to look at what a helper returns, and no result follows a failure.
 */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define GUEST_ABI 1
#define WORK "/mnt" /* each run mounts a tmpfs here, for its own use */

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* argv[0] of a guest that ends at once: what a workload executes. */
#define DOES_NOTHING "ends"
/* And of one that mounts a tmpfs at the next argument, or unmounts what is there, and ends. */
#define MOUNTS_ONE "mounts"
#define UNMOUNTS_ONE "unmounts" /* with the flags of the argument after it */

/* Exit status of a process that has sent an error line already. */
#define EXIT_SAID 3

/*
 * Marks for the coherence profiler: instructions that do nothing anywhere
 * and that no compiler emits.
 */
#define MARK_BEGIN() __asm__ volatile("xchg %%bx, %%bx" ::: "memory")
#define MARK_OP() __asm__ volatile("xchg %%cx, %%cx" ::: "memory")
#define MARK_END() __asm__ volatile("xchg %%dx, %%dx" ::: "memory")

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void relax(void)
{
	__builtin_ia32_pause();
}
