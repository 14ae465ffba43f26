/* SPDX-License-Identifier: MIT */
/*
 * dentry_false_sharing.c - a counter on a line that others only want to read.
 *
 * The bug: a path lookup under RCU finds a dentry by its parent, the hash and
 * length of its name, and the name itself, and writes nothing. A short name is
 * kept inside the dentry. The reference count, which somebody changes all the
 * time, comes right behind it, on the line where the name's tail is. So every
 * reference that is taken or dropped pulls that line away from all CPUs that
 * compare the name, although they do not care for the count.
 *
 * The hypothesis: with the lockref on another line lookups do not wait for
 * references any more, and the other way round, without a change in what
 * either of them does. Only names that reach into the second line are
 * affected: longer than 8 characters, and short enough to be kept inside.
 *
 * Variants, with Linux's fields in Linux's order on a 64-bit machine:
 *   before    as in Linux 6.8 to 6.10: name of 40 bytes, lockref at 96.
 *   after     as in Linux 6.11: the lockref behind fsdata, at 128.
 *   moved-32  the same move in the dentry of Linux 6.1, whose inline name has
 *             32 bytes: the lockref comes to lie at 120, on the same line.
 *
 * Roles: mixed (each thread looks up, takes and drops a reference, as stat
 * does), separate (threads 0, 2, ... look up, threads 1, 3, ... take and drop
 * references) and readers (all look up: the control).
 *
 * What stands in for what: the trace in setup() sends one real lookup through
 * the code and notes which bytes it reads; "read" and "shared" are that many
 * for each lookup, not a second opinion about the layout.
 *
 * Left out: several components, mounts, symbolic links, the lock inside the
 * lockref (nobody takes it here; lockref_degrade.c has that), and the mask for
 * a name's last word (names are padded with zeros). Renames do not happen in a
 * run, but lookups are ready for them: see dentry_set().
 */
#include "../harness.h"
#include "../lockref.h"

#define LINE 64 /* bytes: the line that Linux lays out its dentry for */
#define MAX_NAME 120
#define WORDS(len) (((len) + 7) / 8)

enum { PARAM_ROLES, PARAM_NAME };
enum { MIXED, SEPARATE, READERS, ROLES };
enum { LOOKUPS, REFS, RETRIED, LOST, READ, SHARED };

typedef _Atomic uint64_t word;

struct inode {
	_Alignas(CT_LINE) uint64_t number;
};

/* What a lookup reads of each dentry that it meets: all but the name. */
struct head {
	_Atomic uint32_t flags;
	_Atomic uint32_t seq;               /* odd while it is changed */
	_Atomic(struct head *) hash[2];     /* the next in the chain; unused */
	_Atomic(const struct head *) parent;
	word hash_len;                      /* length << 32 | hash */
	_Atomic(const word *) name;         /* inside, if it is short */
	_Atomic(const struct inode *) inode;
};

struct before {
	struct head head;
	word iname[5];
	union lockref lockref;
	const void *op, *sb;
	unsigned long time;
	void *fsdata;
	void *lru[2], *sib[2], *children, *alias[2];
};

struct after {
	struct head head;
	word iname[5];
	const void *op, *sb;
	unsigned long time;
	void *fsdata;
	union lockref lockref;
	void *lru[2], *sib[2], *children, *alias[2];
};

struct moved_32 {
	struct head head;
	word iname[4];
	const void *op, *sb;
	unsigned long time;
	void *fsdata;
	union lockref lockref;
	void *lru[2], *child[2], *subdirs[2], *alias[2];
};

/* Dentries are packed into pages: a size that is no multiple of a line would
 * give each its own layout. */
_Static_assert(sizeof(struct before) % LINE == 0, "whole lines");
_Static_assert(sizeof(struct after) % LINE == 0, "whole lines");
_Static_assert(sizeof(struct moved_32) % LINE == 0, "whole lines");

/* A layout, for the code that does not care which. */
struct layout {
	size_t size, iname, inline_len, lockref;
};

#define LAYOUT(type)                                                    \
	{ sizeof(struct type), offsetof(struct type, iname),            \
	  sizeof(((struct type *)0)->iname), offsetof(struct type, lockref) }

/* The name that somebody looks up, private to the thread. */
struct query {
	_Alignas(CT_LINE) const struct head *parent;
	uint64_t hash_len;
	uint64_t name[WORDS(MAX_NAME)];
};

/* Which bytes a lookup reads: all of them, and those on one line. */
struct trace {
	uintptr_t line;
	uint64_t bytes, on_line;
};

