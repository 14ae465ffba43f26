/* SPDX-License-Identifier: MIT */
/*
 * open_creat_unlazy.c - every open takes a reference on the root directory.
 *
 * The bug: a path walk starts in "RCU walk", which writes nothing: it reads
 * each dentry and remembers its sequence count. open(O_CREAT) cannot stay in
 * that mode, because it will take the directory's lock. So it "unlazies":
 * it takes real references on where it stands and checks that nothing has
 * changed. It then also takes one on the root directory, in case the last
 * name is an absolute symlink, and drops it a moment later. All opens of the
 * whole system, on whatever file system, share that one count.
 *
 * The hypothesis: threads that open files on mounts of their own share
 * nothing but the root's count, and it is what limits them.
 *
 * Variants:
 *   before        unlazy takes the current directory and the root.
 *   after         the root is forgotten first: only the directory is taken.
 *                 An absolute symlink met later has to fetch the root again.
 *   lookup-first  what 6.12 does: look for the file in RCU walk first and
 *                 unlazy, as "before" does, only if it must be created.
 *
 * The operation is an open and a close of /mK/d0/.../file, where K is the
 * thread and mK the mount of its own. What stays shared is what a real
 * system shares: the root dentry, mount_lock, and, if asked for, fs_struct.
 *
 * What stands in for what: rename, umount and chroot of others are single
 * writes to the counts that a walk checks ("mounts", "chroots"); nothing is
 * freed while threads run, so rcu_read_lock() has nothing to do.
 *
 * Left out: permissions, "..", revalidation, references of symlink bodies
 * and of audit, the second reference of struct file, rename_lock; the inode
 * is part of its dentry, the cache holds every name (no file system below),
 * and a mountpoint knows its mount (the hash table is another case). The
 * lockref has a line of its own, so that the false sharing of yet another
 * case does not mix in.
 */
#include "../harness.h"
#include "../lockref.h"
#include "../locks.h"

#define RETRIES 100 /* compare-and-exchange attempts, as in lib/lockref.c */
#define NAME_BYTES 16
#define PATH_BYTES 256
#define MAX_LINKS 40 /* symlinks in one walk, as in the kernel */

enum {
	PARAM_COMPONENTS,
	PARAM_SYMLINKS,
	PARAM_WORK,
	PARAM_CREAT,
	PARAM_RELATIVE,
	PARAM_FRESH,
	PARAM_SHARED_FS,
	PARAM_MOUNTS,
	PARAM_CHROOTS,
};
enum {
	ROOT_REFS,
	OWN_REFS,
	MOUNT_REFS,
	FS_LOCKS,
	RETRIED,
	SLOW,
	UNLAZIED,
	STALE_WALKS,
	LINKS,
	CREATED,
	TWO_ROOTS,
};

enum rule { BEFORE, AFTER, LOOKUP_FIRST };
enum kind { DIR, FILE_, LINK };
/* How a step of a walk ends; STALE: a count has moved, start again. */
enum result { FOUND, STALE, MISSING, LOOP };

struct dentry {
	/* What RCU walk reads; nobody writes here while threads run. */
	_Alignas(CT_LINE) _Atomic uint32_t seq;
	uint32_t hash;
	uint32_t len;
	enum kind kind;
	char name[NAME_BYTES];
	struct dentry *parent;
	struct mount *mounted; /* on this directory */
	const char *target;    /* of a symlink */
	struct dentry *_Atomic next; /* in its hash chain */

	_Alignas(CT_LINE) union lockref ref;
	_Alignas(CT_LINE) _Atomic uint32_t rwsem; /* the directory's lock */
};

/* A mount's references are counted per CPU: they never cross. */
struct mount_count {
	_Alignas(CT_LINE) int64_t n;
};

struct mount {
	struct dentry *root;
	struct mount_count *count; /* one for each thread */
};

struct path {
	struct mount *mnt;
	struct dentry *dentry;
};

/* What the threads of one process share: here, the root directory. */
struct fs {
	_Alignas(CT_LINE) _Atomic uint32_t lock;
	_Atomic uint32_t seq;
	struct mount *_Atomic root_mnt;
	struct dentry *_Atomic root_dentry;
};

