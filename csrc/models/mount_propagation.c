/* SPDX-License-Identifier: MIT */
/*
 * mount_propagation.c - copies of a mount that nobody ever sees.
 *
 * The bug: what is mounted on a shared mount must appear on its peers and its
 * slaves too. The old way made a copy for every one of them, linked the copies
 * to each other as the originals are linked, and then tore down those that
 * had nowhere to go, because their place does not contain the mount point. A
 * bind mount of a file that lies in a shared mount joins the peer group, and
 * contains no mount point ever. So the N-th bind makes N - 1 copies for the
 * N - 1 binds before it, and throws all of them away.
 *
 * The hypothesis: N binds allocate N(N-1)/2 mounts that do not survive their
 * own system call; knowing beforehand who will be whose master saves them all.
 *
 * Variants:
 *   before  a copy for each node, the unwanted ones torn down at the end. The
 *           walk goes to a mount's slaves before it goes to its next peer.
 *   after   a copy only where it stays. The walk goes by peer groups: all of a
 *           group, then the groups that are slaves to it.
 *
 * Why the order matters: tearing down a copy hands its slaves to a surviving
 * peer or, if there is none, to its master. So what stays is a slave to the
 * nearest group upwards in which some copy survives. Whether one survives is
 * known once the *whole* group has been seen, and that is why its slaves have
 * to wait. Then a word that is handed down the walk is enough: "whose slave
 * would a copy be here?" It changes where a group makes a copy and stays as it
 * is where a group makes none.
 *
 * The operation is the report's recipe from scratch: "binds" bind mounts of
 * one file in a shared mount. The latency that is reported is that of the
 * mounts alone, without the world's building and clearing away.
 *
 * What stands in for what: malloc() stands in for the kernel's allocation of
 * a mount, which is dearer (a slab object, per-CPU counters, an id). The
 * kernel needs no word in each mount for the walk: it marks masters with a
 * flag and finds its way by the mounts that it has just made.
 *
 * Left out: copying trees of several mounts, unbindable mounts, moving,
 * unmounting with propagation, the mount hash, locks, namespaces (a receiver
 * is a slave mount that stands for another namespace's), and what happens
 * where something is mounted in the place already: here it becomes a second
 * mount in the same place.
 */
#include "../harness.h"

enum { PARAM_BINDS, PARAM_SHAPE, PARAM_RECEIVERS };
enum { MOUNTS, ALLOCATED, WASTED, KEPT, VISITS, HANDED_ON };
enum {
	SHAPE_RECIPE,      /* one file of the shared mount, bound onto others */
	SHAPE_SHARED_ROOT, /* the same where the root is shared, too */
	SHAPE_ITSELF,      /* each file bound onto itself */
	SHAPE_OUTSIDE,     /* a file of a private mount, bound onto others */
	SHAPES
};

/* 5000 binds without receivers: a few seconds on a slow machine. */
#define MAX_VISITS 12500000

/* A directory or file; all that counts here is what lies below what. */
struct dentry {
	const struct dentry *parent;
};

struct mount {
	struct mount *parent;            /* what it is mounted on, */
	const struct dentry *mountpoint; /* and where; */
	const struct dentry *root;       /* what of the file system it shows */
	uint32_t group;                  /* 0: not shared */
	bool live;                       /* userland can see it */
	struct mount *next_peer, *prev_peer;
	struct mount *master;            /* one of those it gets mounts from */
	struct mount *slaves;
	struct mount *next_slave, *prev_slave; /* in master->slaves, no ring */

	/* For the walk that is under way. */
	struct mount *copy;  /* before: what was made for this node */
	struct mount *from;  /* after: whose slave a copy would be here */
	struct mount *queue;

	struct mount *next, *prev; /* all that is live, or the new copies */
	uint64_t id;               /* for tests that compare trees */
};

struct world {
	struct mount *mounts; /* all that is live */
	uint32_t groups;      /* the last group number given out */
	uint64_t *count;      /* of the worker */
};

typedef int propagate(struct world *world, struct mount *dest,
		      const struct dentry *mountpoint, struct mount *source,
		      struct mount **copies);

/* How a new mount is linked to the one that it is made from. */
enum kin { PEER, SLAVE, SHARED_SLAVE };

static bool below(const struct dentry *dentry, const struct dentry *root)
{
	while (dentry && dentry != root)
		dentry = dentry->parent;
	return dentry;
}

static bool are_peers(const struct mount *a, const struct mount *b)
{
	return a == b || (a->group && a->group == b->group);
}

