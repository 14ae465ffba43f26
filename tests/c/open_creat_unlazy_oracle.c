/* SPDX-License-Identifier: MIT */
/*
 * Does the walk of open_creat_unlazy.c end where it should, and does it
 * notice what changes under it?
 *
 *   ./oracle ROUNDS SEED
 *
 * First ROUNDS random trees of directories, mounts and symlinks, relative
 * and absolute, in which random paths are resolved by each variant, in RCU
 * walk and in ref walk, and by a resolver that knows neither hash nor
 * sequence count nor reference. Then the changes: a rename, a mount, a chroot
 * between two steps of a walk. Every reference must have been dropped.
 */
#ifndef MODEL
#define MODEL "models/open_creat_unlazy.c"
#endif
#include MODEL

#include "dice.h"

enum { NODES = 60, MOUNTS = 6, PATHS = 60 };

struct node {
	struct node *parent, *mounted, *at; /* at: a mounted root's mountpoint */
	char name[NAME_BYTES];
	enum kind kind;
	const char *target;
	struct dentry *dentry;
	struct mount *mnt;
};

static struct node nodes[NODES];
static uint32_t n_nodes;
static char targets[NODES][PATH_BYTES];
static unsigned long ends[LOOP + 1];

static void die(const char *why, const char *path)
{
	printf("%s: %s\n", why, path);
	exit(1);
}

/* The oracle: one name after the other, every node looked at. */
static struct node *resolve(struct node *at, const char *path, uint32_t *links,
			    enum result *r)
{
	char name[PATH_BYTES];

	*r = FOUND;
	if (*path == '/')
		at = &nodes[0];
	while (*path) {
		struct node *next = NULL;
		size_t len = strcspn(path, "/");

		if (!len) {
			path++;
			continue;
		}
		memcpy(name, path, len);
		name[len] = 0;
		path += len;
		*r = MISSING;
		if (at->kind != DIR)
			return NULL;
		for (uint32_t i = 0; i < n_nodes; i++)
			if (nodes[i].parent == at && !strcmp(nodes[i].name, name))
				next = &nodes[i];
		if (!next)
			return NULL;
		while (next->mounted)
			next = next->mounted;
		if (next->kind == LINK) {
			if (++*links > MAX_LINKS) {
				*r = LOOP;
				return NULL;
			}
			next = resolve(at, next->target, links, r);
			if (!next)
				return NULL;
		}
		at = next;
		*r = FOUND;
	}
	return at;
}

/* A path to a random node, or to one that is not there. */
static void random_path(char *out, bool absolute)
{
	static const char *const names[] = { "a", "b", "c", "longer-name" };
	const uint32_t n = 1 + roll(6);
	struct node *at = &nodes[0];
	size_t len = 0;

	if (absolute)
		len += (size_t)snprintf(out, PATH_BYTES, "/%s",
					roll(4) ? "" : "/");
	for (uint32_t i = 0; i < n && len < PATH_BYTES - 2 * NAME_BYTES; i++) {
		struct node *child = NULL;
		uint32_t seen = 0;

		/* mostly a name that exists, if we know where we are */
		for (uint32_t k = 0; k < n_nodes; k++)
			if (at && nodes[k].parent == at && !roll(++seen))
				child = &nodes[k];
		len += (size_t)snprintf(out + len, PATH_BYTES - len, "%s%s",
					i ? (roll(8) ? "/" : "//") : "",
					child && roll(8) ? child->name :
							    names[roll(4)]);
		at = child;
		while (at && at->mounted)
			at = at->mounted;
		if (at && at->kind == LINK)
			at = NULL;
	}
}

static struct node *node_new(struct node *parent, const char *name,
			     enum kind kind, struct dentry *d, struct mount *mnt)
{
	struct node *n = &nodes[n_nodes++];

	*n = (struct node){ .parent = parent, .kind = kind, .dentry = d,
			    .mnt = mnt };
	snprintf(n->name, sizeof(n->name), "%s", name);
	return n;
}

static struct shared *random_tree(void)
{
	static const char *const names[] = { "a", "b", "c", "longer-name" };
	struct shared *s = shared_new(1, MOUNTS, NODES + MOUNTS);
	uint32_t mounts = 0;

	/* often so few chains that a name meets others in its own */
	s->chain_mask = roll(2) ? 3 : s->chain_mask;
	n_nodes = 0;
	node_new(NULL, "", DIR, s->root, &s->mounts[0]);
	for (int tries = 0; tries < 400 && n_nodes < NODES - 1; tries++) {
		struct node *parent = &nodes[roll(n_nodes)], *n;
		const char *name = names[roll(4)];
		const enum kind kind = roll(10) < 6 ? DIR :
				       roll(2)	     ? FILE_ :
						       LINK;
		bool taken = parent->kind != DIR || parent->mounted;

		for (uint32_t i = 0; i < n_nodes; i++)
			taken |= nodes[i].parent == parent &&
				 !strcmp(nodes[i].name, name);
		if (taken)
			continue;
		n = node_new(parent, name, kind,
			     dentry_add(s, parent->dentry, name, kind),
			     parent->mnt);
		if (kind == LINK) {
			char *target = targets[n - nodes];

			random_path(target, roll(2));
			n->target = n->dentry->target = target;
		}
		if (kind == DIR && mounts < MOUNTS && !roll(6)) {
			struct mount *mnt = mount_add(s, 2 + mounts++, n->dentry);

			n->mounted = node_new(NULL, "", DIR, mnt->root, mnt);
		}
	}
	return s;
}