struct chain {
	_Alignas(CT_LINE) struct dentry *_Atomic first;
	_Atomic uint32_t lock;
};

/* What a thread opens. */
struct task {
	struct path dirfd; /* the directory that holds the file */
	struct dentry *file, *spare;
	char path[PATH_BYTES], fresh[PATH_BYTES];
	char (*targets)[PATH_BYTES];
};

struct shared {
	_Alignas(CT_LINE) _Atomic uint32_t mount_seq; /* mount_lock's */
	_Alignas(CT_LINE) _Atomic uint32_t mount_lock;
	_Alignas(CT_LINE) struct dentry *root;
	struct mount *mounts; /* 0 and 1: the root, twice; 2 + K: thread K's */
	uint32_t n_mounts;
	struct mount_count *counts;
	struct dentry *dentries;
	uint32_t n_dentries, max_dentries;
	struct chain *chains;
	uint32_t chain_mask;
	struct fs *fs;
	struct task *tasks;
	struct lock_node *nodes;
};

/* The kernel's struct nameidata. */
struct walk {
	struct ct_worker *w;
	struct shared *s;
	struct fs *fs;
	struct path path, root;
	uint32_t seq, root_seq, m_seq;
	bool rcu;
	bool root_grabbed;
	struct mount *first_root;
	const char *last;
	uint32_t last_len, last_hash;
	uint32_t links;
};

_Static_assert(offsetof(struct dentry, ref) >= CT_LINE &&
		       offsetof(struct dentry, rwsem) >=
			       offsetof(struct dentry, ref) + CT_LINE,
	       "readers, references and the lock have lines of their own");

/* Sequence counts: a writer makes them odd, writes, makes them even. */

static inline uint32_t seq_begin(const _Atomic uint32_t *seq)
{
	/* An odd count, rounded down, cannot be found again later. */
	return atomic_load_explicit(seq, memory_order_acquire) & ~1u;
}

static inline bool seq_retry(const _Atomic uint32_t *seq, uint32_t start)
{
#ifndef __SANITIZE_THREAD__ /* which knows no fences; it sees atomics only */
	atomic_thread_fence(memory_order_acquire);
#endif
	return atomic_load_explicit(seq, memory_order_relaxed) != start;
}

static inline void seq_write(_Atomic uint32_t *seq)
{
	atomic_fetch_add_explicit(seq, 1, memory_order_acq_rel);
}

/* References. */

static void lockref_add(struct ct_worker *w, union lockref *ref, uint32_t delta)
{
	struct shared *s = w->shared;
	int retries = RETRIES;
	union lockref_value old, new;

	old.whole = atomic_load_explicit(&ref->whole, memory_order_relaxed);
	while (!old.lock && retries--) {
		new = old;
		new.count += delta;
		if (atomic_compare_exchange_strong_explicit(
			    &ref->whole, &old.whole, new.whole,
			    memory_order_acq_rel, memory_order_relaxed))
			return;
		w->count[RETRIED]++;
	}
	w->count[SLOW]++;
	lock_acquire(LOCK_QUEUED, &ref->lock, s->nodes, w->id);
	atomic_store_explicit(&ref->count,
			      atomic_load_explicit(&ref->count,
						   memory_order_relaxed) + delta,
			      memory_order_relaxed);
	lock_release(LOCK_QUEUED, &ref->lock);
}

static void dentry_get(struct ct_worker *w, struct dentry *d)
{
	struct shared *s = w->shared;

	w->count[d == s->root ? ROOT_REFS : OWN_REFS]++;
	lockref_add(w, &d->ref, 1);
}

static void dentry_put(struct ct_worker *w, struct dentry *d)
{
	lockref_add(w, &d->ref, -1u);
}

static void mount_get(struct ct_worker *w, struct mount *mnt)
{
	w->count[MOUNT_REFS]++;
	mnt->count[w->id].n++;
}

static void mount_put(struct ct_worker *w, struct mount *mnt)
{
	mnt->count[w->id].n--;
}

static void path_get(struct ct_worker *w, const struct path *path)
{
	mount_get(w, path->mnt);
	dentry_get(w, path->dentry);
}

