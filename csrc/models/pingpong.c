/* SPDX-License-Identifier: MIT */
/*
 * pingpong.c - what it costs to hand a cache line from one CPU to another.
 *
 * The question: two threads take turns to write one word. Neither can go on
 * before the other's write has reached it, so the time of a turn is the time
 * that a modified line takes from one CPU's cache to the other's. Everything
 * that is contended pays this price at least once per operation.
 *
 * Variants:
 *   store  a turn is a plain store of the next number;
 *   swap   a turn is a compare-and-exchange, as a lock or a count does it.
 *
 * Run with fixed work (ops): thread k writes when the number's parity is k,
 * so both do the same number of turns and neither can leave early. One
 * operation is one thread's turn; a hand-over takes half the time of a round.
 */
#include "../harness.h"

struct shared {
	_Alignas(CT_LINE) _Atomic uint64_t turn;
};

static inline uint64_t my_turn(struct ct_worker *w)
{
	struct shared *s = w->shared;
	uint64_t turn;

	/* No pause instruction: it would add its own time to the transfer. */
	do
		turn = atomic_load_explicit(&s->turn, memory_order_acquire);
	while ((turn & 1) != w->id);
	return turn;
}

static inline void store_op(struct ct_worker *w)
{
	struct shared *s = w->shared;
	const uint64_t turn = my_turn(w);

	atomic_store_explicit(&s->turn, turn + 1, memory_order_release);
}

static inline void swap_op(struct ct_worker *w)
{
	struct shared *s = w->shared;
	uint64_t turn = my_turn(w);

	if (!atomic_compare_exchange_strong_explicit(&s->turn, &turn, turn + 1,
						     memory_order_acq_rel,
						     memory_order_relaxed))
		ct_fail(w->run, "somebody wrote out of turn");
}

CT_LOOP(store_loop, store_op)
CT_LOOP(swap_loop, swap_op)

static int setup(struct ct_run *run)
{
	if (!run->config->ops)
		return ct_fail(run, "pingpong needs fixed work: set ops");
	run->shared = ct_alloc(sizeof(struct shared));
	return run->shared ? 0 : ct_fail(run, "out of memory");
}

static int check(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (atomic_load(&s->turn) != ct_total(run, -1))
		return ct_fail(run, "%" PRIu64 " turns were taken, %" PRIu64 " were due",
			       atomic_load(&s->turn), ct_total(run, -1));
	return 0;
}

static void teardown(struct ct_run *run)
{
	free(run->shared);
}

static const struct ct_variant variants[] = {
	{ "store", "take turns with plain stores", setup, store_loop, check,
	  teardown },
	{ "swap", "take turns with compare-and-exchange", setup, swap_loop,
	  check, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "pingpong",
	 .summary = "two threads take turns to write one word",
	 .op = "one turn of one thread",
	 .min_threads = 2,
	 .max_threads = 2,
	 CT_TABLE(variants), CT_TABLE(phases))
