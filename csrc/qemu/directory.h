/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * directory.h - who holds which line, and in what state.
 *
 * The model: every vCPU has an infinite cache, and memory is sequentially
 * consistent. A line that no vCPU has touched since the region began is in
 * nobody's cache; the first to touch it gets it *exclusive* (a load) or
 * *modified* (a store). Then, for an access by a vCPU that lacks what it needs:
 *
 *   load,  modified elsewhere   -> shared     a HITM load
 *   load,  exclusive or shared  -> shared     an ordinary miss
 *   store, modified elsewhere   -> modified   a HITM store
 *   store, copies elsewhere     -> modified   an invalidation
 *
 * A store to a line that the same vCPU holds exclusive costs nothing, and an
 * event counts once, however many copies it takes away. An ordinary miss is not
 * counted, so it need not be known who shares a line: a shared line is always
 * shared by two or more, and whoever stores to it takes a copy from somebody.
 *
 * Exact with any number of threads, and without a lock: a line's state is one
 * word. An access that changes nothing only reads it, any other is one
 * compare-and-swap, and the order of these is the order of the accesses.
 *
 * Memory: an entry of 64 bytes for each line touched, taken from the arena of
 * the vCPU that touches it first, plus CT_HEADS pointers once. The entry counts
 * the line's loads and stores. What an instruction did to an address is kept,
 * by each vCPU for itself, from the first event there on (struct ct_site): so
 * that takes memory for what moves, not for what is touched. Accesses without
 * an event are added to it once the line has seen CT_HOT_EVENTS.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CT_CPUS 256 /* an owner has eight bits */
#define CT_HEADS (1u << 19)
#define CT_CHUNK 256	   /* entries that an arena grows by */
#define CT_RECENT (1u << 12) /* lines that a vCPU finds without the directory */
#define CT_SITES 256	   /* initial size of a vCPU's table of sites */

/* The state word. */
#define CT_MODE 6ull
#define CT_EXCLUSIVE 2ull
#define CT_MODIFIED 4ull
#define CT_SHARED 6ull
#define CT_MET 8ull /* a second vCPU has touched the line */
#define CT_OWNER_SHIFT 8
#define CT_EVENT (1ull << 16)	 /* the rest counts events, up to a limit */
#define CT_HOT_EVENTS 32
#define CT_HOT(word) ((word) / CT_EVENT >= CT_HOT_EVENTS)
#define CT_OWNER(word) ((unsigned)((word) >> CT_OWNER_SHIFT) & 0xff)
#define CT_HELD(mode, cpu) ((mode) | (uint64_t)(cpu) << CT_OWNER_SHIFT)

struct ct_entry {
	_Alignas(64) uint64_t line; /* address / line size */
	struct ct_entry *next;
	_Atomic uint64_t word;
	_Atomic uint64_t vaddr;
	/* By the first vCPU, while it was alone: nobody else writes these. */
	_Atomic uint32_t own_loads, own_stores;
	_Atomic uint32_t loads, stores; /* since then, by all */
	_Atomic(struct ct_when *) when; /* where time is kept: when.h */
};
_Static_assert(sizeof(struct ct_entry) <= 64, "at most 64 bytes per touched line");

/* One instruction at one address, where an event has happened. */
struct ct_site {
	uint64_t address;
	uint64_t pc; /* 0: free */
	uint32_t loads, stores, hitm_loads, hitm_stores, invalidations;
	uint32_t kernel;
	uint32_t far; /* of the HITM, those from another socket, where time is kept */
	uint64_t stalled; /* picoseconds, where time is kept */
};

static int by_address(const void *a, const void *b)
{
	const struct ct_site *x = a, *y = b;

	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	return x->pc < y->pc ? -1 : x->pc > y->pc;
}

struct ct_chunk {
	struct ct_chunk *next;
	_Alignas(64) struct ct_entry entries[CT_CHUNK];
};

/* [0] user, [1] kernel */
struct ct_counts {
	uint64_t instructions[2], loads[2], stores[2];
	uint64_t hitm_loads[2], hitm_stores[2], invalidations[2];
	uint64_t far; /* of all HITM, see struct ct_site */
};

struct ct_recent {
	uint64_t line; /* + 1, so that 0 is none */
	struct ct_entry *entry;
};

/* A vCPU's own part: no other thread writes it while the region runs. */
struct ct_cache {
	struct ct_counts counts;
	struct ct_chunk *chunks; /* the first is the one in use */
	struct ct_chunk *spare;
	uint32_t used; /* entries of the first chunk */
	uint32_t n_sites, max_sites;
	struct ct_site *sites;
	struct ct_recent recent[CT_RECENT];
};

static _Atomic(struct ct_entry *) *ct_heads;

/* Where time is kept (clock.h): before and after an access to a line. */
static bool ct_timing;
static bool ct_clock_before(unsigned cpu, struct ct_entry *e, uint64_t word, uint64_t pc,
			    bool store);
