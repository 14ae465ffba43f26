/* SPDX-License-Identifier: MIT */
/*
 * user_turns.c - two threads that take turns, for the profiler's user mode.
 *
 * Each also counts in a line of its own. Prints where the lines are.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
	_Alignas(4096) _Atomic long turn;
	_Alignas(4096) _Atomic long padded[2][512];
	_Alignas(4096) _Atomic int ready;
} shared;
static long turns;

static void *run(void *data)
{
	const int me = data != NULL;

	atomic_fetch_add(&shared.ready, 1);
	while (atomic_load(&shared.ready) < 3)
		;
	for (long i = 0; i < turns; i++) {
		while (atomic_load_explicit(&shared.turn, memory_order_relaxed) != 2 * i + me)
			;
		atomic_store_explicit(&shared.turn, 2 * i + me + 1, memory_order_release);
		atomic_fetch_add(&shared.padded[me][0], 1);
		__asm__ volatile("xchg %%cx,%%cx" ::: "memory");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[2];

	turns = argc > 1 ? atol(argv[1]) : 100;
	for (long i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, run, i ? &shared : NULL))
			return 1;
	while (atomic_load(&shared.ready) < 2)
		sched_yield();
	__asm__ volatile("xchg %%bx,%%bx" ::: "memory");
	atomic_store(&shared.ready, 3);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	__asm__ volatile("xchg %%dx,%%dx" ::: "memory");
	printf("turn=%lx padded0=%lx padded1=%lx\n", (unsigned long)&shared.turn,
	       (unsigned long)&shared.padded[0][0], (unsigned long)&shared.padded[1][0]);
	return shared.turn != 2 * turns;
}
