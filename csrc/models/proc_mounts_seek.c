/* SPDX-License-Identifier: MIT */
/*
 * proc_mounts_seek.c - a reader that finds its place by counting from the top.
 *
 * The bug: /proc/mounts is longer than one read() returns, so each read()
 * must find where the one before had stopped. The kernel remembered a number,
 * "the 73rd mount comes next", and looked for it by walking the list of
 * mounts from its head.
 *
 * The hypothesis: reading N mounts takes N/k reads of k mounts each, and the
 * walks add up to N^2/2k steps. Remembering the place itself, and an event
 * counter that tells whether the list has changed since, makes it N.
 *
 * Variants:
 *   before  walks from the head to the number, at each read().
 *   after   remembers the mount, its number and the list's event counter; if
 *           the counter has not moved, goes on from there. If it has, walks
 *           as before (Linux 3.15 to 5.7).
 *   cursor  puts an element of its own into the list, in front of the mount
 *           that comes next; mounts come and go around it (from Linux 5.8).
 *
 * The operation opens the file, reads it end to end and closes it. Between
 * two reads "churn" mounts go, picked at random, and as many new ones come.
 * The reader is honest user space: it knows nothing but the text, finds the
 * numbers of the mounts in it, and at the end asks of each mount that was
 * there all the time whether it was seen exactly once. "missed" and
 * "repeated" count the others. A number is not a place: before and after must
 * miss mounts when one in front of the place goes, and the cursor must not.
 *
 * Mounts lie in memory in another order than in the list, as they do after
 * some life, and each on lines of its own.
 *
 * Left out: the lock that is held during each read(), so that nothing changes
 * while one is under way; other readers, whose cursors lie in the list, too;
 * a reader whose buffer is smaller than the kernel's; and all that a line of
 * the real file says. The buffer is the kernel's, one page by default: it
 * bounds what a read() returns, whatever the reader asks for.
 */
#include "../harness.h"

#define MAX_STEPS 50000000 /* in one pass of a variant that walks */

enum { PARAM_MOUNTS, PARAM_BUFFER, PARAM_LINE, PARAM_CHURN, PARAM_PLACE, PARAM_SEED };
enum { WALK_STEPS, NEXT_STEPS, READS, SHOWN, DELIVERED, STAYED, MISSED, REPEATED, CHANGES };
enum { PLACE_END, PLACE_START };

struct node {
	struct node *next, *prev;
};

struct mount {
	_Alignas(64) struct node link; /* first, so that a node is its mount */
	uint32_t id;
	uint32_t slot; /* in the array of live mounts */
	bool cursor;
	bool gone;
	uint32_t born; /* the pass in which it was mounted */
};

/* The mount namespace: a list, and a counter of its changes. */
struct namespace {
	struct node head;
	uint64_t event;
};

/* An open file. */
struct reader {
	uint64_t index; /* the number of the mount that comes next */
	struct node *cached;
	uint64_t cached_index, cached_event;
	struct mount cursor;
	char *buffer;
	size_t size, line;
};

enum how { RESTART, CACHE, CURSOR };

static inline void list_add_before(struct node *node, struct node *place)
{
	node->next = place;
	node->prev = place->prev;
	place->prev->next = node;
	place->prev = node;
}

