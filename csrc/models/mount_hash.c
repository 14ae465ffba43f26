/* SPDX-License-Identifier: MIT */
/*
 * mount_hash.c - 256 hash chains for thousands of mounts.
 *
 * The bug: a path walk that comes to a directory on which something is
 * mounted asks a hash table: what is mounted in this mount on this dentry?
 * The table was one page of list heads, 256 chains, whatever the number of
 * mounts. With N mounts a chain holds N/256 of them, and each lookup walks
 * half of one, or all of it to learn that there is nothing.
 *
 * The hypothesis: steps along chains grow as N/256; with a table sized to
 * the machine's memory they do not grow until N reaches the table's size;
 * and a large table is worth nothing without a hash that reaches all of it.
 *
 * Variants:
 *   before     256 chains.
 *   after      a power of two of chains, two for each megabyte of memory, at
 *              least a page of them; or "mhash_entries", if that is not 0.
 *   poor-hash  the table of "after", but the addresses are added as they are.
 *              Objects begin at multiples of 64 bytes, so at least 63 of 64
 *              chains stay empty.
 *
 * The operation is one lookup of a random mountpoint. "misses" percent of
 * them ask for a dentry on which something is mounted, but in another mount:
 * that is what a bind mount of a tree with mountpoints asks for.
 *
 * What stands in for what: the hash is computed from addresses, and those
 * are what a slab allocator would have handed out: dentries of 192 bytes, 21
 * to a page, and mounts of 320, 12 to a page, pages scattered by a fixed
 * shuffle. So a run makes the same steps on every machine. mount objects do
 * lie 320 bytes apart, so that a step costs a cache line, as it should.
 *
 * Left out: mount_lock's sequence count and the reference that the winner
 * gets, mounts on top of mounts, the second table (of mountpoints), and that
 * newer kernels let the table grow more slowly on machines above 64 GB.
 */
#include "../harness.h"

#define OLD_CHAINS 256
#define PAGE 4096u
#define LINE_SHIFT 6 /* the kernel divides by L1_CACHE_BYTES */
#define DENTRY_BYTES 192u
#define MOUNT_BYTES 320u
#define MAX_MOUNTS 1000000

enum { PARAM_MOUNTS, PARAM_MEMORY, PARAM_ENTRIES, PARAM_MISSES, PARAM_PARENTS };
/* UPTO_1 to OVER: lookups by their number of steps */
enum {
	STEPS,
	HITS,
	MISSED,
	UPTO_1,
	UPTO_2,
	UPTO_4,
	UPTO_8,
	UPTO_16,
	UPTO_32,
	UPTO_64,
	UPTO_128,
	UPTO_256,
	OVER,
};

struct dentry {
	uint64_t address;
};

struct mount {
	struct mount *next, **pprev; /* in its chain, newest first */
	struct mount *parent;
	const struct dentry *mountpoint;
	uint64_t address;
	char rest[MOUNT_BYTES - 5 * sizeof(void *)];
};

struct table {
	struct mount **chains;
	uint32_t shift, mask;
	bool poor;
};

struct shared {
	struct table table;
	struct mount *mounts; /* n of them; the root of all is mounts[n] */
	struct dentry *dentries;
	struct mount *elsewhere; /* a mount in which nothing is mounted */
	uint32_t n, n_parents;
};

_Static_assert(sizeof(struct mount) == MOUNT_BYTES, "a slab object");

/* Where a slab would have put object number nth: pages in a fixed shuffle. */
static uint64_t slab_address(uint64_t nth, uint32_t bytes, uint64_t zone)
{
	const uint32_t in_a_page = PAGE / bytes;
	const uint64_t page = nth / in_a_page;
	/* times an odd number, modulo 2^24, folded: each page once */
	uint64_t frame = (page * 0x9e3779b1u + zone * 0x51ed27u) & 0xffffff;

	frame ^= frame >> 12;
	return ((zone << 24) + frame) * PAGE + nth % in_a_page * bytes;
}

/* The heart of it: what the kernel computes, and what somebody might. */
static inline uint32_t chain_of(const struct table *t, const struct mount *parent,
				const struct dentry *dentry)
{
	uint64_t sum;

	if (t->poor)
		return (uint32_t)(parent->address + dentry->address) & t->mask;
	sum = (parent->address >> LINE_SHIFT) + (dentry->address >> LINE_SHIFT);
	sum += sum >> t->shift;
	return (uint32_t)sum & t->mask;
}