static inline uint64_t ct_clock_after(unsigned cpu, struct ct_entry *e);
static inline bool ct_is_far(unsigned from, unsigned to);
static inline bool ct_is_twin(unsigned a, unsigned b);
static inline bool ct_within(uint64_t word, unsigned cpu);

static inline void *ct_must(void *memory)
{
	if (!memory) {
		fprintf(stderr, "coherence: out of memory\n");
		_exit(1);
	}
	return memory;
}

static inline uint64_t ct_hash(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 32;
}

/* A new entry, not yet to be found by anybody. */
static inline struct ct_entry *ct_new_entry(struct ct_cache *cache)
{
	if (!cache->chunks || cache->used == CT_CHUNK) {
		struct ct_chunk *chunk = cache->spare;

		if (chunk)
			cache->spare = chunk->next;
		else
			chunk = ct_must(aligned_alloc(64, sizeof(*chunk)));
		chunk->next = cache->chunks;
		cache->chunks = chunk;
		cache->used = 0;
	}
	return memset(&cache->chunks->entries[cache->used++], 0, sizeof(struct ct_entry));
}

/*
 * The entry of a line; if there is none yet, it is made, held by this vCPU in
 * the given state, and *made says so.
 */
static inline struct ct_entry *ct_find_or_make(struct ct_cache *cache, unsigned cpu,
					       uint64_t line, uint64_t hash, uint64_t vaddr,
					       bool store, bool *made)
{
	_Atomic(struct ct_entry *) *head = &ct_heads[hash & (CT_HEADS - 1)];
	struct ct_entry *first = atomic_load_explicit(head, memory_order_acquire);
	struct ct_entry *stop = NULL, *mine = NULL;

	*made = false;
	for (;;) {
		for (struct ct_entry *e = first; e != stop; e = e->next) {
			if (e->line != line)
				continue;
			if (mine) /* somebody was faster: hand ours back */
				cache->used--;
			return e;
		}
		if (!mine) {
			mine = ct_new_entry(cache);
			mine->line = line;
			atomic_store_explicit(&mine->vaddr, vaddr, memory_order_relaxed);
			atomic_store_explicit(&mine->word,
					      CT_HELD(store ? CT_MODIFIED : CT_EXCLUSIVE, cpu),
					      memory_order_relaxed);
			atomic_store_explicit(store ? &mine->own_stores : &mine->own_loads, 1,
					      memory_order_relaxed);
		}
		stop = first;
		mine->next = first;
		if (atomic_compare_exchange_strong_explicit(head, &first, mine,
							    memory_order_release,
							    memory_order_acquire)) {
			*made = true;
			return mine;
		}
	}
}

static inline void ct_grow_sites(struct ct_cache *cache)
{
	const uint32_t size = cache->max_sites ? cache->max_sites * 2 : CT_SITES;
	struct ct_site *sites = ct_must(calloc(size, sizeof(*sites)));

	for (uint32_t i = 0; i < cache->max_sites; i++) {
		const struct ct_site *old = &cache->sites[i];
		uint64_t at = ct_hash(old->address + old->pc * 31);

		if (!old->pc)
			continue;
		while (sites[at & (size - 1)].pc)
			at++;
		sites[at & (size - 1)] = *old;
	}
	free(cache->sites);
	cache->sites = sites;
	cache->max_sites = size;
}

/* The site, or the free place for it. */
static inline struct ct_site *ct_place(struct ct_cache *cache, uint64_t address, uint64_t pc)
{
	for (uint64_t at = ct_hash(address + pc * 31);; at++) {
		struct ct_site *site = &cache->sites[at & (cache->max_sites - 1)];

		if (!site->pc || (site->address == address && site->pc == pc))
			return site;
	}
}

static struct ct_site *ct_site(struct ct_cache *cache, uint64_t address, uint64_t pc, bool kernel)
{
	struct ct_site *site;

	if (cache->n_sites >= cache->max_sites / 4 * 3)
		ct_grow_sites(cache);
	site = ct_place(cache, address, pc);
	if (!site->pc) {
		cache->n_sites++;
		site->address = address;
		site->pc = pc;
		site->kernel = kernel;
	}
	return site;
}

enum ct_event { CT_NOTHING, CT_HITM, CT_INVALIDATION };

/* What an access that is no hit makes of the state word. */
static inline uint64_t ct_next_word(uint64_t word, unsigned cpu, bool store, bool take,
				    enum ct_event *event)
{
	const uint64_t mode = word & CT_MODE;
	const bool mine = mode != CT_SHARED && CT_OWNER(word) == cpu;
	const uint64_t met = mine ? word & CT_MET : CT_MET;
	uint64_t events = word & -CT_EVENT;

	if (mine) /* a store to a line held exclusive */
		*event = CT_NOTHING;
	else if (ct_timing && mode != CT_SHARED && ct_is_twin(CT_OWNER(word), cpu))
		*event = CT_NOTHING; /* it is in the core's cache */
	else if (mode == CT_MODIFIED)
		*event = CT_HITM;
	else /* a store to a line that others hold clean, or a load of one held exclusive */
		*event = store ? CT_INVALIDATION : CT_NOTHING;
	if (*event != CT_NOTHING && !CT_HOT(word))
		events += CT_EVENT;
	return (store ? CT_HELD(CT_MODIFIED, cpu) :
		take  ? CT_HELD(CT_EXCLUSIVE, cpu) :
			CT_SHARED) |
	       met | events;
}

