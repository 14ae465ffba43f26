/* SPDX-License-Identifier: MIT */
/*
 * lockref_degrade.c - a lock-free reference count that stops being lock-free.
 *
 * The bug: a lockref is a spin lock and a count in one 8-byte word. As long
 * as nobody holds the lock, a reference is taken or dropped by one compare-
 * and-exchange of the whole word. Whoever finds the lock held takes it as
 * well, changes the count under it, and lets go. While it holds the lock the
 * next CPU finds the lock held, so that one takes it too, and the one after:
 * a single stranger's lock/unlock can switch every CPU to the lock for good.
 *
 * The hypothesis: with enough demand the locked state feeds itself. Enough
 * means that by the time one holder lets go, the next has already queued.
 *
 * Variants:
 *   before  finds the lock held -> takes it.
 *   after   finds the lock held -> waits, at most "spin" looks, for it to be
 *           released, then goes on with the lock-free way.
 *
 * The operation is a get and a put of one reference, as a path lookup does.
 * Three phases share one lockref: "calm"; "perturbed", where each thread also
 * takes the lock for "hold" once in "every" operations, as a directory
 * listing on tmpfs takes d_lock; and "after", unperturbed again.
 *
 * What stands in for what: two CPUs cannot queue the dozens of waiters that
 * a large machine queues, so a holder stays "hold" nanoseconds inside the
 * lock. That is where the time of the queue that is not there goes.
 *
 * Left out: the dead and zero states of a lockref, the rest of the dentry, and
 * what a lookup does between get and put (set --think to add work).
 */
#include "../harness.h"
#include "../lockref.h"
#include "../locks.h"

#define RETRIES 100 /* compare-and-exchange attempts, as in lib/lockref.c */

enum { PARAM_LOCK, PARAM_HOLD, PARAM_EVERY, PARAM_SPIN };
enum { FAST, SLOW, RETRIED, WAITED, STRANGER };
enum { PHASE_CALM, PHASE_PERTURBED, PHASE_AFTER };

struct shared {
	_Alignas(CT_LINE) union lockref ref;
	_Alignas(CT_LINE) struct lock_node nodes[];
};

_Static_assert(offsetof(struct shared, nodes) >= CT_LINE,
	       "the queue must not share the lockref's line");

static void locked_add(struct ct_worker *w, enum lock_kind kind, uint32_t delta)
{
	struct shared *s = w->shared;
	uint32_t count;

	lock_acquire(kind, &s->ref.lock, s->nodes, w->id);
	count = atomic_load_explicit(&s->ref.count, memory_order_relaxed);
	atomic_store_explicit(&s->ref.count, count + delta, memory_order_relaxed);
	ct_delay(w, w->param[PARAM_HOLD]);
	lock_release(kind, &s->ref.lock);
}

/*
 * The heart of it. kind and wait are constants wherever this is called, so
 * that each combination is compiled by itself.
 */
static inline __attribute__((always_inline)) void
lockref_add(struct ct_worker *w, enum lock_kind kind, bool wait, uint32_t delta)
{
	struct shared *s = w->shared;
	int retries = RETRIES;
	int64_t patience = wait ? w->param[PARAM_SPIN] : 0;
	union lockref_value old, new;

	old.whole = atomic_load_explicit(&s->ref.whole, memory_order_relaxed);
	for (;;) {
		if (!lock_value_free(kind, old.lock)) {
			if (patience-- <= 0)
				break;
			w->count[WAITED]++;
			ct_relax();
			old.whole = atomic_load_explicit(&s->ref.whole,
							 memory_order_relaxed);
			continue;
		}
		new = old;
		new.count += delta;
		if (atomic_compare_exchange_strong_explicit(
			    &s->ref.whole, &old.whole, new.whole,
			    memory_order_acq_rel, memory_order_relaxed)) {
			w->count[FAST]++;
			return;
		}
		w->count[RETRIED]++;
		if (!--retries)
			break;
	}
	w->count[SLOW]++;
	locked_add(w, kind, delta);
}

/* Somebody who wants the lock itself: a directory listing, say. */
static inline void stranger(struct ct_worker *w, enum lock_kind kind)
{
	if (w->phase != PHASE_PERTURBED)
		return;
	if (++w->local[0] < (uint64_t)w->param[PARAM_EVERY])
		return;
	w->local[0] = 0;
	w->count[STRANGER]++;
	locked_add(w, kind, 0);
}

