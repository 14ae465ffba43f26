/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * arbiter.h - who is given which line, and when.
 *
 * A vCPU that wants a line which is elsewhere stops. It is let go when the line
 * is free and no running vCPU's clock is before that moment: nobody can then
 * still ask for it earlier. Who is next is left to chance, by seed: a processor
 * keeps no list of who asked first, and a request that finds its line on the way
 * is repeated, a way later. So who has half the way has twice the chance. That
 * is a `policy`; the others are for comparison.
 *
 * A waiter counts as running for QEMU (see pace.h): if everybody else sleeps
 * it goes on after a while, which is an escape, and counted.
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include "when.h"

#define CT_WEIGHT (1ull << 32) /* of a way of one picosecond, in the draw of who is next */

static _Atomic uint64_t ct_due = UINT64_MAX; /* when the next line that is wanted can be given */
static _Atomic unsigned ct_laggard;	  /* whose clock keeps it from being given */
static uint64_t ct_dice;

/* Marsaglia's xorshift; the same seed gives the same throws, from 0 to less than n. */
static uint64_t ct_throw(uint64_t n)
{
	ct_dice ^= ct_dice << 13;
	ct_dice ^= ct_dice >> 7;
	ct_dice ^= ct_dice << 17;
	return ct_dice % n;
}

static void ct_shake(void)
{
	ct_dice = ct_hash(machine.seed) | 1;
}

static inline unsigned ct_cpu_of(const struct ct_asker *asker)
{
	return (unsigned)(asker - askers);
}

/* Whether a line that its core's other thread takes then is there before it is with who is next. */
static bool ct_is_in_time(const struct ct_when *when, uint64_t word, uint64_t then)
{
	const struct ct_asker *a = when->chosen;
	const uint64_t sent = a && a->since > when->came ? a->since : when->came;

	return then + machine.core <
	       sent + (a ? ct_latency(when, word, ct_cpu_of(a), a->store) : machine.near);
}

/*
 * When a line can be had that is wanted since then: at once by who has it by
 * then, by the core's other thread as soon as it has come, else when it is free,
 * which is when the request has come of who is next. So its holder, too, waits:
 * for those who asked earlier.
 */
static uint64_t ct_free_for(const struct ct_when *when, uint64_t word, unsigned cpu, bool store,
			    uint64_t since)
{
	const uint64_t free_at = atomic_load(&when->free_at);

	if (store ? ct_within(word, cpu) : ct_twin_has(when, word, cpu)) {
		const uint64_t brought = ct_brought(when, word, cpu);
		const uint64_t first = since > brought ? since : brought;

		/*
		 * Who asks when the line is there has found it there: a block's time
		 * passes at its begin, so an exchange asks when its load was done.
		 */
		if (!store || (since >= brought ? since < free_at && ct_is_in_time(when, word, since) :
						  first + machine.core <= ct_stays(when)))
			return first;
	}
	return since > free_at || !ct_latency(when, word, cpu, store) ? since : free_at;
}

/*
 * When its way begins, then: who waits has sent the request long since, and it
 * is on its way while the holder goes on.
 */
static uint64_t ct_start_for(const struct ct_when *when, uint64_t word, unsigned cpu, bool store,
			     uint64_t since)
{
	const uint64_t ready = ct_free_for(when, word, cpu, store, since);
	const uint64_t earliest = since > when->came ? since : when->came;

	if (ct_within(word, cpu) || ready != atomic_load(&when->free_at))
		return ready;
	return earliest < ready ? earliest : ready;
}

static uint64_t ct_ready_for(const struct ct_when *when, const struct ct_asker *a)
{
	const uint64_t word = atomic_load(&when->entry->word);

	return ct_free_for(when, word, ct_cpu_of(a), a->store, a->since);
}

/*
 * When the line leaves its holder for who is next: as soon as the request has
 * come, and from afar that takes longer.
 */