/* The slow path: this access changes the line's state. Returns the new word. */
static uint64_t ct_change(struct ct_entry *e, uint64_t word, unsigned cpu, uint64_t vaddr,
			  bool store, bool take, enum ct_event *event)
{
	uint64_t next;

	do
		next = ct_next_word(word, cpu, store, take, event);
	while (!atomic_compare_exchange_weak(&e->word, &word, next));
	/* A kernel address says more of a line than a program's does. */
	if (vaddr >> 63 && !(atomic_load_explicit(&e->vaddr, memory_order_relaxed) >> 63))
		atomic_store_explicit(&e->vaddr, vaddr, memory_order_relaxed);
	return next;
}

/* An event: at the site, and in the vCPU's total. */
static void ct_note(struct ct_cache *cache, uint64_t address, uint64_t pc, bool kernel, bool store,
		    enum ct_event event, bool far)
{
	struct ct_site *site = ct_site(cache, address, pc, kernel);

	site->far += far;
	cache->counts.far += far;
	if (store)
		site->stores++;
	else
		site->loads++;
	if (event == CT_INVALIDATION) {
		site->invalidations++;
		cache->counts.invalidations[kernel]++;
	} else if (store) {
		site->hitm_stores++;
		cache->counts.hitm_stores[kernel]++;
	} else {
		site->hitm_loads++;
		cache->counts.hitm_loads[kernel]++;
	}
}

/* One access within one line. */
static inline void ct_access(struct ct_cache *cache, unsigned cpu, unsigned shift,
			     uint64_t address, uint64_t vaddr, uint64_t pc, bool kernel,
			     bool store)
{
	const uint64_t line = address >> shift;
	const uint64_t hash = ct_hash(line);
	struct ct_recent *recent = &cache->recent[hash & (CT_RECENT - 1)];
	enum ct_event event = CT_NOTHING;
	struct ct_entry *e;
	uint64_t word;

	if (recent->line == line + 1) {
		e = recent->entry;
	} else {
		bool made;

		e = ct_find_or_make(cache, cpu, line, hash, vaddr >> shift << shift, store, &made);
		recent->line = line + 1;
		recent->entry = e;
		if (made)
			return;
	}
	word = atomic_load_explicit(&e->word, memory_order_acquire);

	const bool take = ct_timing && ct_clock_before(cpu, e, word, pc, store);
	const unsigned owner = CT_OWNER(word); /* before this access */
	const uint64_t mode = word & CT_MODE;
	const bool held = CT_OWNER(word) == cpu || (ct_timing && !store && ct_within(word, cpu));
	const bool hit = mode == CT_SHARED ? !store : held && (!store || mode == CT_MODIFIED);

	if (!hit)
		word = ct_change(e, word, cpu, vaddr >> shift << shift, store, take, &event);
	if (ct_timing) {
		const uint64_t stalled = ct_clock_after(cpu, e);

		if (stalled)
			ct_site(cache, address, pc, kernel)->stalled += stalled;
	}
	if (word & CT_MET) {
		atomic_fetch_add_explicit(store ? &e->stores : &e->loads, 1,
					  memory_order_relaxed);
	} else {
		_Atomic uint32_t *count = store ? &e->own_stores : &e->own_loads;

		atomic_store_explicit(count,
				      atomic_load_explicit(count, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	}
	if (event != CT_NOTHING) {
		ct_note(cache, address, pc, kernel, store, event,
			ct_timing && event == CT_HITM && ct_is_far(owner, cpu));
	} else if (CT_HOT(word) && cache->n_sites) {
		struct ct_site *site = ct_place(cache, address, pc);

		if (site->pc)
			*(store ? &site->stores : &site->loads) += 1;
	}
}

/* Forget a region; nobody may be counting. What is allocated stays for the next. */
static inline void ct_forget(struct ct_cache *c)
{
	while (c->chunks) {
		struct ct_chunk *chunk = c->chunks;

		c->chunks = chunk->next;
		chunk->next = c->spare;
		c->spare = chunk;
	}
	c->used = 0;
	memset(&c->counts, 0, sizeof(c->counts));
	memset(c->recent, 0, sizeof(c->recent));
	if (c->sites)
		memset(c->sites, 0, c->max_sites * sizeof(*c->sites));
	c->n_sites = 0;
}

/* Give back what the vCPU has allocated. */
static inline void ct_release(struct ct_cache *c)
{
	ct_forget(c);
	while (c->spare) {
		struct ct_chunk *chunk = c->spare;

		c->spare = chunk->next;
		free(chunk);
	}
	free(c->sites);
	c->sites = NULL;
	c->max_sites = 0;
}