#define VARIANT_OF(variant, name, kind, wait)                             \
	static inline void variant##_##name##_op(struct ct_worker *w)     \
	{                                                                 \
		lockref_add(w, kind, wait, 1u);                           \
		lockref_add(w, kind, wait, -1u);                          \
		stranger(w, kind);                                        \
	}                                                                 \
	CT_LOOP(variant##_##name##_loop, variant##_##name##_op)

#define VARIANT(variant, wait)                                            \
	VARIANT_OF(variant, tas, LOCK_TAS, wait)                          \
	VARIANT_OF(variant, ticket, LOCK_TICKET, wait)                    \
	VARIANT_OF(variant, queued, LOCK_QUEUED, wait)                    \
	static void variant##_loop(struct ct_worker *w, uint64_t n)       \
	{                                                                 \
		static void (*const loops[])(struct ct_worker *,          \
					     uint64_t) = {                \
			[LOCK_TAS] = variant##_tas_loop,                  \
			[LOCK_TICKET] = variant##_ticket_loop,            \
			[LOCK_QUEUED] = variant##_queued_loop,            \
		};                                                        \
		loops[w->param[PARAM_LOCK]](w, n);                        \
	}

VARIANT(before, false)
VARIANT(after, true)

static int setup(struct ct_run *run)
{
	struct shared *s = ct_alloc(sizeof(*s) +
				    run->threads * sizeof(s->nodes[0]));

	if (!s)
		return ct_fail(run, "out of memory");
	atomic_store(&s->ref.count, 1);
	run->shared = s;
	return 0;
}

/*
 * Every get had its put: the count is back at 1, the lock is free, and each
 * of the two halves of each operation was counted once.
 */
static int check(struct ct_run *run)
{
	struct shared *s = run->shared;
	const uint32_t count = atomic_load(&s->ref.count);
	const uint64_t ways = ct_total(run, FAST) + ct_total(run, SLOW);

	if (count != 1)
		return ct_fail(run, "the count is %" PRIu32 ", not 1: updates were lost",
			       count);
	if (!lock_value_free((enum lock_kind)run->param[PARAM_LOCK],
			     atomic_load(&s->ref.lock)))
		return ct_fail(run, "the lock is still held");
	if (ways != 2 * ct_total(run, -1))
		return ct_fail(run, "%" PRIu64 " fast and slow updates for %" PRIu64
				    " operations of two", ways, ct_total(run, -1));
	return 0;
}

static void teardown(struct ct_run *run)
{
	free(run->shared);
}

static const struct ct_param params[] = {
	[PARAM_LOCK] = { "lock", "", "0 test-and-set, 1 ticket, 2 queued",
			 LOCK_QUEUED, 0, LOCK_KINDS - 1 },
	[PARAM_HOLD] = { "hold", "ns", "time that a holder stays in the lock",
			 5000, 0, 1000000 },
	[PARAM_EVERY] = { "every", "operations",
			  "the stranger comes once in so many", 2000, 1,
			  1000000000 },
	[PARAM_SPIN] = { "spin", "looks",
			 "how long 'after' waits for the lock's release", 1000,
			 0, 1000000000 },
};

static const struct ct_counter counters[] = {
	[FAST] = { "fast", "updates by compare-and-exchange" },
	[SLOW] = { "slow", "updates under the lock" },
	[RETRIED] = { "retried", "compare-and-exchanges that failed" },
	[WAITED] = { "waited", "looks at a held lock before giving up" },
	[STRANGER] = { "stranger", "times the lock was taken for its own sake" },
};

static const struct ct_variant variants[] = {
	{ "before", "a held lock sends everyone to the lock", setup,
	  before_loop, check, teardown },
	{ "after", "wait a little for the lock's release first", setup,
	  after_loop, check, teardown },
};

static const char *const phases[] = {
	[PHASE_CALM] = "calm",
	[PHASE_PERTURBED] = "perturbed",
	[PHASE_AFTER] = "after",
};

CT_MODEL(.slug = "lockref-degrade",
	 .summary = "get and put a reference that all threads share",
	 .op = "one get and one put of the same reference",
	 .min_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters), CT_TABLE(phases))
