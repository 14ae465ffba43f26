/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * when.h - since when a line is where, and when a vCPU is idle.
 *
 * What is kept of each line that two vCPUs have touched, who has a copy of it,
 * and what it takes to get it; and of each vCPU what it waits for, and when it
 * leaves its core's units to the other thread.
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include <pthread.h>

#include "foresee.h"
#include "ways.h"

#define CT_IDLES 4 /* of a vCPU, in as long as another may be behind it */

/* A line that two vCPUs have touched. */
struct ct_when {
	_Atomic uint64_t free_at;
	uint64_t came;	       /* to its holder's core, or when the next way can begin */
	_Atomic uint64_t here; /* since when its holder has it */
	_Atomic bool wanted;  /* somebody waits for it */
	uint8_t home;	      /* the vCPU that it came to last, as a copy or not */
	_Atomic uint8_t writer; /* the vCPU that changed it last */
	bool migrates;	      /* see ct_pattern */
	int coming; /* the vCPU that was given it and has not yet accessed it; -1: none */
	struct ct_asker *askers, *chosen; /* chosen: who is next, while its request is on its way */
	struct ct_entry *entry;
	struct ct_when *next; /* with somebody who waits */
	struct ct_when *all;
	_Atomic uint64_t sharers[]; /* who has it, in whatever state: ct_words of them */
};

/* What a vCPU has waited for. */
struct ct_waits {
	uint64_t stalled, queued, transfers, fills;
};

/* When a vCPU leaves its core's units to the other thread. */
struct ct_idle {
	_Atomic uint64_t from, until;
};

/* A vCPU's part of it. */
struct ct_asker {
	_Alignas(128) _Atomic uint32_t given; /* a futex */
	uint64_t since, asked; /* when its access began, and its instruction was there */
	bool store;
	struct ct_asker *next;
	struct ct_entry *entry; /* that was given, until it is accessed */
	struct ct_waits owed;	/* what it has added to the waits */
	uint64_t undo_free_at, given_free_at; /* the line's, before and after */
	uint64_t undo_here, undo_came, given_here;
	uint8_t undo_home;
	_Atomic(struct ct_entry *) copied; /* the line of which it got a copy last, and when */
	_Atomic uint64_t copied_at;
	struct ct_idle idle[CT_IDLES]; /* the last ones */
	_Atomic unsigned idles;
	struct ct_foresight foresight;
	uint64_t fence;		/* the last atomic instruction or pause: no load begins before it */
	uint64_t *done; /* when each operation was */
	uint64_t n_done, max_done;
	struct ct_waits waits;
	uint64_t late, misled; /* lines that were not foreseen, or not accessed when they came */
	uint64_t late_first, late_last; /* `late` at the first operation's end, and the last's */
	uint64_t ticks_first, ticks_last; /* `ticks` then: many are due when a region begins */
	uint64_t now_stalled;  /* of this access, if it was not foreseen */
	uint64_t ticks;	      /* instructions of timer ticks */
	bool in_tick;
	bool came; /* the line of this access had to come */
};

static struct ct_asker askers[CT_CPUS];
static pthread_mutex_t ct_arbiter = PTHREAD_MUTEX_INITIALIZER;
static struct ct_when *ct_wanted;	  /* lines that somebody waits for */
static struct ct_when *ct_whens;	  /* all */
static uint64_t ct_when_bytes;		  /* and what they take */
_Static_assert(sizeof(struct ct_when) <= 72, "beside the sharers of a line that two have touched");
/* Of 64 CPUs each, as many as there are. */
static unsigned ct_words = CT_CPUS / 64;

/* --- vCPUs --- */

/* Whether the core's other thread runs. */
static inline bool ct_shares_core(unsigned cpu)
{
	const unsigned other = ct_sibling(cpu);

	return other != cpu && other < CT_CPUS && atomic_load(&pacers[other].running);
}

/* Whether it does something then: it may wait for a line, or pause. */
static inline bool ct_shares_units(unsigned cpu)
{
	const uint64_t now = atomic_load_explicit(&pacers[cpu].done, memory_order_relaxed);
	const unsigned other = ct_sibling(cpu);

	if (!ct_shares_core(cpu))
		return false;
	for (unsigned i = 0; i < CT_IDLES; i++) {
		const struct ct_idle *idle = &askers[other].idle[i];

		if (now >= atomic_load_explicit(&idle->from, memory_order_relaxed) &&
		    now < atomic_load_explicit(&idle->until, memory_order_relaxed))
			return false;
	}
	return true;
}

static inline struct ct_idle *ct_last_idle(unsigned cpu)
{
	return &askers[cpu].idle[atomic_load_explicit(&askers[cpu].idles, memory_order_relaxed) %
				 CT_IDLES];
}

static inline void ct_idle_until(unsigned cpu, uint64_t until)
{
	atomic_store_explicit(&ct_last_idle(cpu)->until, until, memory_order_relaxed);
}

