/* SPDX-License-Identifier: MIT */
/*
 * overlay_creds.c - credentials that are lent for an instant and counted.
 *
 * The bug: overlayfs checks permissions twice, once with the caller's own
 * credentials and once, on the layer below, with those of whoever mounted the
 * overlay. For the second check it makes the mounter's credentials the task's
 * current ones and puts the old ones back afterwards. override_creds() takes
 * a reference on what it installs and revert_creds() drops it, so each
 * operation makes two atomic changes to one counter that all tasks on that
 * mount share. The mount itself holds a reference for as long as it exists,
 * so those two protect nothing.
 *
 * The hypothesis: without the two atomic operations nothing that the tasks
 * write is shared any more, and operations on two CPUs no longer meet.
 *
 * Variants:
 *   before    takes and drops a reference each time.
 *   own-line  the same, with the counter moved to a cache line of its own:
 *             the user and group ids beside it can then be read in peace.
 *   after     installs and restores a pointer, and counts nothing.
 *   guarded   after, with the restoring left to the compiler, by a variable
 *             whose cleanup runs wherever its scope is left.
 *
 * The operation is one permission check on an overlay file. Once in "early"
 * operations somebody returns early, between override and revert; where the
 * revert is written by hand it is forgotten there, on purpose. The next
 * operation then starts, and also ends, with borrowed credentials.
 *
 * What stands in for what: a worker is a task, its "current" on lines of its
 * own. A real check follows a path, reads inodes and asks security modules;
 * --think adds such work.
 *
 * Left out: the second pair of credentials that a task has for being looked
 * at (real_cred), groups, user namespaces, security modules, RCU.
 */
#include "../harness.h"

#define ALLOWED 0
#define REFUSED (-EACCES)
#define READ_BIT 04
#define CAP_ANY_FILE 0x2u

enum { PARAM_MOUNTS, PARAM_EARLY };
enum { MOUNT_EACH, MOUNT_SHARED };
enum { ATOMIC, UNPAIRED, EARLY, BORROWED, DENIED };
enum { NESTING, COUNTDOWN }; /* a worker's local[] */
enum kind { BEFORE, OWN_LINE, AFTER, GUARDED };

/* As in Linux: the count first, the ids that every check reads behind it. */
struct cred {
	_Alignas(CT_LINE) _Atomic uint64_t usage;
	uint32_t uid, gid, suid, sgid, euid, egid;
	uint32_t fsuid, fsgid; /* the ones that count for files */
	uint64_t cap_effective;
	_Alignas(CT_LINE) _Atomic uint64_t usage_apart; /* own-line's count */
};

struct inode {
	uint32_t uid, gid, mode;
};

/* An overlay: what the user sees, what lies below, and who mounted it. */
struct overlay {
	_Alignas(CT_LINE) struct inode upper;
	struct inode below;
	struct cred creator;
};

struct task {
	_Alignas(CT_LINE) _Atomic(struct cred *) cred;
	struct cred own;
};

struct shared {
	uint32_t n;
	struct overlay *overlay;
	struct task *task;
};

_Static_assert(offsetof(struct cred, fsgid) < 64,
	       "the ids share the count's line, or there is nothing to see");

static inline struct task *current_task(struct ct_worker *w)
{
	struct shared *s = w->shared;

	return &s->task[w->id];
}

static inline struct cred *current_cred(struct ct_worker *w)
{
	return atomic_load_explicit(&current_task(w)->cred,
				    memory_order_relaxed);
}

static inline void set_current_cred(struct ct_worker *w, struct cred *cred)
{
	atomic_store_explicit(&current_task(w)->cred, cred,
			      memory_order_release);
}

static inline void get_cred(struct ct_worker *w, _Atomic uint64_t *usage)
{
	w->count[ATOMIC]++;
	atomic_fetch_add_explicit(usage, 1, memory_order_relaxed);
}

static inline void put_cred(struct ct_worker *w, _Atomic uint64_t *usage)
{
	w->count[ATOMIC]++;
	if (atomic_fetch_sub_explicit(usage, 1, memory_order_acq_rel) == 1)
		ct_fail(w->run, "the last reference is gone, and the mount is there");
}

/* Where this variant counts; kind is a constant wherever this is called. */
static inline _Atomic uint64_t *usage_of(struct cred *cred, enum kind kind)
{
	return kind == OWN_LINE ? &cred->usage_apart : &cred->usage;
}

static inline struct cred *override_creds(struct ct_worker *w,
					  struct cred *cred, enum kind kind)
{
	struct cred *old = current_cred(w);

