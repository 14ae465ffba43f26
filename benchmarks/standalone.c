/* SPDX-License-Identifier: MIT */
/*
 * standalone.c - the loops of csrc/models/measuring.c as anybody would write
 * them by hand: no harness, no threads, the clock read before and after.
 *
 *   standalone bare|kept|private CPU FIFO
 *
 * pins itself to CPU, takes SCHED_FIFO if FIFO is 1, warms up, and prints the
 * nanoseconds of an operation: the median of SLICES timings of SLICE_NS each.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 16
#define SLICES 5
#define SLICE_NS 12e6

static struct worker {
	_Alignas(256) void *run;
	struct shared {
		_Alignas(256) uint64_t others[64];
		struct {
			_Alignas(256) _Atomic uint64_t n;
		} private[1];
	} *shared;
	void *unused;
	uint32_t id;
} worker;
static _Alignas(256) uint64_t sink;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void bare(uint64_t n)
{
	while (n--)
		__asm__ volatile("");
}

static void kept(uint64_t n)
{
	while (n--) {
		uint64_t x = sink;

		for (int i = 0; i < ROUNDS; i++)
			x = x * 0x5851f42d4c957f2dull + 0x14057b7ef767814full;
		sink = x;
		__asm__ volatile("" : : "r"(x));
	}
}

static void private(uint64_t n)
{
	struct worker *w = &worker;

	/* Through the same pointers as in the model: two nanoseconds are so
	 * few that the loads beside the atomic show. */
	__asm__ volatile("" : "+r"(w));
	while (n--)
		atomic_fetch_add_explicit(&w->shared->private[w->id].n, 1,
					  memory_order_relaxed);
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	void (*loop)(uint64_t) = NULL;
	struct sched_param fifo = { .sched_priority = 1 };
	double took[SLICES];
	uint64_t n = 1000;
	cpu_set_t set;

	worker.shared = aligned_alloc(256, sizeof(*worker.shared));
	if (!worker.shared)
		return 1;
	memset(worker.shared, 0, sizeof(*worker.shared));
	if (argc == 4)
		loop = !strcmp(argv[1], "bare")	     ? bare
		       : !strcmp(argv[1], "kept")    ? kept
		       : !strcmp(argv[1], "private") ? private
						     : NULL;
	if (!loop)
		return 2;
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[2]), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return 3;
	if (atoi(argv[3]) && sched_setscheduler(0, SCHED_FIFO, &fifo))
		return 4;

	for (;;) { /* warm up, and find out how many operations fill a slice */
		const double start = now_ns();
		double ns;

		loop(n);
		ns = now_ns() - start;
		if (ns > SLICE_NS / 2) {
			n = (uint64_t)((double)n * SLICE_NS / ns);
			break;
		}
		n *= 2;
	}
	for (int i = 0; i < SLICES; i++) {
		const double start = now_ns();

		loop(n);
		took[i] = (now_ns() - start) / (double)n;
	}
	qsort(took, SLICES, sizeof(took[0]), by_value);
	printf("%.6f\n", took[SLICES / 2]);
	return 0;
}