static inline void ct_idle(unsigned cpu, uint64_t from, uint64_t until)
{
	if (from == until)
		return;
	if (from != atomic_load_explicit(&ct_last_idle(cpu)->until, memory_order_relaxed)) {
		atomic_fetch_add_explicit(&askers[cpu].idles, 1, memory_order_relaxed);
		ct_idle_until(cpu, 0);
		atomic_store_explicit(&ct_last_idle(cpu)->from, from, memory_order_relaxed);
	}
	ct_idle_until(cpu, until);
}

/* --- lines --- */

static inline bool ct_has(const struct ct_when *when, unsigned cpu)
{
	return atomic_load_explicit(&when->sharers[cpu / 64], memory_order_relaxed) >> cpu % 64 & 1;
}

/* Whether the core's other thread alone has the line, that more than one have touched. */
static inline bool ct_within(uint64_t word, unsigned cpu)
{
	return (word & CT_MODE) != CT_SHARED && word & CT_MET && ct_is_twin(CT_OWNER(word), cpu);
}

/* Whether a load finds the line in its core, where the other thread has brought it. */
static inline bool ct_twin_has(const struct ct_when *when, uint64_t word, unsigned cpu)
{
	const unsigned other = ct_sibling(cpu);

	if ((word & CT_MODE) != CT_SHARED)
		return ct_within(word, cpu);
	return other != cpu && other < 64 * ct_words && !ct_has(when, cpu) && ct_has(when, other);
}

/* Since when. */
static uint64_t ct_brought(const struct ct_when *when, uint64_t word, unsigned cpu)
{
	const struct ct_asker *other = &askers[ct_sibling(cpu)];

	if ((word & CT_MODE) != CT_SHARED)
		return atomic_load_explicit(&when->here, memory_order_relaxed);
	if (atomic_load_explicit(&other->copied, memory_order_relaxed) != when->entry)
		return 0;
	return atomic_load_explicit(&other->copied_at, memory_order_relaxed);
}

static inline void ct_keep_only(struct ct_when *when, unsigned cpu)
{
	for (unsigned i = 0; i < ct_words; i++)
		atomic_store_explicit(&when->sharers[i], i == cpu / 64 ? 1ull << cpu % 64 : 0,
				      memory_order_relaxed);
}

/*
 * From whom the line comes, and how long that takes; 0 if the vCPU needs
 * nothing. A reader has it from the nearest that has a copy; who writes waits
 * until the farthest has lost his.
 */
static uint64_t ct_latency(const struct ct_when *when, uint64_t word, unsigned cpu, bool store)
{
	const uint64_t mode = word & CT_MODE;
	uint64_t shortest = machine.fill, longest = 0;
	bool cached = false;

	if (!store && ct_twin_has(when, word, cpu))
		return 0;
	if (mode != CT_SHARED)
		return CT_OWNER(word) == cpu ? 0 : ct_way(CT_OWNER(word), cpu);
	if (!store && ct_has(when, cpu))
		return 0;
	for (unsigned i = 0; i < 64 * ct_words; i++) {
		uint64_t way;

		if (i == cpu || !ct_has(when, i))
			continue;
		way = ct_way(i, cpu);
		shortest = !cached || way < shortest ? way : shortest;
		longest = way > longest ? way : longest;
		cached = true;
	}
	return store ? longest : shortest;
}

/* Until when the core that a line came to may go on using it, if nobody is chosen yet. */
static inline uint64_t ct_stays(const struct ct_when *when)
{
	return when->came + machine.near * machine.request / CT_PARTS;
}

/*
 * Whether a change by the core's other thread begins before the line leaves the
 * core. The core's time with it goes on then, and does not begin anew.
 */
static inline bool ct_takes_over(const struct ct_when *when, uint64_t word, unsigned cpu,
				 uint64_t start)
{
	return ct_within(word, cpu) && start < atomic_load(&when->free_at);
}

/* The line begins to move at `start`: when it is there. */
static uint64_t ct_move(struct ct_when *when, uint64_t word, unsigned cpu, bool store,
			uint64_t start)
{
	const uint64_t latency = ct_latency(when, word, cpu, store), there = start + latency;

	if (!latency)
		return start;
	when->home = (uint8_t)cpu;
	if (!store) {
		atomic_store_explicit(&askers[cpu].copied, when->entry, memory_order_relaxed);
		atomic_store_explicit(&askers[cpu].copied_at, there, memory_order_relaxed);
	}
	if ((word & CT_MODE) == CT_SHARED && !store) {
		when->came = start + machine.share;
		atomic_store(&when->free_at, when->came);
		askers[cpu].waits.fills++;
		return there;
	}
	if (!ct_takes_over(when, word, cpu, start)) {
		when->came = there;
		atomic_store(&when->free_at, ct_stays(when));
	}
	atomic_store(&when->here, there);
	askers[cpu].waits.transfers++;
	return there;
}