struct shared {
	_Alignas(CT_LINE) _Atomic(struct head *) chain;
	struct head *target;
	uint64_t bytes_read, bytes_shared;
	struct head *parent, *neighbour;
	word *outside[2]; /* names that are too long to be inside */
	struct inode *inode;
	struct query query[];
};

static inline void look(struct trace *trace, const volatile void *p,
			size_t bytes)
{
	trace->bytes += bytes;
	if ((uintptr_t)p / LINE == trace->line)
		trace->on_line += bytes;
}

/* No instruction of this is left where the trace is the constant NULL. */
#define SEE(trace, place)                                               \
	((trace) ? look((trace), &(place), sizeof(place)) : (void)0,    \
	 atomic_load_explicit(&(place), memory_order_acquire))

static inline __attribute__((always_inline)) bool
same_name(const word *name, const struct query *q, struct trace *trace)
{
	for (uint64_t i = 0; i < WORDS(q->hash_len >> 32); i++)
		if (SEE(trace, name[i]) != q->name[i])
			return false;
	return true;
}

/*
 * The lookup: walks a hash chain and writes nothing. Each load is an acquire,
 * so that the second look at seq comes after all that was read. NULL: it is
 * not there, or it was being changed.
 */
static inline __attribute__((always_inline)) struct head *
lookup(_Atomic(struct head *) *chain, const struct query *q,
       const struct inode **inode, struct trace *trace)
{
	struct head *d = atomic_load_explicit(chain, memory_order_acquire);

	for (; d; d = SEE(trace, d->hash[0])) {
		const uint32_t seq = SEE(trace, d->seq);

		if (SEE(trace, d->parent) != q->parent)
			continue;
		if (SEE(trace, d->hash_len) != q->hash_len)
			continue;
		if (!same_name(SEE(trace, d->name), q, trace))
			continue;
		*inode = SEE(trace, d->inode);
		if (SEE(trace, d->flags)) /* something is mounted here */
			return NULL;
		if (seq & 1 || atomic_load_explicit(&d->seq,
						    memory_order_relaxed) != seq)
			return NULL;
		return d;
	}
	return NULL;
}

/* Give or take a reference; nobody holds the lock, so this always succeeds. */
static inline void reference(struct ct_worker *w, union lockref *ref,
			     uint32_t delta)
{
	union lockref_value old, new;

	old.whole = atomic_load_explicit(&ref->whole, memory_order_relaxed);
	for (;;) {
		new = old;
		new.count += delta;
		if (atomic_compare_exchange_strong_explicit(
			    &ref->whole, &old.whole, new.whole,
			    memory_order_acq_rel, memory_order_relaxed))
			break;
		w->count[RETRIED]++;
	}
	w->count[REFS]++;
}

static inline void find(struct ct_worker *w)
{
	struct shared *s = w->shared;
	const struct inode *inode = NULL;

	w->count[LOOKUPS]++;
	w->count[READ] += s->bytes_read;
	w->count[SHARED] += s->bytes_shared;
	if (lookup(&s->chain, &s->query[w->id], &inode, NULL) != s->target)
		w->count[LOST]++;
	else
		w->sink += inode->number;
}

static inline void get_and_put(struct ct_worker *w, size_t lockref)
{
	struct shared *s = w->shared;
	union lockref *ref = (union lockref *)((char *)s->target + lockref);

	reference(w, ref, 1u);
	reference(w, ref, -1u);
}

static inline void find_op(struct ct_worker *w)
{
	find(w);
}
CT_LOOP(find_loop, find_op)

