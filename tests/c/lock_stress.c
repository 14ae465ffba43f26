/* SPDX-License-Identifier: MIT */
/*
 * Do the locks of csrc/locks.h exclude, and are they fair enough to let
 * everybody run? THREADS threads increment a plain counter in two steps
 * under the lock, and look whether anybody else is inside.
 *
 *   ./lock_stress KIND THREADS ROUNDS     KIND: tas ticket queued broken
 *
 * On a busy machine a lock that is handed on in order waits for the scheduler at
 * each turn, so after ten seconds a thread does no more rounds, nor when somebody
 * was inside with another.
 *
 * "broken" looks before it takes, as two steps: the stress must catch it.
 * Exits 0 if nothing was lost, 1 if something was, 2 on a wrong call.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "locks.h"

#define BROKEN LOCK_KINDS
#define SECONDS 10

static struct {
	_Alignas(256) _Atomic uint32_t lock;
	_Alignas(256) volatile uint64_t counter; /* on purpose no atomic */
	_Atomic int inside;
	_Atomic uint64_t intruders;
} shared;

static struct lock_node nodes[64];
static int kind;
static long rounds, done[64];
static time_t started;
static pthread_barrier_t start;
static cpu_set_t allowed;

/* Spread the threads over the allowed CPUs, or there is nothing to exclude. */
static void pin(uint32_t me)
{
	cpu_set_t one;
	int nth = (int)me % CPU_COUNT(&allowed), cpu = 0;

	while (!CPU_ISSET(cpu, &allowed) || nth--)
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		abort();
}

/* A short stay where it hurts, and now and then one that lets others run. */
static void linger(long i)
{
	for (int spin = 0; spin < (int)(i & 15); spin++)
		lock_relax();
	if (i % 32 == 0)
		sched_yield();
}

static void acquire(uint32_t me, long i)
{
	if (kind != BROKEN) {
		lock_acquire((enum lock_kind)kind, &shared.lock, nodes, me);
		return;
	}
	while (atomic_load_explicit(&shared.lock, memory_order_acquire))
		lock_relax();
	linger(i);
	atomic_store_explicit(&shared.lock, 1, memory_order_relaxed);
}

static void release(void)
{
	lock_release(kind == BROKEN ? LOCK_TAS : (enum lock_kind)kind,
		     &shared.lock);
}

static time_t now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec;
}

static bool goes_on(void)
{
	return now() - started <= SECONDS && !atomic_load(&shared.intruders);
}

static void *worker(void *arg)
{
	const uint32_t me = (uint32_t)(uintptr_t)arg;

	pin(me);
	pthread_barrier_wait(&start);
	for (long i = 0; i < rounds && (i % 16 || goes_on()); i++) {
		acquire(me, i);
		if (atomic_fetch_add_explicit(&shared.inside, 1,
					      memory_order_relaxed))
			atomic_fetch_add(&shared.intruders, 1);

		const uint64_t seen = shared.counter;

		linger(i);
		shared.counter = seen + 1;
		atomic_fetch_sub_explicit(&shared.inside, 1,
					  memory_order_relaxed);
		release();
		done[me]++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
		[LOCK_TAS] = "tas", [LOCK_TICKET] = "ticket",
		[LOCK_QUEUED] = "queued", [BROKEN] = "broken",
	};
	pthread_t thread[64];
	long threads;

	if (argc != 4)
		return 2;
	for (kind = 0; kind <= BROKEN && strcmp(names[kind], argv[1]); kind++)
		;
	threads = atol(argv[2]);
	rounds = atol(argv[3]);
	if (kind > BROKEN || threads < 1 || threads > 64 || rounds < 1)
		return 2;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	pthread_barrier_init(&start, NULL, (unsigned)threads);
	started = now();
	for (long i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, worker, (void *)i))
			return 2;
	for (long i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);

	uint64_t due = 0;
	bool starved = false;

	for (long i = 0; i < threads; i++) {
		due += (uint64_t)done[i];
		starved |= done[i] == 0;
	}
	printf("%s: %llu of %llu increments, %llu intruders\n", argv[1],
	       (unsigned long long)shared.counter, (unsigned long long)due,
	       (unsigned long long)shared.intruders);
	return shared.counter != due || shared.intruders || starved ||
	       atomic_load(&shared.lock) & (kind == LOCK_TICKET ? 0 : ~0u);
}
