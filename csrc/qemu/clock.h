/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * clock.h - virtual time: what an access costs on a given machine, and when it happens.
 *
 * Every vCPU has a clock in picoseconds (pace.h's `done`): an instruction costs
 * a fixed time, a `pause` and an atomic read-modify-write more, a string's move
 * or store by its bytes, and a line that has to come from another cache costs
 * the way between the two CPUs. A line moves once at a time: whoever wants it
 * while it is on its way waits. In the first part of a way, `request`, it is
 * the request that moves, and the line's holder goes on using it: for longer if
 * who is next is farther away. Ways were measured with the request waiting, so
 * that part is in them. So the operations of a kernel can be timed on a machine
 * with more CPUs than the host has, and a slow host changes nothing but how long
 * that takes.
 *
 * An access to a contended line must happen when the line arrives, not when
 * it is asked for: else a load would see a value that is stale by the length
 * of the queue, and the compare-and-exchange that follows would fail. So
 * before an instruction is executed that has found its line elsewhere before,
 * or here when somebody else could have had it, its vCPU asks for the line and
 * stops. Which line that is, is a guess (foresee.h), and when it may go on says
 * arbiter.h. A wait for a line that is then not accessed is undone, in time as in
 * the line's, and counted (`misled`). One that was not foreseen (`late`) goes
 * before all who wait.
 *
 * Caches are a core's, not a thread's. What a core's other thread has can be
 * read as soon as it has come, and changes nobody's state; a store makes it the
 * other thread's, which takes the way between the two. One that waits as the
 * line comes has it then if that fits into the time for which the core may go on
 * using it. One that comes later finds it there, and has it until the request of
 * who is next has come, as its holder has. While a thread waits for a line, or
 * pauses, the other one has the core's units for itself.
 *
 * A processor begins loads long before the instructions in front of them are
 * done. With `ahead` a load asks for its line by so much earlier, but not before
 * the last atomic instruction, or pause: so that part of the way is no wait. While
 * both threads of a core run each has half of that room.
 *
 * An access that was not foreseen happens at once, and is charged afterwards.
 * Lines that one vCPU alone has touched cost nothing, nor does the first
 * touch of a line in the region.
 *
 * Timer ticks come as the host's clock says, thousands of times too often for
 * a guest that is so much slower. So from the entry of their handler (`tick=`)
 * to the return of an interrupt or a system call a vCPU's clock stands still,
 * and it waits for no line; the lines that it touches move all the same. A tick
 * that pauses waits for another vCPU, which may wait for this one's clock: from
 * then on its clock runs.
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include "arbiter.h"

#define CT_STRING 32 /* bytes that a string instruction moves in the time of another */

/* An instruction is about to run. */
static inline void ct_before(unsigned cpu, uint64_t pc)
{
	struct ct_asker *me = &askers[cpu];
	struct ct_guess *guess;

	ct_recall(&me->foresight);
	if (!ct_has_met(pc))
		return;
	if (me->entry)
		ct_mistaken(cpu);
	if (me->in_tick)
		return;
	guess = ct_foresee(&me->foresight, pc);
	ct_follow(&me->foresight, pc);
	if (!guess)
		return;

	struct ct_when *when = atomic_load(&guess->entry->when);
	const uint64_t now = atomic_load_explicit(&pacers[cpu].done, memory_order_relaxed);

	if (!atomic_load_explicit(&pacers[cpu].running, memory_order_relaxed))
		return;
	/* Who has it is asked, too, where others may be about to ask for it. */
	if (atomic_load(&when->wanted) || atomic_load(&when->free_at) + pace.quantum > now ||
	    ct_latency(when, atomic_load(&guess->entry->word), cpu, guess->store)) {
		me->foresight.trusted = guess;
		ct_ask(cpu, when, guess->store);
	}
}

/* The second vCPU has come to a line: from now on it takes time to get it. */
static struct ct_when *ct_meet(struct ct_entry *e, uint64_t word)
{
	const size_t bytes = sizeof(struct ct_when) + ct_words * sizeof(_Atomic uint64_t);
	struct ct_when *when = ct_must(calloc(1, bytes));

	ct_when_bytes += bytes;
	when->coming = -1;
	when->entry = e;
	when->home = when->writer = (uint8_t)CT_OWNER(word);
	ct_keep_only(when, CT_OWNER(word));
	when->all = ct_whens;
	ct_whens = when;
	atomic_store(&e->when, when);
	return when;
}

/* A load of what the core's other thread has: it has come, or is awaited. */
static void ct_read_with_twin(unsigned cpu, const struct ct_when *when, uint64_t word)
{
	const uint64_t brought = ct_brought(when, word, cpu);
	const uint64_t now = atomic_load_explicit(&pacers[cpu].done, memory_order_relaxed);

	if (brought <= now)
		return;
	askers[cpu].waits.stalled += askers[cpu].now_stalled = brought - now;
	ct_idle(cpu, now, brought);
	atomic_store(&pacers[cpu].done, brought);
}

/*
 * A store to a line: does it migrate, which is that who changes it is the one other
 * who has read it since the last change? Then the next load takes it; one that finds
 * it taken, and not changed, leaves it shared, and the next store asks anew. So it is
 * in Stenstrom, Brorsson and Sandberg, "An adaptive cache coherence protocol
 * optimized for migratory sharing", 1993. With the arbiter.
 */
static void ct_pattern(struct ct_when *when, uint64_t word, unsigned cpu)
{
	const unsigned writer = atomic_load_explicit(&when->writer, memory_order_relaxed);
	unsigned copies = 0;

	if ((word & CT_MODE) != CT_SHARED)
		return;
	for (unsigned i = 0; i < ct_words; i++)
		copies += (unsigned)__builtin_popcountll(when->sharers[i]);
	when->migrates = writer != cpu && copies == 2 && ct_has(when, writer) && ct_has(when, cpu);
}

static inline void ct_wrote(struct ct_when *when, unsigned cpu)
{
	if (atomic_load_explicit(&when->writer, memory_order_relaxed) != cpu)
		atomic_store_explicit(&when->writer, (uint8_t)cpu, memory_order_relaxed);
}

/*
 * Whether somebody waits for a line that is still here and could have it by now:
 * this access comes after that, and was not foreseen.
 */
static bool ct_overdue(unsigned cpu, struct ct_when *when)
{
	bool overdue;

	if (!atomic_load_explicit(&when->wanted, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&ct_arbiter);
	overdue = ct_ready(when) < atomic_load(&pacers[cpu].done);
	pthread_mutex_unlock(&ct_arbiter);
	return overdue;
}

/*
 * An access, before its line's state changes; `word` is what the state was.
 * Returns whether this load takes the line exclusively.
 */
static bool ct_clock_before(unsigned cpu, struct ct_entry *e, uint64_t word, uint64_t pc,
			    bool store)
{
	struct ct_pacer *pacer = &pacers[cpu];
	struct ct_when *when = atomic_load_explicit(&e->when, memory_order_acquire);
	bool take = !store && machine.take && (word & CT_MODE) == CT_MODIFIED;
	const bool free = askers[cpu].in_tick || askers[cpu].entry == e; /* or paid for */

	if (when && !free && !store && ct_twin_has(when, word, cpu))
		ct_read_with_twin(cpu, when, word);
	if (when ? !ct_latency(when, word, cpu, store) : CT_OWNER(word) == cpu) {
		if (when && !free && ct_overdue(cpu, when))
			ct_learn(&askers[cpu].foresight, pc, e, store);
		if (when && store)
			ct_wrote(when, cpu);
		return false;
	}
	askers[cpu].foresight.moved = e;
	if (!askers[cpu].in_tick)
		ct_learn(&askers[cpu].foresight, pc, e, store);
	pthread_mutex_lock(&ct_arbiter);
	when = atomic_load(&e->when);
	if (!when)
		when = ct_meet(e, word);
	if (!free) { /* not foreseen */
		const uint64_t now = atomic_load(&pacer->done);
		const uint64_t begins = ct_begins(cpu, now, store);
		const uint64_t start = ct_start_for(when, word, cpu, store, begins);
		const uint64_t there = ct_move(when, word, cpu, store, start);
		const uint64_t arrives = there > now ? there : now;

		askers[cpu].waits.queued += start > now ? start - now : 0;
		askers[cpu].waits.stalled += askers[cpu].now_stalled = arrives - now;
		askers[cpu].late++;
		ct_idle(cpu, now, arrives);
		atomic_store(&pacer->done, arrives);
	}
	if (store) {
		ct_pattern(when, word, cpu);
		ct_wrote(when, cpu);
	}
	take &= machine.take != CT_MIGRATING || when->migrates;
	if (store || take)
		ct_keep_only(when, cpu);
	else
		atomic_fetch_or(&when->sharers[cpu / 64], 1ull << cpu % 64);
	pthread_mutex_unlock(&ct_arbiter);
	return take;
}

/* The same, when it has changed: what the access has waited for its line. */
static inline uint64_t ct_clock_after(unsigned cpu, struct ct_entry *e)
{
	uint64_t stalled = askers[cpu].now_stalled;

	askers[cpu].now_stalled = 0;
	if (askers[cpu].entry == e) {
		stalled += askers[cpu].owed.stalled;
		ct_judge(askers[cpu].foresight.trusted, true);
		ct_taken(cpu);
	}
	askers[cpu].came = stalled;
	return stalled;
}

/* What an instruction takes now. */
static inline uint64_t ct_each(unsigned cpu)
{
	return ct_shares_units(cpu) ? machine.instruction * machine.smt / CT_PARTS :
				      machine.instruction;
}

static inline uint64_t ct_string_time(unsigned cpu, uint64_t bytes)
{
	return ct_each(cpu) * bytes / CT_STRING;
}

/* A block of n instructions begins, `pauses` of them pauses: what they take. */
static inline uint64_t ct_block_time(unsigned cpu, uint64_t n, uint64_t pauses)
{
	if (askers[cpu].entry)
		ct_mistaken(cpu);
	const uint64_t takes = n * ct_each(cpu) + pauses * machine.pause;

	if (pauses)
		askers[cpu].in_tick = false;
	if (askers[cpu].in_tick) {
		askers[cpu].ticks += n;
		return 0;
	}
	if (pauses) {
		const uint64_t now = atomic_load_explicit(&pacers[cpu].done, memory_order_relaxed);

		askers[cpu].fence = now + takes;
		ct_idle(cpu, now, now + takes);
	}
	return takes;
}

static inline void ct_done(unsigned cpu)
{
	struct ct_asker *me = &askers[cpu];

	me->late_last = me->late;
	me->ticks_last = me->ticks;
	if (!me->n_done) {
		me->late_first = me->late;
		me->ticks_first = me->ticks;
	}
	if (me->n_done == me->max_done) {
		me->max_done = me->max_done ? 2 * me->max_done : 64;
		me->done = ct_must(realloc(me->done, me->max_done * sizeof(*me->done)));
	}
	me->done[me->n_done++] = atomic_load_explicit(&pacers[cpu].done, memory_order_relaxed);
}

/* Forget a region; nobody may be counting. */
static void ct_clock_forget(void)
{
	while (ct_whens) {
		struct ct_when *when = ct_whens;

		ct_whens = when->all;
		free(when);
	}
	ct_wanted = NULL;
	ct_when_bytes = 0;
	ct_shake();
	atomic_store(&ct_due, UINT64_MAX);
	for (unsigned i = 0; i < CT_CPUS; i++) {
		struct ct_asker *me = &askers[i];

		free(me->foresight.guesses);
		free(me->done);
		*me = (struct ct_asker){ 0 };
	}
	memset((void *)ct_met, 0, sizeof(ct_met));
}