	if (kind == BEFORE || kind == OWN_LINE)
		get_cred(w, usage_of(cred, kind));
	set_current_cred(w, cred);
	w->local[NESTING]++;
	return old;
}

static inline void revert_creds(struct ct_worker *w, struct cred *old,
				enum kind kind)
{
	struct cred *borrowed = current_cred(w);

	w->local[NESTING]--;
	set_current_cred(w, old);
	if (kind == BEFORE || kind == OWN_LINE)
		put_cred(w, usage_of(borrowed, kind));
}

/* The guard: a variable that reverts when it goes out of scope. */
struct cred_scope {
	struct ct_worker *worker;
	struct cred *old;
};

static inline void cred_scope_end(struct cred_scope *scope)
{
	revert_creds(scope->worker, scope->old, GUARDED);
}

#define WITH_CREDS(w, cred)                                              \
	struct cred_scope scope                                          \
		__attribute__((cleanup(cred_scope_end), unused)) = {     \
			(w), override_creds((w), (cred), GUARDED)        \
		}

/* May the current credentials read this inode? */
static inline int may_read(struct ct_worker *w, const struct inode *inode)
{
	const struct cred *cred = current_cred(w);
	uint32_t mode = inode->mode;

	if (cred->fsuid == inode->uid)
		mode >>= 6;
	else if (cred->fsgid == inode->gid)
		mode >>= 3;
	if (mode & READ_BIT || cred->cap_effective & CAP_ANY_FILE)
		return ALLOWED;
	return REFUSED;
}

/* Is it this operation's turn to return early? */
static inline bool returns_early(struct ct_worker *w)
{
	const uint64_t early = (uint64_t)w->param[PARAM_EARLY];

	if (!early || ++w->local[COUNTDOWN] < early)
		return false;
	w->local[COUNTDOWN] = 0;
	w->count[EARLY]++;
	return true;
}

/* The check with both hands on the credentials. */
static inline int permission(struct ct_worker *w, struct overlay *overlay,
			     enum kind kind)
{
	int error = may_read(w, &overlay->upper);
	struct cred *old;

	if (error)
		return error;
	old = override_creds(w, &overlay->creator, kind);
	if (returns_early(w))
		return -EINTR; /* and forgets the revert */
	error = may_read(w, &overlay->below);
	revert_creds(w, old, kind);
	return error;
}

/* The same check, the revert left to the scope. */
static inline int permission_guarded(struct ct_worker *w,
				     struct overlay *overlay)
{
	int error = may_read(w, &overlay->upper);

	if (error)
		return error;

	WITH_CREDS(w, &overlay->creator);

	if (returns_early(w))
		return -EINTR;
	return may_read(w, &overlay->below);
}

static inline struct overlay *overlay_of(struct ct_worker *w)
{
	struct shared *s = w->shared;

	return &s->overlay[w->param[PARAM_MOUNTS] == MOUNT_EACH ? w->id : 0];
}

static inline __attribute__((always_inline)) void
one_check(struct ct_worker *w, enum kind kind)
{
	struct overlay *overlay = overlay_of(w);

	w->count[BORROWED] += current_cred(w) != &current_task(w)->own;

	const int error = kind == GUARDED ? permission_guarded(w, overlay)
					  : permission(w, overlay, kind);

	w->count[DENIED] += error == REFUSED;
	w->count[UNPAIRED] += w->local[NESTING];
	w->local[NESTING] = 0;
}