static void path_put(struct ct_worker *w, struct path *path)
{
	if (!path->mnt)
		return;
	dentry_put(w, path->dentry);
	mount_put(w, path->mnt);
	*path = (struct path){ NULL, NULL };
}

/* The cache of names. */

static inline uint32_t name_hash(const char *name, uint32_t len)
{
	uint32_t hash = 2166136261u;

	for (uint32_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)name[i]) * 16777619u;
	return hash;
}

static inline struct chain *chain_of(const struct shared *s,
				     const struct dentry *parent, uint32_t hash)
{
	/* by the parent's place in the array: the same on every run */
	const uint32_t nth = (uint32_t)(parent - s->dentries);

	return &s->chains[(hash ^ (nth * 2654435761u) ^ (hash >> 15)) &
			  s->chain_mask];
}

/* Finds a name without writing; *seq is the count to check it against. */
static struct dentry *lookup_rcu(const struct shared *s,
				 const struct dentry *parent, const char *name,
				 uint32_t len, uint32_t hash, uint32_t *seq)
{
	struct dentry *d = atomic_load_explicit(
		&chain_of(s, parent, hash)->first, memory_order_acquire);

	for (; d; d = atomic_load_explicit(&d->next, memory_order_acquire)) {
		*seq = seq_begin(&d->seq);
		if (d->hash == hash && d->parent == parent && d->len == len &&
		    !memcmp(d->name, name, len))
			return d;
	}
	return NULL;
}

/* As above, but with a reference. */
static struct dentry *lookup_ref(struct ct_worker *w,
				 const struct dentry *parent, const char *name,
				 uint32_t len, uint32_t hash)
{
	for (;;) {
		uint32_t seq;
		struct dentry *d = lookup_rcu(w->shared, parent, name, len,
					      hash, &seq);

		if (!d)
			return NULL;
		dentry_get(w, d);
		if (!seq_retry(&d->seq, seq))
			return d;
		dentry_put(w, d);
	}
}