static void list_add(struct mount **head, struct mount *m)
{
	m->prev = NULL;
	m->next = *head;
	if (m->next)
		m->next->prev = m;
	*head = m;
}

static void list_del(struct mount **head, struct mount *m)
{
	*(m->prev ? &m->prev->next : head) = m->next;
	if (m->next)
		m->next->prev = m->prev;
}

/* Into the ring of peers, behind an old member. */
static void peers_add(struct mount *m, struct mount *old)
{
	m->next_peer = old->next_peer;
	m->prev_peer = old;
	m->next_peer->prev_peer = m;
	old->next_peer = m;
}

static void peers_del(struct mount *m)
{
	m->prev_peer->next_peer = m->next_peer;
	m->next_peer->prev_peer = m->prev_peer;
	m->next_peer = m->prev_peer = m;
}

/*
 * Into the list of master's slaves: behind an old one, or in front. Peers are
 * slaves to the same mount and stand side by side in its list.
 */
static void slaves_add(struct mount *m, struct mount *master, struct mount *old)
{
	struct mount **link = old ? &old->next_slave : &master->slaves;

	m->master = master;
	m->prev_slave = old;
	m->next_slave = *link;
	if (m->next_slave)
		m->next_slave->prev_slave = m;
	*link = m;
}

static void slaves_del(struct mount *m)
{
	if (!m->master)
		return;
	*(m->prev_slave ? &m->prev_slave->next_slave : &m->master->slaves) =
		m->next_slave;
	if (m->next_slave)
		m->next_slave->prev_slave = m->prev_slave;
	m->master = m->next_slave = m->prev_slave = NULL;
}

static struct mount *mount_new(struct world *world, const struct dentry *root)
{
	struct mount *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->root = root;
	m->next_peer = m->prev_peer = m;
	world->count[ALLOCATED]++;
	return m;
}

static struct mount *mount_clone(struct world *world, struct mount *old,
				 const struct dentry *root, enum kin kin)
{
	struct mount *m = mount_new(world, root);

	if (!m)
		return NULL;
	if (kin == PEER) {
		m->group = old->group;
		if (m->group)
			peers_add(m, old);
		if (old->master)
			slaves_add(m, old->master, old);
	} else {
		if (kin == SHARED_SLAVE)
			m->group = ++world->groups;
		slaves_add(m, old, NULL);
	}
	return m;
}

/*
 * m is no longer somebody from whom others get mounts: they get them from a
 * peer of m or else from its master, if there is one.
 */
static void hand_on_slaves(struct world *world, struct mount *m)
{
	struct mount *heir = m->next_peer != m ? m->next_peer : m->master;
	struct mount *last = NULL;

	for (struct mount *s = m->slaves; s; s = s->next_slave) {
		world->count[HANDED_ON]++;
		s->master = heir;
		last = s;
	}
	if (!last)
		return;
	if (heir) {
		last->next_slave = heir->slaves;
		if (heir->slaves)
			heir->slaves->prev_slave = last;
		heir->slaves = m->slaves;
	} else {
		for (struct mount *s = m->slaves, *next; s; s = next) {
			next = s->next_slave;
			s->next_slave = s->prev_slave = NULL;
		}
	}
	m->slaves = NULL;
}

/* Out of all groups, as mount --make-private does. */
static void make_private(struct world *world, struct mount *m)
{
	hand_on_slaves(world, m);
	peers_del(m);
	slaves_del(m);
	m->group = 0;
}

static void make_shared(struct world *world, struct mount *m)
{
	if (!m->group)
		m->group = ++world->groups;
}

/* From now on m only follows those that were its peers. */
__attribute__((unused)) static void make_slave(struct world *world,
					       struct mount *m)
{
	struct mount *peer = m->next_peer;

	hand_on_slaves(world, m);
	m->group = 0;
	if (peer == m)
		return; /* a slave to whomever it was one before */
	peers_del(m);
	slaves_del(m);
	slaves_add(m, peer, NULL);
}

static void mount_free(struct world *world, struct mount *m)
{
	make_private(world, m);
	free(m);
}

static void mount_attach(struct world *world, struct mount *m,
			 struct mount *parent, const struct dentry *mountpoint)
{
	m->parent = parent;
	m->mountpoint = mountpoint;
	m->live = true;
	list_add(&world->mounts, m);
}

/* --- Copy, then discard --------------------------------------------------- */