static void same(struct ct_worker *w, enum rule rule, bool creat, bool rcu,
		 const char *path, const struct path *dirfd)
{
	struct shared *s = w->shared;
	struct path file = { NULL, NULL };
	struct node *from = &nodes[0], *wanted;
	enum result expected, got;
	uint32_t links = 0;
	struct walk k;

	for (uint32_t i = 0; i < n_nodes; i++)
		if (nodes[i].dentry == dirfd->dentry)
			from = &nodes[i];
	wanted = resolve(from, path, &links, &expected);
	got = path_init(&k, w, &s->fs[0], dirfd, path, rcu);
	if (got == FOUND)
		got = path_openat(&k, rule, creat, path, NULL, &file);
	if (got != expected)
		die("another end than the oracle's", path);
	if (got == FOUND && (file.dentry != wanted->dentry ||
			     file.mnt != wanted->mnt))
		die("another file than the oracle's", path);
	if (k.links != links)
		die("another number of symlinks than the oracle's", path);
	path_put(w, &file);
	ends[got]++;
}

static void trees(struct ct_worker *w, long rounds)
{
	while (rounds--) {
		struct shared *s = random_tree();
		char path[PATH_BYTES];

		w->shared = s;
		for (int i = 0; i < PATHS; i++) {
			struct node *from = &nodes[roll(n_nodes)];
			struct path dirfd;

			while (from->kind != DIR || from->mounted)
				from = &nodes[roll(n_nodes)];
			dirfd = (struct path){ from->mnt, from->dentry };
			random_path(path, roll(4));
			for (int how = 0; how < 12; how++)
				same(w, (enum rule)(how % 3), how / 3 % 2,
				     how / 6, path, &dirfd);
		}
		if (check_references(w->run, s))
			die(w->run->error, "after a tree");
		shared_free(s);
	}
}

enum change { NOTHING, RENAME, MOUNT, RENAME_ROOT, CHROOT };

/* Walk to the last name, let something happen, go on. */
static enum result interrupted(struct ct_worker *w, enum rule rule,
			       const char *name, enum change change)
{
	struct shared *s = w->shared;
	struct dentry *moved = NULL;
	struct path file = { NULL, NULL };
	struct walk k;
	enum result r = path_init(&k, w, &s->fs[0], NULL, name, true);

	if (r == FOUND)
		r = link_path_walk(&k, name);
	if (r != FOUND)
		die("the walk did not get to the last name", name);
	if (change == RENAME)
		moved = k.path.dentry;
	if (change == RENAME_ROOT)
		moved = s->root;
	if (moved) {
		seq_write(&moved->seq);
		seq_write(&moved->seq);
	}
	if (change == MOUNT)
		somebody_mounts(s);
	if (change == CHROOT)
		somebody_chroots(s, &s->fs[0]);
	r = open_last_lookups(&k, rule, true, NULL, &name);
	if (r == FOUND && name)
		r = path_openat(&k, rule, true, name, NULL, &file);
	else
		terminate_walk(&k);
	path_put(w, &file);
	if (check_references(w->run, s))
		die(w->run->error, "after an interrupted walk");
	return r;
}

static void expect(struct ct_worker *w, enum rule rule, const char *name,
		   enum change change, enum result r, uint64_t two_roots)
{
	memset(w->count, 0, sizeof(w->count));
	if (interrupted(w, rule, name, change) != r)
		die("a change was missed, or seen where there was none", name);
	if (w->count[TWO_ROOTS] != two_roots)
		die("another number of roots than expected", name);
}

static void changes(struct ct_worker *w)
{
	struct shared *s = shared_new(1, 1, 8);
	struct dentry *d = dentry_add(s, s->root, "m", DIR);
	struct mount *mnt = mount_add(s, 2, d);

	w->shared = s;
	d = dentry_add(s, mnt->root, "d", DIR);
	dentry_add(s, d, "file", FILE_);
	dentry_add(s, d, "link", LINK)->target = "/m/d/file";

	for (enum rule rule = BEFORE; rule <= AFTER; rule++) {
		expect(w, rule, "/m/d/file", NOTHING, FOUND, 0);
		expect(w, rule, "/m/d/link", NOTHING, FOUND, 0);
		expect(w, rule, "/m/d/file", RENAME, STALE, 0);
		expect(w, rule, "/m/d/file", MOUNT, STALE, 0);
		expect(w, rule, "/m/d/file", CHROOT, FOUND, 0);
	}
	/* Who takes no reference on the root need not care what it does. */
	expect(w, BEFORE, "/m/d/file", RENAME_ROOT, STALE, 0);
	expect(w, AFTER, "/m/d/file", RENAME_ROOT, FOUND, 0);
	/* What the maintainer did not like: a walk with two roots. */
	expect(w, BEFORE, "/m/d/link", CHROOT, FOUND, 0);
	expect(w, AFTER, "/m/d/link", CHROOT, FOUND, 1);
	shared_free(s);
}

int main(int argc, char **argv)
{
	static struct ct_run run;
	static struct ct_worker w;

	if (argc != 3)
		return 2;
	run.threads = 1;
	w.run = &run;
	dice = strtoull(argv[2], NULL, 10);
	trees(&w, atol(argv[1]));
	changes(&w);
	printf("found %lu missing %lu loop %lu\n", ends[FOUND], ends[MISSING],
	       ends[LOOP]);
	return 0;
}