#define VARIANT(name, kind)                                     \
	static inline void name##_op(struct ct_worker *w)       \
	{                                                       \
		one_check(w, kind);                             \
	}                                                       \
	CT_LOOP(name##_loop, name##_op)

VARIANT(before, BEFORE)
VARIANT(own_line, OWN_LINE)
VARIANT(after, AFTER)
VARIANT(guarded, GUARDED)

static void teardown(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (s) {
		free(s->overlay);
		free(s->task);
	}
	free(s);
}

static int setup(struct ct_run *run)
{
	struct shared *s = ct_alloc(sizeof(*s));

	run->shared = s;
	if (!s)
		return ct_fail(run, "out of memory");
	s->n = run->threads;
	s->overlay = ct_alloc(s->n * sizeof(*s->overlay));
	s->task = ct_alloc(s->n * sizeof(*s->task));
	if (!s->overlay || !s->task)
		return ct_fail(run, "out of memory");
	for (uint32_t i = 0; i < s->n; i++) {
		struct overlay *overlay = &s->overlay[i];
		struct task *task = &s->task[i];

		/* Anybody may read the overlay's file; below it is root's. */
		overlay->upper = (struct inode){ 1000, 1000, 0644 };
		overlay->below = (struct inode){ 0, 0, 0400 };
		overlay->creator.cap_effective = CAP_ANY_FILE;
		atomic_store(&overlay->creator.usage, 1);
		atomic_store(&overlay->creator.usage_apart, 1);
		task->own.fsuid = task->own.uid = 2000 + i;
		task->own.fsgid = task->own.gid = 2000 + i;
		atomic_store(&task->own.usage, 1);
		atomic_store(&task->cred, &task->own);
	}
	return 0;
}

/*
 * Each override had its revert, except where the hand-written one was told to
 * forget it; what was forgotten is still counted; nobody was refused.
 */
static int check_kind(struct ct_run *run, enum kind kind)
{
	struct shared *s = run->shared;
	const bool counted = kind == BEFORE || kind == OWN_LINE;
	const uint64_t unpaired = ct_total(run, UNPAIRED);
	const uint64_t forgotten = kind == GUARDED ? 0 : ct_total(run, EARLY);
	const uint64_t atomics =
		counted ? 2 * ct_total(run, -1) - forgotten : 0;
	uint64_t usage = 0;

	if (unpaired != forgotten)
		return ct_fail(run, "%" PRIu64 " overrides without a revert, %" PRIu64
				    " were planted", unpaired, forgotten);
	for (uint32_t i = 0; i < s->n; i++) {
		struct cred *own = &s->task[i].own;

		usage += atomic_load(usage_of(&s->overlay[i].creator, kind));
		if (!forgotten && atomic_load(&s->task[i].cred) != own)
			return ct_fail(run, "task %" PRIu32 " went home in borrowed credentials",
				       i);
	}
	if (usage != s->n + (counted ? forgotten : 0))
		return ct_fail(run, "the counts say %" PRIu64 " references, %" PRIu64
				    " are expected", usage,
			       s->n + (counted ? forgotten : 0));
	if (ct_total(run, ATOMIC) != atomics)
		return ct_fail(run, "%" PRIu64 " atomic operations, %" PRIu64 " expected",
			       ct_total(run, ATOMIC), atomics);
	if (ct_total(run, DENIED))
		return ct_fail(run, "%" PRIu64 " operations were refused",
			       ct_total(run, DENIED));
	return 0;
}

#define CHECK(name, kind)                             \
	static int name##_check(struct ct_run *run)   \
	{                                             \
		return check_kind(run, kind);         \
	}

CHECK(before, BEFORE)
CHECK(own_line, OWN_LINE)
CHECK(after, AFTER)
CHECK(guarded, GUARDED)

static const struct ct_param params[] = {
	[PARAM_MOUNTS] = { "mounts", "",
			   "0 a mount for each thread, 1 one mount for all",
			   MOUNT_SHARED, MOUNT_EACH, MOUNT_SHARED },
	[PARAM_EARLY] = { "early", "operations",
			  "one in so many returns early; 0 none does", 0, 0,
			  1000000000 },
};

static const struct ct_counter counters[] = {
	[ATOMIC] = { "atomic", "atomic operations on a mounter's count" },
	[UNPAIRED] = { "unpaired", "overrides that no revert followed" },
	[EARLY] = { "early", "operations that returned early" },
	[BORROWED] = { "borrowed", "operations begun in borrowed credentials" },
	[DENIED] = { "denied", "operations that were refused" },
};

static const struct ct_variant variants[] = {
	{ "before", "count a reference on the credentials", setup,
	  before_loop, before_check, teardown },
	{ "own-line", "count it on a cache line of its own", setup,
	  own_line_loop, own_line_check, teardown },
	{ "after", "count nothing: the mount keeps them alive", setup,
	  after_loop, after_check, teardown },
	{ "guarded", "count nothing, and revert when the scope ends", setup,
	  guarded_loop, guarded_check, teardown },
};

#define AT(type, member, label, kind)                                     \
	{ #type, label, kind, offsetof(struct type, member),              \
	  sizeof(((struct type *)0)->member) }

static const struct ct_field fields[] = {
	AT(cred, usage, "usage", "count"),
	AT(cred, uid, "uid", "other"),
	AT(cred, gid, "gid", "other"),
	AT(cred, suid, "suid", "other"),
	AT(cred, sgid, "sgid", "other"),
	AT(cred, euid, "euid", "other"),
	AT(cred, egid, "egid", "other"),
	AT(cred, fsuid, "fsuid", "check"),
	AT(cred, fsgid, "fsgid", "check"),
	AT(cred, cap_effective, "cap_eff", "check"),
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "overlay-creds",
	 .summary = "check permissions with the mounter's credentials",
	 .op = "one permission check, with one override and one revert",
	 .min_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters),
	 CT_TABLE(phases), CT_TABLE(fields))