/* The mount after m: first its slaves, then its peer or the next slave. */
static struct mount *next_node(struct mount *m, struct mount *origin)
{
	if (m->live && m->slaves)
		return m->slaves;
	for (;;) {
		if (are_peers(m, origin))
			return m->next_peer == origin ? NULL : m->next_peer;
		if (m->next_slave)
			return m->next_slave;
		m = m->master;
	}
}

/* What m's copy is made from, and how the two are to be linked. */
static struct mount *model_for(const struct mount *m, const struct mount *dest,
			       struct mount *latest, enum kin *kin)
{
	const struct mount *before = m->prev_slave;

	*kin = PEER;
	if (are_peers(m, dest))
		return latest;
	while (before && !before->live)
		before = before->prev_slave;
	if (before && are_peers(before, m))
		return before->copy;
	*kin = m->group ? SHARED_SLAVE : SLAVE;
	return m->master->copy;
}

static int propagate_before(struct world *world, struct mount *dest,
			    const struct dentry *mountpoint,
			    struct mount *source, struct mount **copies)
{
	struct mount *latest = source, *doomed = NULL;
	int error = 0;

	dest->copy = source;
	for (struct mount *m = next_node(dest, dest); m; m = next_node(m, dest)) {
		struct mount *model;
		enum kin kin;

		world->count[VISITS]++;
		if (!m->live)
			continue; /* the new mount is in a group already */
		model = model_for(m, dest, latest, &kin);
		m->copy = mount_clone(world, model, source->root, kin);
		if (!m->copy) {
			error = -1;
			break;
		}
		m->copy->parent = m;
		if (are_peers(m, dest))
			latest = m->copy;
		list_add(below(mountpoint, m->root) ? copies : &doomed, m->copy);
	}
	while (doomed) {
		struct mount *copy = doomed;

		list_del(&doomed, copy);
		mount_free(world, copy);
		world->count[WASTED]++;
	}
	return error;
}

/* --- Copy where it is needed ---------------------------------------------- */

/*
 * A copy on each member of a group that has the mount point. Returns whose
 * slave a copy would be in the groups that are slaves to this one: the last
 * copy or, if none was made, what it was for this group. NULL: no memory.
 */
static struct mount *copy_to_group(struct world *world, struct mount *first,
				   const struct mount *dest,
				   const struct dentry *mountpoint,
				   const struct dentry *root,
				   struct mount **copies)
{
	struct mount *from = first->from, *m = first;
	enum kin kin = first->group ? SHARED_SLAVE : SLAVE;

	if (are_peers(first, dest))
		kin = PEER; /* of the new mount itself, which is dest's */
	do {
		if (m == dest)
			continue;
		world->count[VISITS]++;
		if (!m->live || !below(mountpoint, m->root))
			continue;
		from = mount_clone(world, from, root, kin);
		if (!from)
			return NULL;
		from->parent = m;
		list_add(copies, from);
		kin = PEER; /* the first is a slave, the others its peers */
	} while ((m = m->next_peer) != first);
	return from;
}

/* Queue each group that is a slave to this one; returns the queue's end. */
static struct mount **queue_slaves(struct mount *first, struct mount *from,
				   struct mount **tail)
{
	struct mount *m = first;

	do {
		for (struct mount *s = m->live ? m->slaves : NULL; s;
		     s = s->next_slave) {
			if (!s->live)
				continue;
			if (s->prev_slave && are_peers(s->prev_slave, s))
				continue; /* its group is queued already */
			s->from = from;
			s->queue = NULL;
			*tail = s;
			tail = &s->queue;
		}
	} while ((m = m->next_peer) != first);
	return tail;
}

static int propagate_after(struct world *world, struct mount *dest,
			   const struct dentry *mountpoint,
			   struct mount *source, struct mount **copies)
{
	struct mount **tail = &dest->queue;

	dest->from = source;
	dest->queue = NULL;
	for (struct mount *first = dest; first; first = first->queue) {
		struct mount *from = copy_to_group(world, first, dest, mountpoint,
						   source->root, copies);

		if (!from)
			return -1;
		tail = queue_slaves(first, from, tail);
	}
	return 0;
}

/*
 * mount --bind: what "from" shows at root, on dest at mountpoint. Returns the
 * new mount, or NULL if memory has run out.
 */