#define VARIANT(type)                                                     \
	static inline void type##_ref_op(struct ct_worker *w)             \
	{                                                                 \
		get_and_put(w, offsetof(struct type, lockref));           \
	}                                                                 \
	static inline void type##_mixed_op(struct ct_worker *w)           \
	{                                                                 \
		find(w);                                                  \
		get_and_put(w, offsetof(struct type, lockref));           \
	}                                                                 \
	CT_LOOP(type##_ref_loop, type##_ref_op)                           \
	CT_LOOP(type##_mixed_loop, type##_mixed_op)                       \
	static void type##_loop(struct ct_worker *w, uint64_t n)          \
	{                                                                 \
		const int64_t roles = w->param[PARAM_ROLES];              \
									  \
		if (roles == MIXED)                                       \
			type##_mixed_loop(w, n);                          \
		else if (roles == SEPARATE && w->id % 2)                  \
			type##_ref_loop(w, n);                            \
		else                                                      \
			find_loop(w, n);                                  \
	}                                                                 \
	static int type##_setup(struct ct_run *run)                       \
	{                                                                 \
		static const struct layout layout = LAYOUT(type);         \
									  \
		return setup(run, &layout);                               \
	}                                                                 \
	static int type##_check(struct ct_run *run)                       \
	{                                                                 \
		return check(run, offsetof(struct type, lockref));        \
	}

static uint64_t hash_len(const char *name, uint64_t len)
{
	uint32_t hash = 2166136261u;

	for (uint64_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)name[i]) * 16777619u;
	return len << 32 | hash;
}

static void query_set(struct query *q, const struct head *parent,
		      const char *name, uint64_t len)
{
	memset(q, 0, sizeof(*q));
	memcpy(q->name, name, len);
	q->parent = parent;
	q->hash_len = hash_len(name, len);
}

/*
 * Name a dentry, as creating or renaming a file does. Whoever looks it up
 * meanwhile sees seq odd or changed: the stores are releases, so that none of
 * them is seen without the odd seq that came first. One writer at a time.
 */
static void dentry_set(struct head *d, const struct head *parent,
		       const char *name, uint64_t len, word *place,
		       const struct inode *inode)
{
	const uint32_t seq = atomic_load(&d->seq);
	uint64_t padded[WORDS(MAX_NAME)] = { 0 };

	memcpy(padded, name, len);
	atomic_store(&d->seq, seq + 1);
	for (uint64_t i = 0; i < WORDS(len); i++)
		atomic_store_explicit(&place[i], padded[i],
				      memory_order_release);
	atomic_store_explicit(&d->name, place, memory_order_release);
	atomic_store_explicit(&d->hash_len, hash_len(name, len),
			      memory_order_release);
	atomic_store_explicit(&d->parent, parent, memory_order_release);
	atomic_store_explicit(&d->inode, inode, memory_order_release);
	atomic_store_explicit(&d->seq, seq + 2, memory_order_release);
}

/* Where a name goes: inside, with room for a final zero, or outside. */
static word *name_place(struct head *d, const struct layout *layout,
			uint64_t len, word **outside)
{
	if (len < layout->inline_len)
		return (word *)((char *)d + layout->iname);
	*outside = ct_alloc(MAX_NAME);
	return *outside;
}

static void teardown(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (!s)
		return;
	free(s->outside[0]);
	free(s->outside[1]);
	free(s->parent);
	free(s->neighbour);
	free(s->target);
	free(s->inode);
	free(s);
}

/* One lookup through the very same code, with its eyes open. */
static int trace_lookup(struct ct_run *run, size_t lockref)
{
	struct shared *s = run->shared;
	const struct inode *inode = NULL;
	struct trace trace = {
		.line = ((uintptr_t)s->target + lockref) / LINE,
	};

	if (lookup(&s->chain, &s->query[0], &inode, &trace) != s->target)
		return ct_fail(run, "a lookup does not find the dentry");
	s->bytes_read = trace.bytes;
	s->bytes_shared = trace.on_line;
	return 0;
}

/* A directory with two files of the same hash chain; we want the second. */
static int setup(struct ct_run *run, const struct layout *layout)
{
	const uint64_t len = (uint64_t)run->param[PARAM_NAME];
	struct shared *s = ct_alloc(sizeof(*s) +
				    run->threads * sizeof(s->query[0]));
	char name[MAX_NAME], other[MAX_NAME];
	word *place[2];

	run->shared = s;
	if (!s)
		return ct_fail(run, "out of memory");
	s->parent = ct_alloc(layout->size);
	s->neighbour = ct_alloc(layout->size);
	s->target = ct_alloc(layout->size);
	s->inode = ct_alloc(2 * sizeof(*s->inode));
	if (!s->parent || !s->neighbour || !s->target || !s->inode)
		return ct_fail(run, "out of memory");
	place[0] = name_place(s->neighbour, layout, len, &s->outside[0]);
	place[1] = name_place(s->target, layout, len, &s->outside[1]);
	if (!place[0] || !place[1])
		return ct_fail(run, "out of memory");
	for (uint64_t i = 0; i < len; i++)
		name[i] = other[i] = (char)('a' + i % 26);
	other[len - 1] = '!';
	s->inode[0].number = 1;
	s->inode[1].number = 2;
	dentry_set(s->neighbour, s->parent, other, len, place[0], &s->inode[0]);
	dentry_set(s->target, s->parent, name, len, place[1], &s->inode[1]);
	atomic_store(&s->neighbour->hash[0], s->target);
	atomic_store(&s->chain, s->neighbour);
	for (uint32_t i = 0; i < run->threads; i++)
		query_set(&s->query[i], s->parent, name, len);
	((union lockref *)((char *)s->target + layout->lockref))->count = 1;
	return trace_lookup(run, layout->lockref);
}

/*
 * Each lookup found the dentry, each reference was given back, and every
 * thread did what its role says.
 */
static int check(struct ct_run *run, size_t lockref)
{
	struct shared *s = run->shared;
	const int64_t roles = run->param[PARAM_ROLES];
	uint64_t lookups = 0, refs = 0;
	uint32_t count;

	for (uint32_t i = 0; i < run->threads; i++) {
		const uint64_t ops = run->workers[i].ops;

		lookups += roles != SEPARATE || i % 2 == 0 ? ops : 0;
		refs += roles == MIXED || (roles == SEPARATE && i % 2) ? 2 * ops
								       : 0;
	}
	count = ((union lockref *)((char *)s->target + lockref))->count;
	if (count != 1)
		return ct_fail(run, "the count is %" PRIu32 ", not 1: updates were lost",
			       count);
	if (ct_total(run, LOST))
		return ct_fail(run, "%" PRIu64 " lookups found nothing",
			       ct_total(run, LOST));
	if (ct_total(run, LOOKUPS) != lookups || ct_total(run, REFS) != refs)
		return ct_fail(run, "%" PRIu64 " lookups and %" PRIu64
				    " references are not what the roles say",
			       ct_total(run, LOOKUPS), ct_total(run, REFS));
	return 0;
}

VARIANT(before)
VARIANT(after)
VARIANT(moved_32)

static const struct ct_param params[] = {
	[PARAM_ROLES] = { "roles", "",
			  "0 each thread does both, 1 odd threads take references, 2 all look up",
			  MIXED, 0, ROLES - 1 },
	/* will-it-scale's temporary file has a name of 18 characters */
	[PARAM_NAME] = { "name", "characters", "length of the file's name", 18,
			 1, MAX_NAME },
};

static const struct ct_counter counters[] = {
	[LOOKUPS] = { "lookups", "lookups made" },
	[REFS] = { "refs", "references taken or dropped" },
	[RETRIED] = { "retried", "compare-and-exchanges that failed" },
	[LOST] = { "lost", "lookups that did not find the dentry" },
	[READ] = { "read", "bytes that lookups read in dentries" },
	[SHARED] = { "shared", "bytes of these on the lockref's line" },
};

static const struct ct_variant variants[] = {
	{ "before", "the lockref behind the inline name (Linux 6.8 to 6.10)",
	  before_setup, before_loop, before_check, teardown },
	{ "after", "the lockref on the third line (Linux 6.11)", after_setup,
	  after_loop, after_check, teardown },
	{ "moved-32", "the same move with Linux 6.1's inline name of 32 bytes",
	  moved_32_setup, moved_32_loop, moved_32_check, teardown },
};

#define AT(variant, type, member, label, kind)                            \
	{ variant, label, kind, offsetof(struct type, member),            \
	  sizeof(((struct type *)0)->member) }

#define FIELDS(variant, type, ...)                                        \
	AT(variant, type, head.flags, "flags", "lookup"),                 \
	AT(variant, type, head.seq, "seq", "lookup"),                     \
	AT(variant, type, head.hash, "hash", "lookup"),                   \
	AT(variant, type, head.parent, "parent", "lookup"),               \
	AT(variant, type, head.hash_len, "hash_len", "lookup"),           \
	AT(variant, type, head.name, "name", "lookup"),                   \
	AT(variant, type, head.inode, "inode", "lookup"),                 \
	AT(variant, type, iname, "iname", "lookup"),                      \
	AT(variant, type, lockref, "lockref", "reference"),               \
	AT(variant, type, op, "op", "other"),                             \
	AT(variant, type, sb, "sb", "other"),                             \
	AT(variant, type, time, "time", "other"),                         \
	AT(variant, type, fsdata, "fsdata", "other"),                     \
	AT(variant, type, lru, "lru", "other"), __VA_ARGS__,              \
	AT(variant, type, alias, "alias", "other")

static const struct ct_field fields[] = {
	FIELDS("before", before, AT("before", before, sib, "sib", "other"),
	       AT("before", before, children, "children", "other")),
	FIELDS("after", after, AT("after", after, sib, "sib", "other"),
	       AT("after", after, children, "children", "other")),
	FIELDS("moved-32", moved_32,
	       AT("moved-32", moved_32, child, "child", "other"),
	       AT("moved-32", moved_32, subdirs, "subdirs", "other")),
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "dentry-false-sharing",
	 .summary = "look a dentry up while references to it come and go",
	 .op = "one lookup, or one get and put, or both, by the thread's role",
	 .min_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters),
	 CT_TABLE(phases), CT_TABLE(fields))