static inline void list_remove(struct node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

static inline struct mount *mount_of(struct node *node)
{
	return (struct mount *)node;
}

/* The next mount behind a place in the list, or NULL; cursors are no mounts. */
static inline struct node *mount_after(struct namespace *ns, struct node *node,
				       uint64_t *steps)
{
	do {
		node = node->next;
		++*steps;
		if (node == &ns->head)
			return NULL;
	} while (mount_of(node)->cursor);
	return node;
}

/* Mount number index, or NULL: there is no other way than to count. */
static inline struct node *walk(struct namespace *ns, uint64_t index,
				uint64_t *steps)
{
	struct node *node = mount_after(ns, &ns->head, steps);

	while (node && index--)
		node = mount_after(ns, node, steps);
	return node;
}

/* Where a read() begins: the mount that comes next, or NULL at the end. */
static inline __attribute__((always_inline)) struct node *
seek(struct namespace *ns, struct reader *r, enum how how, uint64_t *count)
{
	switch (how) {
	case CURSOR:
		if (r->index == 0)
			return mount_after(ns, &ns->head, &count[WALK_STEPS]);
		if (!r->cursor.link.next)
			return NULL; /* the end was reached */
		return mount_after(ns, &r->cursor.link, &count[WALK_STEPS]);
	case CACHE:
		if (r->cached_event == ns->event && r->cached_index == r->index)
			return r->cached;
		r->cached_event = ns->event;
		r->cached_index = r->index;
		r->cached = walk(ns, r->index, &count[WALK_STEPS]);
		return r->cached;
	default:
		return walk(ns, r->index, &count[WALK_STEPS]);
	}
}

/* Where a read() ends: node comes next, or NULL. */
static inline __attribute__((always_inline)) void
leave(struct reader *r, enum how how, struct node *node)
{
	if (how == CACHE) {
		r->cached = node;
		r->cached_index = r->index;
	}
	if (how == CURSOR) {
		if (r->cursor.link.next)
			list_remove(&r->cursor.link);
		r->cursor.link.next = NULL;
		if (node)
			list_add_before(&r->cursor.link, node);
	}
}

/* How long the line of a mount is: they differ, as real ones do. */
static inline size_t line_length(const struct reader *r, uint32_t id)
{
	return r->line + id * 7 % 17 - 8;
}

/* One line, "ID /mnt/....\n", or 0 if there is no room for it. */
static inline size_t show(const struct reader *r, size_t used, uint32_t id)
{
	const size_t length = line_length(r, id);
	char *line = r->buffer + used, digits[10];
	size_t n = 0, at = 0;

	if (used + length > r->size)
		return 0;
	do
		digits[n++] = (char)('0' + id % 10);
	while (id /= 10);
	while (n)
		line[at++] = digits[--n];
	memset(line + at, '.', length - at - 1);
	line[at] = ' ';
	line[length - 1] = '\n';
	return length;
}

/*
 * One read(): as many whole lines as fit into the buffer. Returns the bytes,
 * 0 at the end, -1 if a mount was shown that is no longer there.
 */
static inline __attribute__((always_inline)) ssize_t
reader_read(struct namespace *ns, struct reader *r, enum how how, uint64_t *count)
{
	struct node *node = seek(ns, r, how, count);
	size_t used = 0;

	while (node) {
		size_t length;

		if (mount_of(node)->gone)
			return -1;
		count[SHOWN]++;
		length = show(r, used, mount_of(node)->id);
		if (!length)
			break; /* it is shown again at the next read */
		used += length;
		r->index++;
		node = mount_after(ns, node, &count[NEXT_STEPS]);
	}
	leave(r, how, node);
	count[READS]++;
	return (ssize_t)used;
}

static void reader_open(struct reader *r)
{
	r->index = 0;
	r->cached = NULL;
	r->cached_index = r->cached_event = UINT64_MAX;
	r->cursor = (struct mount){ .cursor = true };
}

static void reader_close(struct reader *r)
{
	if (r->cursor.link.next)
		list_remove(&r->cursor.link);
	r->cursor.link.next = NULL;
}

/* --- The scenario ---------------------------------------------------------- */

/*
 * The pool holds every mount of a pass; ids are places in it. A mount that has
 * gone keeps its place and its stale links until the pass is over, so that
 * whoever still holds a pointer to it is caught.
 */
struct shared {
	struct namespace ns;
	struct reader reader;
	uint32_t mounts, pool_size, n_spare, n_gone;
	struct mount *pool;
	struct mount **live; /* in no order */
	uint32_t *spare;     /* ids not in use */
	uint32_t *gone;      /* ids that become spare after the pass */
	uint8_t *seen;       /* times each id was read in this pass */
	uint32_t pass;
	uint64_t random;
};

static inline uint32_t draw(struct shared *s, uint32_t below)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((s->random >> 33) % below);
}

static inline int mount_one(struct shared *s, uint32_t slot, int64_t place)
{
	struct mount *m;

	if (!s->n_spare)
		return -1;
	m = &s->pool[s->spare[--s->n_spare]];
	m->gone = false;
	m->born = s->pass;
	m->slot = slot;
	s->live[slot] = m;
	list_add_before(&m->link, place == PLACE_END ? &s->ns.head : s->ns.head.next);
	s->ns.event++;
	return 0;
}

static inline void umount_one(struct shared *s, struct mount *m)
{
	list_remove(&m->link);
	m->gone = true;
	s->gone[s->n_gone++] = m->id;
	s->ns.event++;
}

/* One goes, one comes: the number of mounts stays what it is. */
static inline int change(struct shared *s, int64_t place)
{
	const uint32_t slot = draw(s, s->mounts);

	umount_one(s, s->live[slot]);
	return mount_one(s, slot, place);
}