static struct mount *bind_mount(struct world *world, struct mount *from,
				const struct dentry *root, struct mount *dest,
				const struct dentry *mountpoint, propagate *way)
{
	struct mount *copies = NULL;
	struct mount *source = mount_clone(world, from, root, PEER);
	int error = 0;

	if (!source)
		return NULL;
	world->count[MOUNTS]++;
	if (dest->group) {
		make_shared(world, source);
		error = way(world, dest, mountpoint, source, &copies);
	}
	mount_attach(world, source, dest, mountpoint);
	while (copies) {
		struct mount *copy = copies;

		list_del(&copies, copy);
		mount_attach(world, copy, copy->parent, mountpoint);
		world->count[KEPT]++;
	}
	return error ? NULL : source;
}

/* --- Is it a sound graph? -------------------------------------------------- */

static const char *unsound(const struct world *world)
{
	for (const struct mount *m = world->mounts; m; m = m->next) {
		if (!m->live)
			return "a copy is not attached";
		if (m->next_peer->prev_peer != m || m->prev_peer->next_peer != m)
			return "a ring of peers is broken";
		if (m->next_peer != m && (!m->group || m->next_peer->group != m->group ||
					  m->next_peer->master != m->master))
			return "peers disagree on their group or master";
		if (!m->next_peer->live || (m->master && !m->master->live))
			return "a mount refers to one that is gone";
		if (m->master && !m->master->group)
			return "a master is not shared";
		if (m->slaves && !m->group)
			return "a mount that is not shared has slaves";
		for (const struct mount *s = m->slaves; s; s = s->next_slave)
			if (s->master != m || (s->next_slave &&
					       s->next_slave->prev_slave != s))
				return "a list of slaves is broken";
		if (m->parent && !below(m->mountpoint, m->parent->root))
			return "a mount lies where its parent has no such place";
	}
	return NULL;
}

static void world_clear(struct world *world)
{
	while (world->mounts) {
		struct mount *m = world->mounts;

		list_del(&world->mounts, m);
		free(m);
	}
}

/* --- The recipe ------------------------------------------------------------ */

struct shared {
	propagate *way;
	struct dentry *files; /* "binds" files in blah */
};

static struct mount *mount_top(struct world *world, const struct dentry *root)
{
	struct mount *m = mount_new(world, root);

	if (m)
		mount_attach(world, m, NULL, NULL);
	return m;
}

/* Mounts that stay for each one asked for: it, and its copies elsewhere. */
static int64_t staying(const int64_t *param)
{
	return 1 + param[PARAM_RECEIVERS] +
	       (param[PARAM_SHAPE] == SHAPE_SHARED_ROOT);
}

/* Returns 0, or -1 if memory has run out. */
static int recipe(struct ct_worker *w, struct world *world,
		  struct dentry *files)
{
	static const struct dentry top, tmp = { &top }, blah_dir = { &tmp },
					foo = { &blah_dir }, elsewhere = { &top };
	const struct shared *s = w->shared;
	const int64_t shape = w->param[PARAM_SHAPE];
	const uint32_t binds = (uint32_t)w->param[PARAM_BINDS];
	struct mount *root = mount_top(world, &top), *blah, *source;
	uint64_t begin;

	if (!root)
		return -1;
	if (shape == SHAPE_SHARED_ROOT)
		make_shared(world, root);
	/* mount --bind /tmp/blah /tmp/blah; mount --make-shared /tmp/blah */
	blah = bind_mount(world, root, &blah_dir, root, &blah_dir, s->way);
	if (!blah)
		return -1;
	make_shared(world, blah);
	for (int64_t i = 0; i < w->param[PARAM_RECEIVERS]; i++) {
		struct mount *m = mount_clone(world, blah, &blah_dir, SLAVE);

		if (!m)
			return -1;
		mount_attach(world, m, NULL, NULL);
	}
	source = shape == SHAPE_OUTSIDE ? root : blah;
	begin = ct_now();
	for (uint32_t i = 0; i < binds; i++) {
		const struct dentry *what = shape == SHAPE_OUTSIDE ? &elsewhere :
					    shape == SHAPE_ITSELF  ? &files[i] :
								     &foo;

		files[i].parent = &blah_dir;
		/* mount --bind foo $i */
		if (!bind_mount(world, source, what, blah, &files[i], s->way))
			return -1;
	}
	ct_latency(w, ct_now() - begin);
	return 0;
}

