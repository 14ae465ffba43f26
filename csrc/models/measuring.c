/* SPDX-License-Identifier: MIT */
/*
 * measuring.c - small operations with which a benchmark can be caught lying.
 *
 * No kernel bug here, only the mistakes that hide or invent one:
 *
 *   empty    no work at all: what the loop itself costs;
 *   folded   "work" whose result nobody uses and which the compiler removes;
 *   kept     the same work, with its result kept;
 *   again    kept under another name, to compare a thing with itself;
 *   private  an atomic increment of a counter of one's own;
 *   shared   an atomic increment of one counter by all threads;
 *   neighbour  counters of one's own that lie side by side in one line.
 *
 * The operation is one pass through that work. The counters' sum is the
 * number of operations, or the run is no good.
 */
#include "../harness.h"

#define ROUNDS 16 /* of "work" in one operation of folded and kept */

struct shared {
	_Alignas(CT_LINE) _Atomic uint64_t shared;
	_Alignas(CT_LINE) _Atomic uint64_t neighbour[CT_LINE / 8];
	_Alignas(CT_LINE) struct {
		_Alignas(CT_LINE) _Atomic uint64_t n;
	} private[];
};

static inline void empty_op(struct ct_worker *w)
{
	(void)w;
	__asm__ volatile(""); /* or there would be no loop either */
}

static inline uint64_t work(uint64_t x)
{
	for (int i = 0; i < ROUNDS; i++)
		x = x * 0x5851f42d4c957f2dull + 0x14057b7ef767814full;
	return x;
}

static inline void folded_op(struct ct_worker *w)
{
	work(w->sink);
	__asm__ volatile("");
}

static inline void kept_op(struct ct_worker *w)
{
	w->sink = work(w->sink);
	__asm__ volatile("" : : "r"(w->sink));
}

static inline void private_op(struct ct_worker *w)
{
	struct shared *s = w->shared;

	atomic_fetch_add_explicit(&s->private[w->id].n, 1, memory_order_relaxed);
}

static inline void shared_op(struct ct_worker *w)
{
	struct shared *s = w->shared;

	atomic_fetch_add_explicit(&s->shared, 1, memory_order_relaxed);
}

static inline void neighbour_op(struct ct_worker *w)
{
	struct shared *s = w->shared;

	atomic_fetch_add_explicit(&s->neighbour[w->id % ct_array_size(s->neighbour)],
				  1, memory_order_relaxed);
}

CT_LOOP(empty_loop, empty_op)
CT_LOOP(folded_loop, folded_op)
CT_LOOP(kept_loop, kept_op)
CT_LOOP(private_loop, private_op)
CT_LOOP(shared_loop, shared_op)
CT_LOOP(neighbour_loop, neighbour_op)

static int setup(struct ct_run *run)
{
	struct shared *s = ct_alloc(sizeof(*s) +
				    run->threads * sizeof(s->private[0]));

	run->shared = s;
	return s ? 0 : ct_fail(run, "out of memory");
}

static int check(struct ct_run *run)
{
	struct shared *s = run->shared;
	uint64_t sum = atomic_load(&s->shared);

	for (uint32_t i = 0; i < run->threads; i++)
		sum += atomic_load(&s->private[i].n);
	for (size_t i = 0; i < ct_array_size(s->neighbour); i++)
		sum += atomic_load(&s->neighbour[i]);
	if (sum != ct_total(run, -1))
		return ct_fail(run, "the counters say %" PRIu64 ", %" PRIu64
				    " operations were made", sum, ct_total(run, -1));
	return 0;
}

static void teardown(struct ct_run *run)
{
	free(run->shared);
}

static const struct ct_variant variants[] = {
	{ "empty", "the loop alone", NULL, empty_loop, NULL, NULL },
	{ "folded", "work that the compiler removes", NULL, folded_loop, NULL,
	  NULL },
	{ "kept", "the same work, done", NULL, kept_loop, NULL, NULL },
	{ "again", "kept under another name", NULL, kept_loop, NULL, NULL },
	{ "private", "each thread has a counter on lines of its own", setup,
	  private_loop, check, teardown },
	{ "shared", "all threads have one counter", setup, shared_loop, check,
	  teardown },
	{ "neighbour", "each thread has a counter, all on one line", setup,
	  neighbour_loop, check, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "measuring",
	 .summary = "small operations that catch a benchmark lying",
	 .op = "one pass through the variant's work",
	 .min_threads = 1,
	 CT_TABLE(variants), CT_TABLE(phases))