static void hash_insert(struct shared *s, struct dentry *d)
{
	struct chain *chain = chain_of(s, d->parent, d->hash);

	tas_acquire(&chain->lock);
	atomic_store_explicit(&d->next,
			      atomic_load_explicit(&chain->first,
						   memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&chain->first, d, memory_order_release);
	tas_release(&chain->lock);
}

static void hash_remove(struct shared *s, struct dentry *d)
{
	struct chain *chain = chain_of(s, d->parent, d->hash);
	struct dentry *_Atomic *at = &chain->first;

	tas_acquire(&chain->lock);
	while (atomic_load_explicit(at, memory_order_relaxed) != d)
		at = &atomic_load_explicit(at, memory_order_relaxed)->next;
	atomic_store_explicit(at,
			      atomic_load_explicit(&d->next,
						   memory_order_relaxed),
			      memory_order_release);
	tas_release(&chain->lock);
}

/* The walk. */

static void set_root(struct walk *k)
{
	struct fs *fs = k->fs;
	struct path *root = &k->root;
	uint32_t seq;

	if (k->rcu) {
		do {
			seq = seq_begin(&fs->seq);
			root->mnt = atomic_load_explicit(&fs->root_mnt,
							 memory_order_acquire);
			root->dentry = atomic_load_explicit(
				&fs->root_dentry, memory_order_acquire);
			k->root_seq = seq_begin(&root->dentry->seq);
		} while (seq_retry(&fs->seq, seq));
	} else {
		k->w->count[FS_LOCKS]++;
		tas_acquire(&fs->lock);
		root->mnt = atomic_load_explicit(&fs->root_mnt,
						 memory_order_relaxed);
		root->dentry = atomic_load_explicit(&fs->root_dentry,
						    memory_order_relaxed);
		path_get(k->w, root);
		tas_release(&fs->lock);
		k->root_grabbed = true;
	}
	if (!k->first_root)
		k->first_root = root->mnt;
	else if (k->first_root != root->mnt)
		k->w->count[TWO_ROOTS]++; /* ".../" and "/..." differ */
}

static enum result jump_root(struct walk *k)
{
	if (!k->root.mnt)
		set_root(k);
	if (k->rcu) {
		k->path = k->root;
		k->seq = k->root_seq;
		return seq_retry(&k->root.dentry->seq, k->seq) ? STALE : FOUND;
	}
	path_put(k->w, &k->path);
	k->path = k->root;
	path_get(k->w, &k->path);
	return FOUND;
}

static enum result path_init(struct walk *k, struct ct_worker *w,
			     struct fs *fs, const struct path *dirfd,
			     const char *name, bool rcu)
{
	struct shared *s = w->shared;

	*k = (struct walk){ .w = w, .s = s, .fs = fs, .rcu = rcu };
	k->m_seq = seq_begin(&s->mount_seq);
	if (*name == '/')
		return jump_root(k);
	k->path = *dirfd;
	if (rcu)
		k->seq = seq_begin(&k->path.dentry->seq);
	else
		path_get(w, &k->path);
	return FOUND;
}

/* A reference on a path that was found without: is it still the same? */
static bool legitimize_path(struct walk *k, const struct path *path,
			    uint32_t seq)
{
	mount_get(k->w, path->mnt);
	if (!seq_retry(&k->s->mount_seq, k->m_seq)) {
		dentry_get(k->w, path->dentry);
		if (!seq_retry(&path->dentry->seq, seq))
			return true;
		dentry_put(k->w, path->dentry);
	}
	mount_put(k->w, path->mnt);
	return false;
}

static bool try_to_unlazy(struct walk *k)
{
	k->w->count[UNLAZIED]++;
	if (!legitimize_path(k, &k->path, k->seq))
		return false;
	if (k->root.mnt) {
		if (!legitimize_path(k, &k->root, k->root_seq)) {
			dentry_put(k->w, k->path.dentry);
			mount_put(k->w, k->path.mnt);
			return false;
		}
		k->root_grabbed = true;
	}
	k->rcu = false;
	return true;
}

static void terminate_walk(struct walk *k)
{
	if (k->rcu)
		return; /* nothing was taken */
	path_put(k->w, &k->path);
	if (k->root_grabbed)
		path_put(k->w, &k->root);
}

/* Look the last parsed name up where the walk stands. */
static enum result lookup(struct walk *k, struct dentry **found, uint32_t *seq)
{
	struct dentry *parent = k->path.dentry;

	if (!k->rcu) {
		*found = lookup_ref(k->w, parent, k->last, k->last_len,
				    k->last_hash);
		return *found ? FOUND : MISSING;
	}
	*found = lookup_rcu(k->s, parent, k->last, k->last_len, k->last_hash,
			    seq);
	if (seq_retry(&parent->seq, k->seq))
		return STALE;
	return *found ? FOUND : MISSING;
}

/*
 * Go on to d, into what is mounted there, or, if d is a symlink, to where its
 * target starts: *link is then what is left to walk. Takes over the reference
 * on d that ref walk holds.
 */
static enum result step_into(struct walk *k, struct dentry *d, uint32_t seq,
			     const char **link)
{
	struct path next = { k->path.mnt, d };

	*link = NULL;
	while (next.dentry->mounted) {
		struct mount *mnt = next.dentry->mounted;

		if (!k->rcu) {
			dentry_get(k->w, mnt->root);
			if (next.mnt != k->path.mnt)
				mount_put(k->w, next.mnt);
			mount_get(k->w, mnt);
			dentry_put(k->w, next.dentry);
		}
		next = (struct path){ mnt, mnt->root };
		if (k->rcu) {
			seq = seq_begin(&next.dentry->seq);
			if (seq_retry(&k->s->mount_seq, k->m_seq))
				return STALE;
		}
	}
	if (next.dentry->kind == LINK) {
		const char *target = next.dentry->target;

		if (k->rcu && seq_retry(&next.dentry->seq, seq))
			return STALE;
		if (!k->rcu)
			dentry_put(k->w, next.dentry);
		k->w->count[LINKS]++;
		if (++k->links > MAX_LINKS)
			return LOOP;
		if (*target == '/') {
			const enum result r = jump_root(k);

			if (r != FOUND)
				return r;
			while (*target == '/')
				target++;
		}
		*link = *target ? target : NULL;
		return FOUND;
	}
	if (!k->rcu) {
		dentry_put(k->w, k->path.dentry);
		if (next.mnt != k->path.mnt)
			mount_put(k->w, k->path.mnt);
	}
	k->path = next;
	k->seq = seq;
	return FOUND;
}

/* Walk all names but the last one, which is left in k->last. */
static enum result link_path_walk(struct walk *k, const char *name)
{
	const char *stack[MAX_LINKS + 1];
	uint32_t depth = 0;

	while (*name == '/')
		name++;
	for (;;) {
		const char *link, *rest = name;
		struct dentry *d;
		enum result r;
		uint32_t seq = 0;

		while (*rest && *rest != '/')
			rest++;
		k->last = name;
		k->last_len = (uint32_t)(rest - name);
		k->last_hash = name_hash(name, k->last_len);
		while (*rest == '/')
			rest++;
		if (!*rest) {
			if (!depth)
				return k->last_len ? FOUND : MISSING;
			rest = stack[--depth];
		}
		if (k->path.dentry->kind != DIR)
			return MISSING;
		r = lookup(k, &d, &seq);
		if (r == FOUND)
			r = step_into(k, d, seq, &link);
		if (r != FOUND)
			return r;
		if (link)
			stack[depth++] = rest;
		name = link ? link : rest;
	}
}

/* Find the last name, or make it; spare is what a new file is made of. */
static enum result open_last_lookups(struct walk *k, enum rule rule, bool creat,
				     struct dentry *spare, const char **link)
{
	struct dentry *dir = k->path.dentry, *d = NULL;
	enum result r = MISSING;
	uint32_t seq = 0;

	if (dir->kind != DIR)
		return MISSING;
	if (!creat || rule == LOOKUP_FIRST) {
		r = lookup(k, &d, &seq);
		if (r == STALE || (r == MISSING && !creat))
			return r;
	}
	if (r == MISSING) {
		if (k->rcu) {
			/* The patch: nobody needs the root now. */
			if (rule == AFTER)
				k->root = (struct path){ NULL, NULL };
			if (!try_to_unlazy(k))
				return STALE;
		}
		tas_acquire(&dir->rwsem);
		r = lookup(k, &d, &seq);
		if (r == MISSING && spare && spare->parent == dir) {
			k->w->count[CREATED]++;
			d = spare;
			dentry_get(k->w, d);
			hash_insert(k->s, d);
			r = FOUND;
		}
		tas_release(&dir->rwsem);
		if (r != FOUND)
			return r;
	}
	return step_into(k, d, seq, link);
}

/* One attempt; on FOUND *file holds references of its own. */
static enum result path_openat(struct walk *k, enum rule rule, bool creat,
			       const char *name, struct dentry *spare,
			       struct path *file)
{
	enum result r = FOUND;

	while (name && r == FOUND) {
		r = link_path_walk(k, name);
		if (r == FOUND)
			r = open_last_lookups(k, rule, creat, spare, &name);
	}
	if (r == FOUND && k->rcu) {
		/* complete_walk() has always forgotten the root. */
		k->root = (struct path){ NULL, NULL };
		if (!try_to_unlazy(k))
			r = STALE;
	}
	if (r == FOUND) {
		*file = k->path;
		k->path = (struct path){ NULL, NULL };
	}
	terminate_walk(k);
	return r;
}

static enum result do_open(struct ct_worker *w, struct fs *fs, enum rule rule,
			   bool creat, const struct path *dirfd,
			   const char *name, struct dentry *spare,
			   struct path *file)
{
	bool rcu = true;

	for (;;) {
		struct walk k;
		enum result r = path_init(&k, w, fs, dirfd, name, rcu);

		if (r == FOUND)
			r = path_openat(&k, rule, creat, name, spare, file);
		else
			terminate_walk(&k);
		if (r != STALE || !rcu)
			return r;
		w->count[STALE_WALKS]++;
		rcu = false;
	}
}

/* Others, who change what walks check. */

static void somebody_mounts(struct shared *s)
{
	tas_acquire(&s->mount_lock);
	seq_write(&s->mount_seq);
	seq_write(&s->mount_seq);
	tas_release(&s->mount_lock);
}

static void somebody_chroots(struct shared *s, struct fs *fs)
{
	struct mount *now;

	tas_acquire(&fs->lock);
	seq_write(&fs->seq);
	now = atomic_load_explicit(&fs->root_mnt, memory_order_relaxed);
	now = &s->mounts[now == &s->mounts[0]];
	atomic_store_explicit(&fs->root_mnt, now, memory_order_release);
	atomic_store_explicit(&fs->root_dentry, now->root, memory_order_release);
	seq_write(&fs->seq);
	tas_release(&fs->lock);
}

static bool is_due(struct ct_worker *w, int param, int local)
{
	if (!w->param[param] || ++w->local[local] < (uint64_t)w->param[param])
		return false;
	w->local[local] = 0;
	return true;
}

static inline void open_close(struct ct_worker *w, enum rule rule)
{
	struct shared *s = w->shared;
	struct task *t = &s->tasks[w->id];
	struct fs *fs = &s->fs[w->param[PARAM_SHARED_FS] ? 0 : w->id];
	const bool fresh = is_due(w, PARAM_FRESH, 0);
	struct dentry *wanted = fresh ? t->spare : t->file;
	const char *name = fresh ? t->fresh : t->path;
	struct path file = { NULL, NULL };
	enum result r = do_open(w, fs, rule, w->param[PARAM_CREAT] || fresh,
				&t->dirfd, name, t->spare, &file);

	if (r != FOUND || file.dentry != wanted ||
	    file.mnt != t->dirfd.mnt) {
		ct_fail(w->run, "thread %u opened %s and got %s", w->id, name,
			r == FOUND ? "another file" : "no file");
		if (r == FOUND)
			path_put(w, &file);
		return;
	}
	ct_delay(w, w->param[PARAM_WORK]);
	if (fresh) {
		tas_acquire(&t->dirfd.dentry->rwsem);
		hash_remove(s, t->spare);
		tas_release(&t->dirfd.dentry->rwsem);
	}
	path_put(w, &file);
	if (is_due(w, PARAM_MOUNTS, 1))
		somebody_mounts(s);
	if (is_due(w, PARAM_CHROOTS, 2))
		somebody_chroots(s, fs);
}

static inline void before_op(struct ct_worker *w)
{
	open_close(w, BEFORE);
}

static inline void after_op(struct ct_worker *w)
{
	open_close(w, AFTER);
}

static inline void lookup_first_op(struct ct_worker *w)
{
	open_close(w, LOOKUP_FIRST);
}

CT_LOOP(before_loop, before_op)
CT_LOOP(after_loop, after_op)
CT_LOOP(lookup_first_loop, lookup_first_op)

/* Building and taking down. */

static void shared_free(struct shared *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->tasks && i + 2 < s->n_mounts; i++)
		free(s->tasks[i].targets);
	free(s->nodes);
	free(s->tasks);
	free(s->fs);
	free(s->chains);
	free(s->dentries);
	free(s->counts);
	free(s->mounts);
	free(s);
}