static inline struct mount *table_lookup(const struct table *t,
					 const struct mount *parent,
					 const struct dentry *dentry,
					 uint64_t *steps)
{
	struct mount *m = t->chains[chain_of(t, parent, dentry)];

	for (; m; m = m->next) {
		++*steps;
		if (m->parent == parent && m->mountpoint == dentry)
			return m;
	}
	return NULL;
}

static void table_insert(struct table *t, struct mount *m)
{
	struct mount **head = &t->chains[chain_of(t, m->parent, m->mountpoint)];

	m->next = *head;
	m->pprev = head;
	if (m->next)
		m->next->pprev = &m->next;
	*head = m;
}

static void table_remove(struct mount *m)
{
	*m->pprev = m->next;
	if (m->next)
		m->next->pprev = m->pprev;
	m->next = NULL;
	m->pprev = NULL;
}

static uint64_t power_of_two(uint64_t n)
{
	uint64_t power = 1;

	while (power < n)
		power *= 2;
	return power;
}

/* As alloc_large_system_hash() does it, with the numbers of the mount table. */
static uint32_t sized_to_memory(uint64_t megabytes, uint64_t entries)
{
	const uint64_t page_of_chains = PAGE / sizeof(struct mount *);
	const uint64_t most = (megabytes << 20) / 16 / sizeof(struct mount *);

	if (!entries) {
		entries = 2 * megabytes; /* one for each 2^19 bytes */
		if (entries < page_of_chains)
			entries = page_of_chains;
	}
	entries = power_of_two(entries);
	while (entries > most)
		entries /= 2;
	return (uint32_t)entries;
}

static int table_init(struct table *t, uint32_t chains, bool poor)
{
	t->chains = ct_alloc(chains * sizeof(*t->chains));
	if (!t->chains)
		return -1;
	t->mask = chains - 1;
	t->shift = (uint32_t)__builtin_ctz(chains);
	t->poor = poor;
	return 0;
}

static inline uint64_t next_random(struct ct_worker *w)
{
	w->local[0] = w->local[0] * 6364136223846793005ull + 1442695040888963407ull;
	return w->local[0] >> 32;
}

static inline void note_steps(struct ct_worker *w, uint64_t steps)
{
	int bin = UPTO_1;

	/* an empty chain counts among "up to 1" */
	if (steps > 1)
		bin += 64 - __builtin_clzll(steps - 1);
	w->count[bin < OVER ? bin : OVER]++;
	w->count[STEPS] += steps;
}

static inline void lookup_op(struct ct_worker *w)
{
	struct shared *s = w->shared;
	const struct mount *wanted = &s->mounts[next_random(w) * s->n >> 32];
	const bool miss = (int64_t)(next_random(w) * 100 >> 32) <
			  w->param[PARAM_MISSES];
	uint64_t steps = 0;
	struct mount *found = table_lookup(
		&s->table, miss ? s->elsewhere : wanted->parent,
		wanted->mountpoint, &steps);

	note_steps(w, steps);
	w->count[found ? HITS : MISSED]++;
	if (found != (miss ? NULL : wanted))
		ct_fail(w->run, "a lookup found another mount than the one there");
}

CT_LOOP(lookup_loop, lookup_op)

/*
 * Refuse what does not fit into a quarter of the memory, before any of it is
 * allocated: this process may be limited to less than the machine has.
 */
static int check_memory(struct ct_run *run)
{
	const uint64_t each = sizeof(struct mount) + sizeof(struct dentry);
	uint64_t have = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			(uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t most;
	struct rlimit limit;

	if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur < have)
		have = limit.rlim_cur;
	most = have / 4 / each;
	if (most < MAX_MOUNTS && (uint64_t)run->param[PARAM_MOUNTS] > most)
		return ct_fail(run, "mounts must be 1 to %" PRIu64
				    " here: a quarter of %" PRIu64 " MB is theirs",
			       most, have >> 20);
	return 0;
}

static int fill(struct ct_run *run, uint32_t chains, bool poor)
{
	struct shared *s;
	const uint32_t n = (uint32_t)run->param[PARAM_MOUNTS];

	if (check_memory(run))
		return -1;
	s = run->shared = ct_alloc(sizeof(*s));
	if (!s)
		return ct_fail(run, "out of memory");
	s->n = n;
	s->n_parents = (uint32_t)run->param[PARAM_PARENTS];
	s->mounts = ct_alloc(((size_t)n + 2) * sizeof(*s->mounts));
	s->dentries = ct_alloc((size_t)n * sizeof(*s->dentries));
	if (!s->mounts || !s->dentries || table_init(&s->table, chains, poor))
		return ct_fail(run, "out of memory");
	s->elsewhere = &s->mounts[n + 1];
	for (uint32_t i = 0; i < n + 2; i++)
		s->mounts[i].address = slab_address(i, MOUNT_BYTES, 1);
	for (uint32_t i = 0; i < n; i++) {
		struct mount *m = &s->mounts[i];

		s->dentries[i].address = slab_address(i, DENTRY_BYTES, 2);
		/* the first "parents" mounts hold the rest; the root holds them */
		m->parent = i < s->n_parents || s->n_parents == 1 ?
				    &s->mounts[n] : &s->mounts[i % s->n_parents];
		m->mountpoint = &s->dentries[i];
		table_insert(&s->table, m);
	}
	run->workers[0].local[0] = 0x2014;
	return 0;
}

