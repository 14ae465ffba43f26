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
 * stops. Which line that is, is a guess: by vCPU and instruction, for locks and
 * counters that have code of their own; where that was wrong (the same code
 * compares all names and takes all locks), by the first of several things that
 * were before it and tell one call from another: see ct_keys. A wait for a line
 * that is then not accessed is undone, in time as in the line's, and counted
 * (`misled`). One that was not foreseen (`late`) goes before all who wait. A
 * vCPU is let go by the arbiter, when the line is free and no running vCPU's clock is before that
 * moment: nobody can then still ask for it earlier. Who is next is left to
 * chance, by seed: a processor keeps no list of who asked first, and a request
 * that finds its line on the way is repeated, a way later. So who has half the
 * way has twice the chance. That is a `policy`; the others are for comparison.
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
 * A waiter counts as running for QEMU (see pace.h): if everybody else sleeps
 * it goes on after a while, which is an escape, and counted.
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include <pthread.h>

#define CT_STRING 32 /* bytes that a string instruction moves in the time of another */
#define CT_GUESSES (1u << 14) /* a vCPU's, of which an instruction has some for each way to tell */
#define CT_KEYS 4	      /* the ways to tell which line it is, see ct_keys */
#define CT_TRAIL 3	      /* instructions that are remembered */
#define CT_TRUST 8	      /* once in so many times a guess may be wrong */
#define CT_IDLES 4 /* of a vCPU, in as long as another may be behind it */
#define CT_PARTS 1000	      /* chances and factors are in thousandths */
#define CT_WEIGHT (1ull << 32) /* of a way of one picosecond, in the draw of who is next */

/* Who is next for a line that several wait for, as `Policy` of contended.simulate.caches. */
enum ct_policy {
	CT_FIFO, /* the first who asked */
	CT_CHANCE, /* anybody, the nearer the sooner */
	CT_GROUPED, /* so, but of each group that has not the line only who asked first */
	CT_POLICIES,
};

/* Whether a load of a modified line takes it from its holder. */
enum ct_take {
	CT_LEAVE, /* it leaves it shared between the two */
	CT_TAKE, /* it takes it */
	CT_MIGRATING, /* it takes those that have been read and then changed by one after another */
	CT_TAKES,
};

/* What things take, in picoseconds, and how CPUs lie. */
struct ct_machine {
	uint64_t instruction; /* 0: no time is kept */
	uint64_t rmw, pause;
	uint64_t core, near, cross, far, fill; /* a line's ways, see contended.simulate.caches */
	uint64_t share;	  /* how long one more reader keeps a shared line */
	uint64_t request; /* thousandths of a way: how long a line's holder may go on using it */
	uint64_t policy;  /* of enum ct_policy: who is next */
	uint64_t take;	  /* of enum ct_take */
	uint64_t ahead;	  /* how long before its instruction a load may begin */
	uint64_t smt;	  /* thousandths: an instruction's cost while the core's other thread runs */
	uint64_t sockets, cores, groups, threads, first;
	uint64_t seed;
};

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