static struct dentry *dentry_new(struct shared *s, struct dentry *parent,
				 const char *name, enum kind kind)
{
	struct dentry *d = &s->dentries[s->n_dentries++];

	d->parent = parent;
	d->kind = kind;
	d->len = (uint32_t)snprintf(d->name, sizeof(d->name), "%s", name);
	d->hash = name_hash(d->name, d->len);
	atomic_store(&d->ref.count, 1);
	return d;
}

static struct dentry *dentry_add(struct shared *s, struct dentry *parent,
				 const char *name, enum kind kind)
{
	struct dentry *d = dentry_new(s, parent, name, kind);

	hash_insert(s, d);
	return d;
}

/* Mount number nth, with a root directory of its own, on a directory. */
static struct mount *mount_add(struct shared *s, uint32_t nth, struct dentry *on)
{
	struct mount *mnt = &s->mounts[nth];

	mnt->root = dentry_new(s, NULL, "", DIR);
	on->mounted = mnt;
	return mnt;
}

/* A name space with an empty root, room for mounts and for dentries. */
static struct shared *shared_new(uint32_t threads, uint32_t mounts,
				 uint32_t dentries)
{
	struct shared *s = ct_alloc(sizeof(*s));
	uint32_t chains = 64;

	if (!s)
		return NULL;
	while (chains < 2 * dentries)
		chains *= 2;
	s->n_mounts = mounts + 2;
	s->chain_mask = chains - 1;
	s->max_dentries = dentries + 1;
	s->mounts = ct_alloc(s->n_mounts * sizeof(*s->mounts));
	s->counts = ct_alloc((size_t)s->n_mounts * threads * sizeof(*s->counts));
	s->dentries = ct_alloc(s->max_dentries * sizeof(*s->dentries));
	s->chains = ct_alloc(chains * sizeof(*s->chains));
	s->fs = ct_alloc(threads * sizeof(*s->fs));
	s->tasks = ct_alloc(s->n_mounts * sizeof(*s->tasks));
	s->nodes = ct_alloc(threads * sizeof(*s->nodes));
	if (!s->mounts || !s->counts || !s->dentries || !s->chains || !s->fs ||
	    !s->tasks || !s->nodes) {
		shared_free(s);
		return NULL;
	}
	for (uint32_t i = 0; i < s->n_mounts; i++)
		s->mounts[i].count = &s->counts[(size_t)i * threads];
	s->root = dentry_new(s, NULL, "", DIR);
	/* The root is mounted twice, so that a chroot changes something. */
	s->mounts[0].root = s->mounts[1].root = s->root;
	for (uint32_t i = 0; i < threads; i++) {
		atomic_store(&s->fs[i].root_mnt, &s->mounts[0]);
		atomic_store(&s->fs[i].root_dentry, s->root);
	}
	return s;
}