static uint64_t ct_leaves(const struct ct_when *when, const struct ct_asker *a)
{
	const uint64_t word = atomic_load(&when->entry->word);
	const uint64_t way = ct_latency(when, word, ct_cpu_of(a), a->store);
	const uint64_t sent = a->since > when->came ? a->since : when->came;
	const uint64_t ready = ct_ready_for(when, a);
	const uint64_t leaves = sent + way * machine.request / CT_PARTS;

	if (!way || (word & CT_MODE) == CT_SHARED || ct_within(word, ct_cpu_of(a)))
		return ready; /* nobody gives it up */
	return leaves > ready ? leaves : ready;
}

/* When a line that somebody waits for can next be given to somebody. */
static uint64_t ct_ready(const struct ct_when *when)
{
	uint64_t first = when->chosen ? ct_leaves(when, when->chosen) : UINT64_MAX;

	for (const struct ct_asker *a = when->askers; a; a = a->next) {
		const uint64_t ready = ct_ready_for(when, a);

		first = ready < first ? ready : first;
	}
	return first;
}

static inline bool ct_is_earlier(const struct ct_asker *a, const struct ct_asker *b)
{
	return a->since < b->since || (a->since == b->since && a < b);
}

/* Who of each group asked first, of those who can have the line by then. */
static void ct_find_firsts(const struct ct_when *when, uint64_t ready,
			   const struct ct_asker *firsts[CT_CPUS])
{
	for (const struct ct_asker *a = when->askers; a; a = a->next) {
		const uint64_t group = ct_place_of(ct_cpu_of(a)).group;

		if (ct_ready_for(when, a) <= ready &&
		    (!firsts[group] || ct_is_earlier(a, firsts[group])))
			firsts[group] = a;
	}
}

/*
 * Take out who is next, of those who have asked by then: each vCPU by its
 * number, as the order of the list is the host's. NULL: nobody any more, since
 * an access that was not foreseen has changed the line's state meanwhile.
 */
static struct ct_asker *ct_choose(struct ct_when *when, uint64_t ready)
{
	const uint64_t word = atomic_load(&when->entry->word);
	const uint64_t home = ct_place_of(when->home).group;
	const struct ct_asker *firsts[CT_CPUS] = { NULL };
	struct ct_asker **by_cpu[CT_CPUS] = { NULL }, **chosen = NULL, *found;
	uint64_t weight[CT_CPUS], sum = 0, drawn;

	if (machine.policy == CT_GROUPED)
		ct_find_firsts(when, ready, firsts);
	for (struct ct_asker **link = &when->askers; *link; link = &(*link)->next) {
		struct ct_asker *a = *link;
		const unsigned cpu = ct_cpu_of(a);
		const uint64_t group = ct_place_of(cpu).group;
		uint64_t way;

		if (ct_ready_for(when, a) > ready)
			continue;
		if (machine.policy == CT_GROUPED && group != home && firsts[group] != a)
			continue;
		if (!chosen || ct_is_earlier(a, *chosen))
			chosen = link;
		way = ct_latency(when, word, cpu, a->store);
		by_cpu[cpu] = link;
		/* Who still has it has no way, but no more chance than others near it. */
		sum += weight[cpu] = CT_WEIGHT / (way > machine.near ? way : machine.near);
	}
	if (!chosen)
		return NULL;
	if (machine.policy != CT_FIFO) {
		drawn = ct_throw(sum);
		for (unsigned cpu = 0; cpu < CT_CPUS; cpu++) {
			if (!by_cpu[cpu])
				continue;
			chosen = by_cpu[cpu];
			if (drawn < weight[cpu])
				break;
			drawn -= weight[cpu];
		}
	}
	found = *chosen;
	*chosen = found->next;
	return found;
}

/* Of the vCPUs that run and do not wait for a line: the slowest one's clock. */
static uint64_t ct_slowest(unsigned *who)
{
	const uint32_t n = atomic_load(&pace.pacers);
	uint64_t slowest = UINT64_MAX;

	for (uint32_t i = 0; i < n; i++) {
		const struct ct_pacer *p = &pacers[i];

		if (!atomic_load(&p->running) || atomic_load(&p->asks))
			continue;
		if (atomic_load(&p->done) < slowest) {
			slowest = atomic_load(&p->done);
			*who = i;
		}
	}
	return slowest;
}