/* What the reader makes of the text: which mounts, how often. */
static inline uint64_t parse(struct shared *s, const char *text, size_t n)
{
	const char *end = text + n;
	uint64_t lines = 0;

	while (text < end) {
		uint32_t id = 0;

		while (*text >= '0' && *text <= '9')
			id = id * 10 + (uint32_t)(*text++ - '0');
		if (id >= s->pool_size || !(text = memchr(text, '\n', (size_t)(end - text))))
			return UINT64_MAX;
		s->seen[id] += s->seen[id] < UINT8_MAX;
		text++;
		lines++;
	}
	return lines;
}

/* The verdict on the mounts that were there from before the open to the end. */
static inline void judge(struct shared *s, uint64_t *count)
{
	for (uint32_t i = 0; i < s->mounts; i++) {
		const struct mount *m = s->live[i];

		if (m->born == s->pass)
			continue;
		count[STAYED]++;
		count[MISSED] += s->seen[m->id] == 0;
		count[REPEATED] += s->seen[m->id] > 1;
	}
}

static inline __attribute__((always_inline)) void op(struct ct_worker *w,
						     enum how how)
{
	struct shared *s = w->shared;
	struct reader *r = &s->reader;
	ssize_t n;

	s->pass++;
	memset(s->seen, 0, s->pool_size);
	reader_open(r);
	while ((n = reader_read(&s->ns, r, how, w->count)) > 0) {
		const uint64_t lines = parse(s, r->buffer, (size_t)n);

		if (lines == UINT64_MAX) {
			ct_fail(w->run, "the text of a read makes no sense");
			break;
		}
		w->count[DELIVERED] += lines;
		for (int64_t i = 0; i < w->param[PARAM_CHURN]; i++) {
			w->count[CHANGES]++;
			if (change(s, w->param[PARAM_PLACE])) {
				ct_fail(w->run, "the reader does not come to an end");
				reader_close(r);
				return;
			}
		}
	}
	if (n < 0)
		ct_fail(w->run, "a mount was shown that had gone: a stale pointer");
	reader_close(r);
	judge(s, w->count);
	while (s->n_gone)
		s->spare[s->n_spare++] = s->gone[--s->n_gone];
}

static void teardown(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (!s)
		return;
	free(s->reader.buffer);
	free(s->pool);
	free(s->live);
	free(s->spare);
	free(s->gone);
	free(s->seen);
	free(s);
}

static int setup(struct ct_run *run, enum how how)
{
	const int64_t *param = run->param;
	const int64_t mounts = param[PARAM_MOUNTS], line = param[PARAM_LINE];
	const int64_t a_read = param[PARAM_BUFFER] / (line + 8); /* lines, at least */
	const int64_t pool = 2 * mounts + 4 * param[PARAM_CHURN] + 64;
	const bool walks = how == RESTART || (how == CACHE && param[PARAM_CHURN]);
	struct shared *s;

	if (a_read < 1)
		return ct_fail(run, "a line of %" PRId64 " bytes does not fit: buffer must be %" PRId64 " to 1048576",
			       line + 8, line + 8);
	if (2 * param[PARAM_CHURN] > a_read)
		return ct_fail(run, "with %" PRId64 " lines a read, churn must be 0 to %" PRId64 ", or reading never ends",
			       a_read, a_read / 2);
	if (walks && mounts > 1000 && mounts * mounts / (2 * a_read) > MAX_STEPS) {
		int64_t most = 1000;

		while (most * most / (2 * a_read) < MAX_STEPS)
			most += 1000;
		return ct_fail(run, "with %" PRId64 " lines a read, mounts must be 1 to %" PRId64 ": it takes mounts^2 steps",
			       a_read, most - 1000);
	}
	run->shared = s = ct_alloc(sizeof(*s));
	if (!s)
		return ct_fail(run, "out of memory");
	s->mounts = (uint32_t)mounts;
	s->pool_size = (uint32_t)pool;
	s->random = (uint64_t)param[PARAM_SEED];
	s->reader.size = (size_t)param[PARAM_BUFFER];
	s->reader.line = (size_t)line;
	s->reader.buffer = ct_alloc(s->reader.size);
	s->pool = ct_alloc(s->pool_size * sizeof(s->pool[0]));
	s->live = ct_alloc(s->mounts * sizeof(s->live[0]));
	s->spare = ct_alloc(s->pool_size * sizeof(s->spare[0]));
	s->gone = ct_alloc(s->pool_size * sizeof(s->gone[0]));
	s->seen = ct_alloc(s->pool_size);
	if (!s->reader.buffer || !s->pool || !s->live || !s->spare || !s->gone || !s->seen)
		return ct_fail(run, "out of memory");
	s->ns.head = (struct node){ &s->ns.head, &s->ns.head };
	/* neighbours in the list are no neighbours in memory */
	for (uint32_t i = 0; i < s->pool_size; i++) {
		const uint32_t k = draw(s, i + 1);

		s->pool[i].id = i;
		s->spare[i] = s->spare[k];
		s->spare[k] = i;
	}
	s->n_spare = s->pool_size;
	for (uint32_t i = 0; i < s->mounts; i++)
		mount_one(s, i, PLACE_END);
	return 0;
}