static int task_new(struct ct_run *run, struct shared *s, uint32_t id)
{
	struct task *t = &s->tasks[id];
	const int64_t links = run->param[PARAM_SYMLINKS];
	const bool relative = run->param[PARAM_RELATIVE];
	char name[NAME_BYTES], dir[PATH_BYTES / 2];
	struct dentry *d;
	int at;

	t->targets = calloc((size_t)links + 1, sizeof(*t->targets));
	if (!t->targets)
		return ct_fail(run, "out of memory");
	at = snprintf(name, sizeof(name), "m%u", id);
	snprintf(dir, sizeof(dir), "/%s/", name);
	d = dentry_add(s, s->root, name, DIR);
	t->dirfd.mnt = mount_add(s, 2 + id, d);
	d = t->dirfd.mnt->root;
	at += 2;
	for (int64_t i = 0; i < run->param[PARAM_COMPONENTS]; i++) {
		snprintf(name, sizeof(name), "d%d", (int)i);
		d = dentry_add(s, d, name, DIR);
		at += snprintf(dir + at, sizeof(dir) - (size_t)at, "%s/", name);
	}
	t->dirfd.dentry = d;
	t->file = dentry_add(s, d, "file", FILE_);
	t->spare = dentry_new(s, d, "new", FILE_);
	/* link 0 leads to link 1, and so on, and the last one to the file */
	for (int64_t i = links; i >= 0; i--) {
		if (i == links)
			snprintf(name, sizeof(name), "file");
		else
			snprintf(name, sizeof(name), "l%d", (int)i);
		snprintf(t->targets[i], PATH_BYTES, "%s%s", dir, name);
		if (i < links)
			dentry_add(s, d, name, LINK)->target = t->targets[i + 1];
	}
	snprintf(t->path, PATH_BYTES, "%s%s", relative ? "" : dir, name);
	snprintf(t->fresh, PATH_BYTES, "%snew", relative ? "" : dir);
	return 0;
}