/* Give all lines that can be given; the arbiter's lock is held. */
static void ct_give(void)
{
	for (;;) {
		struct ct_when **best = NULL, **link;
		uint64_t ready = UINT64_MAX;
		unsigned who = 0;

		for (link = &ct_wanted; *link; link = &(*link)->next) {
			const uint64_t r = (*link)->coming < 0 ? ct_ready(*link) : UINT64_MAX;

			if (r < ready) {
				ready = r;
				best = link;
			}
		}
		atomic_store(&ct_due, UINT64_MAX);
		if (!best)
			return;
		if (ct_slowest(&who) < ready) {
			atomic_store(&ct_laggard, who);
			atomic_store(&ct_due, ready);
			return;
		}

		struct ct_when *when = *best;
		struct ct_asker *a = when->chosen;

		if (a && ct_leaves(when, a) <= ready) {
			when->chosen = NULL;
		} else {
			a = ct_choose(when, ready);
			if (!a)
				continue; /* look again */
			/* With somebody chosen it is the holder's core, or it has moved unforeseen. */
			if (!when->chosen && ct_leaves(when, a) > ready) {
				when->chosen = a;
				atomic_store(&when->free_at, ct_leaves(when, a));
				continue;
			}
		}

		const struct ct_waits before = a->waits;

		a->undo_free_at = atomic_load(&when->free_at);
		a->undo_here = atomic_load(&when->here);
		a->undo_came = when->came;
		a->undo_home = when->home;

		const unsigned cpu = ct_cpu_of(a);
		const uint64_t word = atomic_load(&when->entry->word);
		const uint64_t start = ct_start_for(when, word, cpu, a->store, a->since);
		const uint64_t there = ct_move(when, word, cpu, a->store, start);
		const uint64_t arrives = there > a->asked ? there : a->asked;

		if (!when->askers && !when->chosen) {
			*best = when->next;
			atomic_store(&when->wanted, false);
		}
		when->coming = (int)cpu;
		a->entry = when->entry;
		a->given_free_at = atomic_load(&when->free_at);
		a->given_here = atomic_load(&when->here);
		a->waits.queued += start > a->asked ? start - a->asked : 0;
		a->waits.stalled += arrives - a->asked;
		a->owed = (struct ct_waits){
			.stalled = arrives - a->asked,
			.queued = a->waits.queued - before.queued,
			.transfers = a->waits.transfers - before.transfers,
			.fills = a->waits.fills - before.fills,
		};
		ct_idle_until(cpu, arrives);
		atomic_store(&pacers[cpu].done, arrives);
		atomic_store(&pacers[cpu].asks, false);
		atomic_store(&a->given, 1);
		ct_futex(&a->given, FUTEX_WAKE, 1, NULL);
	}
}

static void ct_arbitrate(void)
{
	pthread_mutex_lock(&ct_arbiter);
	ct_give();
	pthread_mutex_unlock(&ct_arbiter);
}

/* A clock has moved: does that let somebody go? */
static inline void ct_moved(unsigned cpu)
{
	const uint64_t due = atomic_load_explicit(&ct_due, memory_order_relaxed);

	if (due != UINT64_MAX && atomic_load_explicit(&ct_laggard, memory_order_relaxed) == cpu &&
	    atomic_load_explicit(&pacers[cpu].done, memory_order_relaxed) >= due)
		ct_arbitrate();
}

/* The line that was given has been accessed. */
static void ct_taken(unsigned cpu)
{
	struct ct_asker *me = &askers[cpu];

	pthread_mutex_lock(&ct_arbiter);
	me->entry->when->coming = -1;
	me->entry = NULL;
	ct_give();
	pthread_mutex_unlock(&ct_arbiter);
}

/*
 * It was not what the instruction wanted, so it was never asked for. Others may
 * have gone on meanwhile; what the vCPU does now, it does a little late.
 */