static int setup_before(struct ct_run *run)
{
	return fill(run, OLD_CHAINS, false);
}

static uint32_t chains_of(const struct ct_run *run)
{
	return sized_to_memory((uint64_t)run->param[PARAM_MEMORY],
			       (uint64_t)run->param[PARAM_ENTRIES]);
}

static int setup_after(struct ct_run *run)
{
	return fill(run, chains_of(run), false);
}

static int setup_poor(struct ct_run *run)
{
	return fill(run, chains_of(run), true);
}

/* Each mount is found, and after all are gone each chain is empty. */
static int check(struct ct_run *run)
{
	struct shared *s = run->shared;
	uint64_t steps = 0, left = 0;

	if (ct_total(run, HITS) + ct_total(run, MISSED) != ct_total(run, -1))
		return ct_fail(run, "hits and misses are not all lookups");
	/* Newest first: they stand in front, so this stays linear. */
	for (uint32_t i = s->n; i--;) {
		struct mount *m = &s->mounts[i];

		if (table_lookup(&s->table, m->parent, m->mountpoint, &steps) != m)
			return ct_fail(run, "mount %" PRIu32 " is not found", i);
		table_remove(m);
	}
	for (uint32_t i = 0; i <= s->table.mask; i++)
		left += s->table.chains[i] != NULL;
	if (left)
		return ct_fail(run, "%" PRIu64 " chains are not empty after all "
				    "mounts are gone", left);
	return 0;
}

static void teardown(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (!s)
		return;
	free(s->table.chains);
	free(s->dentries);
	free(s->mounts);
	free(s);
}

static const struct ct_param params[] = {
	[PARAM_MOUNTS] = { "mounts", "mounts", "in the table", 10000, 1,
			   MAX_MOUNTS },
	[PARAM_MEMORY] = { "memory", "MB", "of the machine that \"after\" sizes "
			   "its table to", 65536, 64, 1 << 24 },
	[PARAM_ENTRIES] = { "mhash_entries", "chains",
			    "as the boot parameter; 0: from memory", 0, 0,
			    1 << 24 },
	[PARAM_MISSES] = { "misses", "%", "lookups of what is not there", 0, 0,
			   100 },
	[PARAM_PARENTS] = { "parents", "mounts",
			    "that the others are mounted in", 1, 1, 1000 },
};

static const struct ct_counter counters[] = {
	[STEPS] = { "steps", "mounts looked at on the way along chains" },
	[HITS] = { "hits", "lookups that found a mount" },
	[MISSED] = { "missed", "lookups that found none" },
	[UPTO_1] = { "upto_1", "lookups with at most 1 step" },
	[UPTO_2] = { "upto_2", "lookups with 2 steps" },
	[UPTO_4] = { "upto_4", "lookups with 3 or 4 steps" },
	[UPTO_8] = { "upto_8", "lookups with 5 to 8 steps" },
	[UPTO_16] = { "upto_16", "lookups with 9 to 16 steps" },
	[UPTO_32] = { "upto_32", "lookups with 17 to 32 steps" },
	[UPTO_64] = { "upto_64", "lookups with 33 to 64 steps" },
	[UPTO_128] = { "upto_128", "lookups with 65 to 128 steps" },
	[UPTO_256] = { "upto_256", "lookups with 129 to 256 steps" },
	[OVER] = { "over", "lookups with more than 256 steps" },
};

static const struct ct_variant variants[] = {
	{ "before", "256 chains", setup_before, lookup_loop, check, teardown },
	{ "after", "two chains for each megabyte of memory", setup_after,
	  lookup_loop, check, teardown },
	{ "poor-hash", "as many chains, a hash that reaches few of them",
	  setup_poor, lookup_loop, check, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "mount-hash",
	 .summary = "look up what is mounted on a directory",
	 .op = "one lookup of a random mountpoint",
	 .min_threads = 1,
	 .max_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters), CT_TABLE(phases))