static int setup(struct ct_run *run)
{
	const uint32_t each = 4 + (uint32_t)run->param[PARAM_COMPONENTS] +
			      (uint32_t)run->param[PARAM_SYMLINKS];
	struct shared *s = shared_new(run->threads, run->threads,
				      run->threads * each);

	run->shared = s;
	if (!s)
		return ct_fail(run, "out of memory");
	for (uint32_t i = 0; i < run->threads; i++)
		if (task_new(run, s, i))
			return -1;
	return 0;
}

/* Every reference was dropped: dentries are back at 1, mounts at 0. */
static int check_references(struct ct_run *run, const struct shared *s)
{
	for (uint32_t i = 0; i < s->n_dentries; i++) {
		const uint32_t n = atomic_load(&s->dentries[i].ref.count);

		if (n != 1 || atomic_load(&s->dentries[i].ref.lock))
			return ct_fail(run, "the count of \"%s\" is %" PRIu32
					    ", not 1: references were lost or kept",
				       s->dentries[i].parent ?
					       s->dentries[i].name : "/", n);
	}
	for (uint32_t i = 0; i < s->n_mounts; i++) {
		int64_t sum = 0;

		for (uint32_t k = 0; k < run->threads; k++)
			sum += s->mounts[i].count[k].n;
		if (sum)
			return ct_fail(run, "mount %u has %" PRId64 " references too many",
				       i, sum);
	}
	return 0;
}