/*
 * Whoever stays in place must be read once: always with a cursor, and for the
 * others at least as long as nothing changes.
 */
static int check(struct ct_run *run)
{
	const struct shared *s = run->shared;
	const bool cursor = !strcmp(run->variant->name, "cursor");
	const uint64_t bad = ct_total(run, MISSED) + ct_total(run, REPEATED);
	uint32_t n = 0;

	for (const struct node *node = s->ns.head.next; node != &s->ns.head;
	     node = node->next, n++)
		if (node->next->prev != node || n > s->mounts)
			return ct_fail(run, "the list of mounts is broken");
	if (n != s->mounts)
		return ct_fail(run, "%u mounts in the list, not %u", n, s->mounts);
	if (bad && (cursor || !run->param[PARAM_CHURN]))
		return ct_fail(run, "%" PRIu64 " mounts that stayed were missed, %" PRIu64 " repeated",
			       ct_total(run, MISSED), ct_total(run, REPEATED));
	if (!run->param[PARAM_CHURN] &&
	    ct_total(run, DELIVERED) != ct_total(run, -1) * s->mounts)
		return ct_fail(run, "%" PRIu64 " lines for %" PRIu64 " passes over %u mounts",
			       ct_total(run, DELIVERED), ct_total(run, -1), s->mounts);
	return 0;
}

#define VARIANT(name, how)                                        \
	static inline void name##_op(struct ct_worker *w)         \
	{                                                         \
		op(w, how);                                       \
	}                                                         \
	CT_LOOP(name##_loop, name##_op)                           \
	static int name##_setup(struct ct_run *run)               \
	{                                                         \
		return setup(run, how);                           \
	}

VARIANT(before, RESTART)
VARIANT(after, CACHE)
VARIANT(cursor, CURSOR)

static const struct ct_param params[] = {
	/* a namespace may hold 100,000 mounts unless fs.mount-max says otherwise */
	[PARAM_MOUNTS] = { "mounts", "mounts", "in the list", 2000, 1, 100000 },
	[PARAM_BUFFER] = { "buffer", "bytes", "the kernel's, for each read", 4096, 64, 1 << 20 },
	[PARAM_LINE] = { "line", "bytes", "of a line, give or take 8", 80, 24, 256 },
	[PARAM_CHURN] = { "churn", "mounts", "go, and as many come, between two reads", 0, 0, 64 },
	[PARAM_PLACE] = { "place", "", "where new mounts come: 0 end, as in Linux, 1 start",
			  PLACE_END, PLACE_END, PLACE_START },
	[PARAM_SEED] = { "seed", "", "of the random choices", 1, 0, 1 << 30 },
};

static const struct ct_counter counters[] = {
	[WALK_STEPS] = { "walk_steps", "list elements passed to find the place again" },
	[NEXT_STEPS] = { "next_steps", "list elements passed from line to line" },
	[READS] = { "reads", "read() calls, with the empty one at the end" },
	[SHOWN] = { "shown", "lines formatted, also those that did not fit" },
	[DELIVERED] = { "delivered", "lines that reached the reader" },
	[STAYED] = { "stayed", "mounts that were there during a whole pass" },
	[MISSED] = { "missed", "of those, never read" },
	[REPEATED] = { "repeated", "of those, read more than once" },
	[CHANGES] = { "changes", "mounts that went between reads, and that came" },
};

static const struct ct_variant variants[] = {
	{ "before", "walk from the head at each read", before_setup, before_loop,
	  check, teardown },
	{ "after", "go on from the cached mount, unless something changed",
	  after_setup, after_loop, check, teardown },
	{ "cursor", "leave a marker in the list", cursor_setup, cursor_loop,
	  check, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "proc-mounts-seek",
	 .summary = "read the list of mounts end to end, a page at a time",
	 .op = "one pass: open, read to the end, close",
	 .min_threads = 1,
	 .max_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters),
	 CT_TABLE(phases))