struct ct_guess {
	uint64_t key; /* an instruction's address, or of it and what was before, see ct_keys */
	struct ct_entry *entry;
	bool store, sure;     /* sure: it was the same line twice in a row */
	uint8_t right, wrong; /* how often it was so when it was trusted, of late */
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
	struct ct_guess *guesses, *trusted; /* trusted: the one that asked for it */
	uint64_t fence;		/* the last atomic instruction or pause: no load begins before it */
	uint64_t line, before; /* that was accessed last, and before this instruction */
	struct ct_entry *moved, *beside; /* the last line that was not at hand, and before this one */
	uint64_t trail[CT_TRAIL]; /* the last instructions of those that lines are foreseen for */
	uint64_t led, reached;	  /* of all these, and before this one */
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

static struct ct_machine machine;
static struct ct_asker askers[CT_CPUS];
static pthread_mutex_t ct_arbiter = PTHREAD_MUTEX_INITIALIZER;
static struct ct_when *ct_wanted;	  /* lines that somebody waits for */
static struct ct_when *ct_whens;	  /* all */
static uint64_t ct_when_bytes;		  /* and what they take */
_Static_assert(sizeof(struct ct_when) <= 72, "beside the sharers of a line that two have touched");
/* Of 64 CPUs each, as many as there are. */
static unsigned ct_words = CT_CPUS / 64;
static _Atomic uint64_t ct_due = UINT64_MAX; /* when the next of them can be given */
static _Atomic unsigned ct_laggard;	  /* whose clock keeps it from being given */
static uint64_t ct_dice;
static _Atomic uint64_t ct_met[1u << 10]; /* a filter of instructions that have waited for lines */

/* --- the machine --- */

struct ct_place {
	uint64_t core, group, socket;
};

/* As contended.simulate.machines.MachineModel.topology: first one thread of each core. */
static inline struct ct_place ct_place_of(unsigned cpu)
{
	const uint64_t n = cpu >= machine.first ? cpu - machine.first : 0;
	const uint64_t core = n % (machine.sockets * machine.cores);

	return (struct ct_place){ core, core * machine.groups / machine.cores,
				  core / machine.cores };
}

static inline uint64_t ct_way(unsigned from, unsigned to)
{
	const struct ct_place a = ct_place_of(from), b = ct_place_of(to);

	return a.core == b.core	    ? machine.core :
	       a.group == b.group   ? machine.near :
	       a.socket == b.socket ? machine.cross :
				      machine.far;
}

/* Whether a line from the one to the other leaves its socket. */
static inline bool ct_is_far(unsigned from, unsigned to)
{
	return ct_place_of(from).socket != ct_place_of(to).socket;
}

/* The other thread of the same core, or the vCPU itself. */
static inline unsigned ct_sibling(unsigned cpu)
{
	const uint64_t cores = machine.sockets * machine.cores;
	const uint64_t n = cpu - machine.first;

	if (machine.threads < 2 || cpu < machine.first)
		return cpu;
	return (unsigned)(n < cores ? cpu + cores : cpu - cores);
}

static inline bool ct_is_twin(unsigned a, unsigned b)
{
	return a != b && ct_sibling(a) == b;
}

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

/* --- the arbiter --- */

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

/* A guess was trusted: was it right? What was long ago counts for less. */
static inline void ct_judge(struct ct_guess *guess, bool right)
{
	uint8_t *const n = right ? &guess->right : &guess->wrong;

	if (*n == UINT8_MAX) {
		guess->right /= 2;
		guess->wrong /= 2;
	}
	++*n;
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

	ct_judge(me->trusted, false);
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

/* --- what the plugin calls --- */

static inline _Atomic uint64_t *ct_filter(uint64_t pc, uint64_t *bit)
{
	const uint64_t hash = ct_hash(pc) >> 16;

	*bit = 1ull << hash % 64;
	return &ct_met[hash / 64 % (sizeof(ct_met) / sizeof(*ct_met))];
}

static inline struct ct_guess *ct_guess_of(unsigned cpu, uint64_t key)
{
	if (!askers[cpu].guesses)
		askers[cpu].guesses = ct_must(calloc(CT_GUESSES, sizeof(struct ct_guess)));
	return &askers[cpu].guesses[ct_hash(key) % CT_GUESSES];
}

/*
 * By what a vCPU's guesses are kept: the instruction alone; it and the line
 * before it; it and the last line that was not at hand, as a lock's tells of
 * which object it is; it and the last instructions of those at which a vCPU has
 * waited, which tell by which call a function was reached.
 */
static inline void ct_keys(unsigned cpu, uint64_t pc, uint64_t keys[CT_KEYS])
{
	const struct ct_asker *me = &askers[cpu];

	keys[0] = pc;
	keys[1] = pc ^ ct_hash(me->before + 1);
	keys[2] = pc ^ ct_hash((uintptr_t)me->beside + 2);
	keys[3] = pc ^ ct_hash(me->reached + 3);
}

/*
 * Who is not trusted is not judged. So a guess that is wrong before it was right
 * a few times is out: an instruction's alone, if it has several lines.
 */
static inline bool ct_trusts(const struct ct_guess *guess)
{
	return guess->sure && CT_TRUST * guess->wrong <= guess->right + CT_TRUST / 2;
}

/* A guess that can be trusted; NULL if there is none. */
static inline struct ct_guess *ct_foresee(unsigned cpu, uint64_t pc)
{
	uint64_t keys[CT_KEYS];

	ct_keys(cpu, pc, keys);
	for (int i = 0; i < CT_KEYS; i++) {
		struct ct_guess *guess = ct_guess_of(cpu, keys[i]);

		if (guess->key == keys[i] && ct_trusts(guess))
			return guess;
	}
	return NULL;
}

/* An instruction that waits for lines, if it has to, runs; a loop's are on the trail once. */
static inline void ct_follow(struct ct_asker *me, uint64_t pc)
{
	int last = 0;

	while (last < CT_TRAIL - 1 && me->trail[last] != pc)
		last++;
	memmove(me->trail + 1, me->trail, (size_t)last * sizeof(*me->trail));
	me->trail[0] = pc;
	me->led = 0;
	for (int i = 0; i < CT_TRAIL; i++)
		me->led = ct_hash(me->led + me->trail[i]);
}

/* An instruction is about to run. */
static inline void ct_before(unsigned cpu, uint64_t pc)
{
	struct ct_asker *me = &askers[cpu];
	struct ct_guess *guess;
	uint64_t bit;

	me->before = me->line;
	me->beside = me->moved;
	me->reached = me->led;
	if (!(atomic_load_explicit(ct_filter(pc, &bit), memory_order_relaxed) & bit))
		return;
	if (me->entry)
		ct_mistaken(cpu);
	if (me->in_tick)
		return;
	guess = ct_foresee(cpu, pc);
	ct_follow(me, pc);
	if (!guess)
		return;

	struct ct_when *when = atomic_load(&guess->entry->when);
	const uint64_t now = atomic_load_explicit(&pacers[cpu].done, memory_order_relaxed);

	if (!atomic_load_explicit(&pacers[cpu].running, memory_order_relaxed))
		return;
	/* Who has it is asked, too, where others may be about to ask for it. */
	if (atomic_load(&when->wanted) || atomic_load(&when->free_at) + pace.quantum > now ||
	    ct_latency(when, atomic_load(&guess->entry->word), cpu, guess->store)) {
		me->trusted = guess;
		ct_ask(cpu, when, guess->store);
	}
}

/* What instruction finds which line elsewhere. */
static void ct_learn(unsigned cpu, uint64_t pc, struct ct_entry *e, bool store)
{
	uint64_t keys[CT_KEYS], bit;
	_Atomic uint64_t *filter = ct_filter(pc, &bit);

	ct_keys(cpu, pc, keys);
	for (int i = 0; i < CT_KEYS; i++) {
		struct ct_guess *guess = ct_guess_of(cpu, keys[i]);
		const bool known = guess->key == keys[i];

		*guess = (struct ct_guess){
			.key = keys[i],
			.entry = e,
			.store = store,
			.sure = known && guess->entry == e,
			.right = known ? guess->right : 0,
			.wrong = known ? guess->wrong : 0,
		};
	}
	atomic_fetch_or_explicit(filter, bit, memory_order_relaxed);
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
			ct_learn(cpu, pc, e, store);
		if (when && store)
			ct_wrote(when, cpu);
		return false;
	}
	askers[cpu].moved = e;
	if (!askers[cpu].in_tick)
		ct_learn(cpu, pc, e, store);
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
		ct_judge(askers[cpu].trusted, true);
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

		free(me->guesses);
		free(me->done);
		*me = (struct ct_asker){ 0 };
	}
	memset((void *)ct_met, 0, sizeof(ct_met));
}