static void ct_mistaken(unsigned cpu)
{
	struct ct_asker *me = &askers[cpu];
	struct ct_when *when = me->entry->when;
	uint64_t given = me->given_free_at;

	ct_judge(me->foresight.trusted, false);
	atomic_fetch_sub(&pacers[cpu].done, me->owed.stalled);
	ct_idle_until(cpu, atomic_load(&pacers[cpu].done));
	pthread_mutex_lock(&ct_arbiter);
	/* `here` tells if it was taken over meanwhile, `free_at` if it has gone. */
	if (atomic_load(&when->here) == me->given_here &&
	    atomic_compare_exchange_strong(&when->free_at, &given, me->undo_free_at)) {
		atomic_store(&when->here, me->undo_here);
		when->came = me->undo_came;
		when->home = me->undo_home;
	}
	atomic_store(&me->copied, NULL);
	pthread_mutex_unlock(&ct_arbiter);
	/* Not what it was before: what the instruction wanted instead may have been late. */
	me->waits.stalled -= me->owed.stalled;
	me->waits.queued -= me->owed.queued;
	me->waits.transfers -= me->owed.transfers;
	me->waits.fills -= me->owed.fills;
	me->misled++;
	ct_taken(cpu);
}

/* Give up: somebody wants this vCPU to stop, and everybody else sleeps. */
static void ct_escape(unsigned cpu, struct ct_when *when)
{
	struct ct_asker *me = &askers[cpu];

	pthread_mutex_lock(&ct_arbiter);
	if (!atomic_load(&me->given)) {
		struct ct_asker **a = &when->askers;
		struct ct_when **w = &ct_wanted;

		while (when->chosen != me && *a != me)
			a = &(*a)->next;
		if (when->chosen == me)
			when->chosen = NULL;
		else
			*a = me->next;
		while (*w != when)
			w = &(*w)->next;
		if (!when->askers && !when->chosen) {
			*w = when->next;
			atomic_store(&when->wanted, false);
		}
		ct_idle_until(cpu, me->asked);
		atomic_store(&pacers[cpu].asks, false);
		pacers[cpu].escapes++;
		ct_give();
	}
	pthread_mutex_unlock(&ct_arbiter);
}

/* When an access begins whose instruction is there now. */
static uint64_t ct_begins(unsigned cpu, uint64_t now, bool store)
{
	const uint64_t room = now > askers[cpu].fence ? now - askers[cpu].fence : 0;
	const uint64_t ahead = ct_shares_core(cpu) ? machine.ahead / 2 : machine.ahead;

	return store ? now : now - (room < ahead ? room : ahead);
}

/* Wait until the line comes. */
static void ct_ask(unsigned cpu, struct ct_when *when, bool store)
{
	const struct timespec patience = ct_patience(&pace);
	struct ct_pacer *pacer = &pacers[cpu];
	struct ct_asker *me = &askers[cpu];
	uint64_t lag = 0, last_lag = UINT64_MAX;
	unsigned looks = 0, stuck = 0;

	pthread_mutex_lock(&ct_arbiter);
	me->asked = atomic_load(&pacer->done);
	me->since = ct_begins(cpu, me->asked, store);
	me->store = store;
	ct_idle(cpu, me->asked, UINT64_MAX); /* until it is given, or gives up */
	atomic_store(&me->given, 0);
	if (!when->askers && !when->chosen) {
		when->next = ct_wanted;
		ct_wanted = when;
	}
	me->next = when->askers;
	when->askers = me;
	atomic_store(&when->wanted, true);
	atomic_store(&pacer->asks, true);
	ct_give();
	pthread_mutex_unlock(&ct_arbiter);
	while (!atomic_load(&me->given) && atomic_load(&pacer->asks)) {
		ct_next_window(&pace, &lag); /* nobody waits for who waits for a line */
		if (!ct_futex(&me->given, FUTEX_WAIT, 0, &patience) || errno != ETIMEDOUT)
			continue;
		looks = lag == last_lag ? looks + 1 : 0;
		if (looks)
			ct_drop_asleep(&pace);
		ct_arbitrate();
		/* Who has moved since the last look, or is about to be woken, is not stuck. */
		stuck = looks && ct_stuck(&pace) ? stuck + 1 : 0;
		last_lag = lag;
		if (!atomic_load(&pace.on) || stuck == CT_STUCK_LOOKS || looks == CT_LOOKS_MAX)
			ct_escape(cpu, when);
	}
}
