/* SPDX-License-Identifier: MIT */
/*
 * hostile.c - models that go wrong, each in its own way. Only "good" is good.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "harness.h"

struct shared {
	_Alignas(CT_LINE) _Atomic uint64_t n;
};

static void count(struct ct_worker *w)
{
	struct shared *s = w->shared;

	atomic_fetch_add_explicit(&s->n, 1, memory_order_relaxed);
	w->count[0]++;
}

static inline void good_op(struct ct_worker *w)
{
	count(w);
}

static inline void segfault_op(struct ct_worker *w)
{
	count(w);
	*(volatile int *)(uintptr_t)w->local[0] = 1;
}

static inline void spin_op(struct ct_worker *w)
{
	count(w);
	for (;;)
		__asm__ volatile("");
}

/* Loses one update in a hundred. */
static inline void miscount_op(struct ct_worker *w)
{
	if (++w->local[0] % 100)
		count(w);
}

static inline void exits_op(struct ct_worker *w)
{
	count(w);
	exit(0);
}

static inline void prints_op(struct ct_worker *w)
{
	if (!w->local[0]++)
		printf("{\"this is\": \"no answer\"}\n");
	count(w);
}

static int never(struct ct_run *run)
{
	return ct_fail(run, "there is no memory for %s", "this");
}

/* Fails without a word. */
static int silent(struct ct_run *run)
{
	(void)run;
	return -1;
}

static int setup(struct ct_run *run)
{
	run->shared = ct_alloc(sizeof(struct shared));
	return run->shared ? 0 : ct_fail(run, "out of memory");
}

static _Noreturn void linger(void)
{
	signal(SIGTERM, SIG_IGN);
	prctl(PR_SET_NAME, "lingers");
	for (;;)
		pause();
}

/* Starts a process that keeps running in the same process group. */
static int forks(struct ct_run *run)
{
	if (fork() == 0)
		linger();
	return setup(run);
}

/* Starts one that takes leave as thoroughly as a daemon does. */
static int daemonises(struct ct_run *run)
{
	if (fork() == 0) {
		setsid();
		if (fork() == 0)
			linger();
		_exit(0);
	}
	return setup(run);
}

/* Starts one, and never comes back from the operation either. */
static inline void forks_and_spins_op(struct ct_worker *w)
{
	spin_op(w);
}

static int check(struct ct_run *run)
{
	struct shared *s = run->shared;
	const uint64_t n = atomic_load(&s->n);

	if (n != ct_total(run, -1))
		return ct_fail(run, "the counter says %" PRIu64 ", %" PRIu64
				    " operations were made", n, ct_total(run, -1));
	return 0;
}

static void teardown(struct ct_run *run)
{
	free(run->shared);
}

CT_LOOP(good, good_op)
CT_LOOP(segfault, segfault_op)
CT_LOOP(spin, spin_op)
CT_LOOP(miscount, miscount_op)
CT_LOOP(exits, exits_op)
CT_LOOP(prints, prints_op)
CT_LOOP(forks_and_spins, forks_and_spins_op)

static const struct ct_variant variants[] = {
	{ "good", "", setup, good, check, teardown },
	{ "segfault", "", setup, segfault, check, teardown },
	{ "spin", "", setup, spin, check, teardown },
	{ "miscount", "", setup, miscount, check, teardown },
	{ "exits", "", setup, exits, check, teardown },
	{ "prints", "", setup, prints, check, teardown },
	{ "no-setup", "", never, good, check, teardown },
	{ "silent-setup", "", silent, good, check, teardown },
	{ "forks", "", forks, good, check, teardown },
	{ "daemonises", "", daemonises, good, check, teardown },
	{ "forks-and-spins", "", daemonises, forks_and_spins, check, teardown },
};

static const struct ct_counter counters[] = { { "updates", "of the counter" } };
static const struct ct_param params[] = { { "level", "m", "unused", 5, 1, 10 } };
static const char *const phases[] = { "run" };

CT_MODEL(.slug = "hostile",
	 .summary = "goes wrong",
	 .op = "one update",
	 .min_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters), CT_TABLE(phases))