static inline void operation(struct ct_worker *w)
{
	const struct shared *s = w->shared;
	struct world world = { .count = w->count };
	const uint64_t allocated = w->count[ALLOCATED], wasted = w->count[WASTED];
	const int64_t want = 2 + w->param[PARAM_RECEIVERS] +
			     w->param[PARAM_BINDS] * staying(w->param);
	const char *reason = NULL;
	int64_t seen = 0;

	if (recipe(w, &world, s->files))
		reason = "out of memory";
	else
		reason = unsound(&world);
	for (const struct mount *m = world.mounts; m; m = m->next)
		seen++;
	if (reason)
		ct_fail(w->run, "%s", reason);
	else if (seen != want)
		ct_fail(w->run, "%" PRId64 " mounts are there, not %" PRId64, seen,
			want);
	else if ((int64_t)(w->count[ALLOCATED] - allocated) -
			 (int64_t)(w->count[WASTED] - wasted) != seen)
		ct_fail(w->run, "mounts were lost: allocated and neither there nor wasted");
	world_clear(&world);
}

CT_LOOP(loop, operation)

/* The lower of what is free and what the process may have, bytes. */
static double memory_allowed(void)
{
	double bytes = (double)sysconf(_SC_AVPHYS_PAGES) *
		       (double)sysconf(_SC_PAGESIZE);
	struct rlimit limit;

	if (!getrlimit(RLIMIT_DATA, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    (double)limit.rlim_cur < bytes)
		bytes = (double)limit.rlim_cur;
	return bytes / 4;
}

static int setup(struct ct_run *run, propagate *way)
{
	const double binds = (double)run->param[PARAM_BINDS];
	const double stay = (double)staying(run->param);
	/* malloc() adds 16 bytes; a copy for each of those that stay, at worst */
	const double each = 2 * stay * (sizeof(struct mount) + 16) +
			    sizeof(struct dentry);
	struct shared *s;

	if (stay * binds * binds / 2 > MAX_VISITS) {
		int64_t most = 1;

		while (stay * (double)((most + 1) * (most + 1)) / 2 <= MAX_VISITS)
			most++;
		return ct_fail(run, "binds must be 1 to %" PRId64
				    " with these receivers and shape", most);
	}
	if (each * binds > memory_allowed())
		return ct_fail(run, "binds must be 1 to %.0f with the memory that is free",
			       memory_allowed() / each);
	s = ct_alloc(sizeof(*s));
	if (!s)
		return ct_fail(run, "out of memory");
	s->way = way;
	s->files = ct_alloc((size_t)binds * sizeof(s->files[0]));
	run->shared = s;
	return s->files ? 0 : ct_fail(run, "out of memory");
}

static int setup_before(struct ct_run *run)
{
	return setup(run, propagate_before);
}

static int setup_after(struct ct_run *run)
{
	return setup(run, propagate_after);
}

static int check(struct ct_run *run)
{
	const uint64_t recipes = ct_total(run, -1);
	const uint64_t binds = (uint64_t)run->param[PARAM_BINDS];

	/* one more to make the mount that is shared */
	if (ct_total(run, MOUNTS) != recipes * (binds + 1))
		return ct_fail(run, "%" PRIu64 " mounts were asked for in %" PRIu64
				    " recipes of %" PRIu64, ct_total(run, MOUNTS),
			       recipes, binds);
	return 0;
}

static void teardown(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (s)
		free(s->files);
	free(s);
}

static const struct ct_param params[] = {
	[PARAM_BINDS] = { "binds", "mounts", "bind mounts that the recipe makes",
			  256, 1, 5000 },
	[PARAM_SHAPE] = { "shape", "",
			  "0 the recipe, 1 with a shared root, 2 each file on "
			  "itself, 3 a file from outside",
			  SHAPE_RECIPE, 0, SHAPES - 1 },
	[PARAM_RECEIVERS] = { "receivers", "mounts",
			      "other namespaces that follow the shared mount", 0,
			      0, 64 },
};

static const struct ct_counter counters[] = {
	[MOUNTS] = { "mounts", "calls of mount" },
	[ALLOCATED] = { "allocated", "mounts allocated" },
	[WASTED] = { "wasted", "mounts freed by the call that allocated them" },
	[KEPT] = { "kept", "copies that stay, for peers and slaves" },
	[VISITS] = { "visits", "nodes of the propagation graph looked at" },
	[HANDED_ON] = { "handed_on", "slaves that got another master" },
};

static const struct ct_variant variants[] = {
	{ "before", "a copy for every node, then discard", setup_before, loop,
	  check, teardown },
	{ "after", "a copy where it stays", setup_after, loop, check, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "mount-propagation",
	 .summary = "bind mounts inside a shared mount, and their copies",
	 .op = "the report's recipe: so many bind mounts, from scratch",
	 .min_threads = 1,
	 .max_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters),
	 CT_TABLE(phases))