static int check(struct ct_run *run)
{
	const uint64_t ops = ct_total(run, -1);

	if (check_references(run, run->shared))
		return -1;
	/* A walk leaves RCU walk once; one that was stale has used ref walk. */
	if (ct_total(run, UNLAZIED) + ct_total(run, STALE_WALKS) < ops)
		return ct_fail(run, "some files were opened without a reference");
	return 0;
}

static void teardown(struct ct_run *run)
{
	shared_free(run->shared);
}

static const struct ct_param params[] = {
	[PARAM_COMPONENTS] = { "components", "directories",
			       "between the mount and the file", 2, 0, 16 },
	[PARAM_SYMLINKS] = { "symlinks", "links",
			     "absolute symlinks between the name and the file",
			     0, 0, 8 },
	[PARAM_WORK] = { "work", "ns", "private work while the file is open", 0,
			 0, 1000000 },
	[PARAM_CREAT] = { "creat", "", "0: open without O_CREAT", 1, 0, 1 },
	[PARAM_RELATIVE] = { "relative", "",
			     "1: openat() from the file's directory", 0, 0, 1 },
	[PARAM_FRESH] = { "fresh", "opens",
			  "one in so many makes a new file; 0: none does", 0, 0,
			  1000000000 },
	[PARAM_SHARED_FS] = { "shared_fs", "",
			      "1: the threads are one process", 0, 0, 1 },
	[PARAM_MOUNTS] = { "mounts", "opens",
			   "a thread mounts something once in so many; 0: never",
			   0, 0, 1000000000 },
	[PARAM_CHROOTS] = { "chroots", "opens",
			    "a thread changes the root once in so many; 0: never",
			    0, 0, 1000000000 },
};

static const struct ct_counter counters[] = {
	[ROOT_REFS] = { "root_refs", "references taken on the root dentry" },
	[OWN_REFS] = { "own_refs", "references taken on other dentries" },
	[MOUNT_REFS] = { "mount_refs", "references taken on mounts, per CPU" },
	[FS_LOCKS] = { "fs_locks", "times that fs_struct's lock was taken" },
	[RETRIED] = { "retried", "compare-and-exchanges that failed" },
	[SLOW] = { "slow", "reference changes under the lockref's lock" },
	[UNLAZIED] = { "unlazied", "times that RCU walk was left" },
	[STALE_WALKS] = { "stale", "walks started again: a seqcount had moved" },
	[LINKS] = { "links", "symlinks followed" },
	[CREATED] = { "created", "files made" },
	[TWO_ROOTS] = { "two_roots", "walks that used two different roots" },
};

static const struct ct_variant variants[] = {
	{ "before", "unlazy takes the directory and the root", setup,
	  before_loop, check, teardown },
	{ "after", "unlazy takes the directory only", setup, after_loop, check,
	  teardown },
	{ "lookup-first", "no unlazy for a file that exists", setup,
	  lookup_first_loop, check, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "open-creat-unlazy",
	 .summary = "open and close files on mounts of one's own",
	 .op = "one open with O_CREAT and one close",
	 .min_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters), CT_TABLE(phases))
