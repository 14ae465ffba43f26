/* SPDX-License-Identifier: MIT */
/*
 * Makes random topologies of mounts, peer groups and slaves in three worlds at
 * once: copy-then-discard and copy-where-needed from the model, and a naive
 * one of plain arrays that follows the rules word by word and knows no rings,
 * lists or walks. After each step all three must be the same tree with the
 * same peers and masters.
 *
 * cc -DMODEL='"models/mount_propagation.c"' mount_propagation_oracle.c; ./a.out
 * TOPOLOGIES STEPS SEED. Exits 1 with a reason at the first difference.
 */
#include MODEL

#include "dice.h"

#define DENTRIES 14
#define MOST 400 /* mounts in a world */
#define GROUPS 4096
#define WAYS 2

/* The naive world: a mount is a number, groups are numbers. */
static struct naive {
	uint32_t n;
	bool alive[MOST];
	int parent[MOST];
	const struct dentry *mountpoint[MOST], *root[MOST];
	uint32_t group[MOST];  /* 0: not shared */
	uint32_t master[MOST]; /* the group that it is a slave to, or 0 */
	uint32_t groups;
} naive;

static bool lies_below(const struct dentry *d, const struct dentry *root)
{
	for (; d; d = d->parent)
		if (d == root)
			return true;
	return false;
}

static int naive_new(int parent, const struct dentry *mountpoint,
		     const struct dentry *root)
{
	const int id = (int)naive.n++;

	naive.alive[id] = true;
	naive.parent[id] = parent;
	naive.mountpoint[id] = mountpoint;
	naive.root[id] = root;
	naive.group[id] = naive.master[id] = 0;
	return id;
}

static uint32_t members(uint32_t group)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < naive.n; i++)
		n += naive.alive[i] && group && naive.group[i] == group;
	return n;
}

/* i leaves its group; slaves of a group that is empty now go to its master. */
static void naive_leave(int i, uint32_t master)
{
	const uint32_t group = naive.group[i];

	naive.group[i] = 0;
	if (group && !members(group))
		for (uint32_t k = 0; k < naive.n; k++)
			if (naive.alive[k] && naive.master[k] == group)
				naive.master[k] = master;
}

static void naive_slave(int i)
{
	const uint32_t group = naive.group[i];
	const bool alone = members(group) < 2;

	naive_leave(i, naive.master[i]);
	if (group && !alone)
		naive.master[i] = group;
}

static void naive_private(int i)
{
	naive_leave(i, naive.master[i]);
	naive.master[i] = 0;
}

/* All mounts that get what is mounted on dest, dest among them. */
static void reach(int dest, bool *in)
{
	bool more = true;

	memset(in, 0, MOST * sizeof(*in));
	in[dest] = true;
	while (more) {
		more = false;
		for (uint32_t i = 0; i < naive.n; i++)
			for (uint32_t k = 0; k < naive.n && !in[i]; k++)
				if (naive.alive[i] && in[k] && naive.group[k] &&
				    (naive.group[i] == naive.group[k] ||
				     naive.master[i] == naive.group[k]))
					in[i] = more = true;
	}
}

static int someone_of(uint32_t group)
{
	for (uint32_t i = 0; i < naive.n; i++)
		if (naive.alive[i] && naive.group[i] == group)
			return (int)i;
	return -1;
}

/* Returns how many mounts there are more; the first new one is on dest. */
static uint32_t naive_bind(int from, const struct dentry *root, int dest,
			   const struct dentry *mountpoint)
{
	const uint32_t old = naive.n;
	uint32_t group_of[GROUPS] = { 0 }, source_master = naive.master[from];
	uint32_t source_group = naive.group[from];
	bool in[MOST];
	int source;

	/* Before the new mount exists: it gets nothing from itself. */
	reach(dest, in);
	if (naive.group[dest] && !source_group)
		source_group = ++naive.groups;
	source = naive_new(dest, mountpoint, root);
	naive.group[source] = source_group;
	naive.master[source] = source_master;
	if (!naive.group[dest])
		return 1;
	for (uint32_t i = 0; i < old; i++) {
		const bool same = naive.group[i] == naive.group[dest];
		int copy, up = (int)i;

		if (!in[i] || (int)i == dest ||
		    !lies_below(mountpoint, naive.root[i]))
			continue;
		copy = naive_new((int)i, mountpoint, root);
		if (same) {
			naive.group[copy] = source_group;
			naive.master[copy] = source_master;
			continue;
		}
		if (naive.group[i] && !group_of[naive.group[i]])
			group_of[naive.group[i]] = ++naive.groups;
		naive.group[copy] = naive.group[i] ?
					    group_of[naive.group[i]] : 0;
		/* Upwards, to the first group in which a copy stays. */
		for (;;) {
			const uint32_t above = naive.master[up];
			bool stays = above == naive.group[dest];

			for (uint32_t k = 0; k < old; k++)
				stays |= naive.alive[k] && in[k] &&
					 naive.group[k] == above &&
					 lies_below(mountpoint, naive.root[k]);
			up = someone_of(above);
			if (!stays)
				continue;
			if (above != naive.group[dest] &&
			    !group_of[above])
				group_of[above] = ++naive.groups;
			naive.master[copy] = above == naive.group[dest] ?
						     source_group :
						     group_of[above];
			break;
		}
	}
	return naive.n - old;
}

static int differ(const char *way, const char *what, uint64_t id)
{
	printf("%s: mount %d differs from the oracle: %s\n", way, (int)id - 1,
	       what);
	return 1;
}

/* Give the new mounts of a world the oracle's numbers, by their parents. */
static int number(struct world *world, uint32_t first, const char *way)
{
	for (uint32_t i = first; i < naive.n; i++) {
		struct mount *m = world->mounts;

		while (m && (m->id || (m->parent ? (int)m->parent->id - 1 : -1) !=
					      naive.parent[i]))
			m = m->next;
		if (!m)
			return differ(way, "it is not there", i + 1);
		m->id = i + 1;
	}
	return 0;
}

static int compare(const struct world *world, const char *way)
{
	static uint32_t ours[1 << 16], theirs[1 << 16];
	const char *reason = unsound(world);
	uint32_t seen = 0, alive = 0;

	if (reason) {
		printf("%s: %s\n", way, reason);
		return 1;
	}
	memset(ours, 0, sizeof(ours));
	memset(theirs, 0, sizeof(theirs));
	for (uint32_t i = 0; i < naive.n; i++)
		alive += naive.alive[i];
	for (const struct mount *m = world->mounts; m; m = m->next) {
		const uint32_t i = (uint32_t)m->id - 1;
		uint32_t pairs[2][2] = {
			{ m->group, 0 },
			{ m->master ? m->master->group : 0, 0 },
		};

		seen++;
		if (!m->id || i >= naive.n || !naive.alive[i])
			return differ(way, "it should not be there", m->id);
		if (m->root != naive.root[i] ||
		    m->mountpoint != naive.mountpoint[i])
			return differ(way, "its place or its root", m->id);
		pairs[0][1] = naive.group[i];
		pairs[1][1] = naive.master[i];
		for (int k = 0; k < 2; k++) {
			const uint32_t a = pairs[k][0], b = pairs[k][1];

			if (!a != !b || (a && ours[a] && ours[a] != b) ||
			    (b && theirs[b] && theirs[b] != a))
				return differ(way, k ? "its master" : "its peers",
					      m->id);
			ours[a] = b;
			theirs[b] = a;
		}
	}
	return seen == alive ? 0 : differ(way, "some are missing", 0);
}

static struct mount *find(struct world *world, int id)
{
	struct mount *m = world->mounts;

	while (m->id != (uint64_t)id + 1)
		m = m->next;
	return m;
}

static int any_mount(void)
{
	int id;

	do
		id = (int)roll(naive.n);
	while (!naive.alive[id]);
	return id;
}

static bool has_children(int id)
{
	for (uint32_t i = 0; i < naive.n; i++)
		if (naive.alive[i] && naive.parent[i] == id)
			return true;
	return false;
}

static const struct dentry *any_below(struct dentry *dentries,
				      const struct dentry *root)
{
	const struct dentry *d;

	do
		d = &dentries[roll(DENTRIES)];
	while (!lies_below(d, root));
	return d;
}

static propagate *const ways[WAYS] = { propagate_before, propagate_after };
static const char *const names[WAYS] = { "before", "after" };
static uint64_t counts[WAYS][CT_MAX_COUNTERS];

static int step(struct world *worlds, struct dentry *dentries)
{
	const int a = any_mount(), b = any_mount();
	const uint32_t choice = roll(100), first = naive.n;
	const struct dentry *root = any_below(dentries, naive.root[a]);
	const struct dentry *place = any_below(dentries, naive.root[b]);
	int bad = 0;

	if (choice < 45) {
		naive_bind(a, root, b, place);
	} else if (choice < 60) {
		if (!naive.group[a])
			naive.group[a] = ++naive.groups;
	} else if (choice < 75) {
		/* a follower in another namespace, as clone(CLONE_NEWNS) makes */
		if (!naive.group[a])
			return 0;
		naive_new(-1, NULL, naive.root[a]);
		naive.master[first] = naive.group[a];
	} else if (choice < 85) {
		naive_slave(a);
	} else if (choice < 90) {
		naive_private(a);
	} else {
		if (!a || has_children(a))
			return 0;
		naive_private(a);
		naive.alive[a] = false;
	}
	for (int w = 0; w < WAYS; w++) {
		struct world *world = &worlds[w];
		struct mount *m = find(world, a);

		if (choice < 45) {
			bad |= !bind_mount(world, m, root, find(world, b), place,
					   ways[w]);
		} else if (choice < 60) {
			make_shared(world, m);
		} else if (choice < 75) {
			mount_attach(world, mount_clone(world, m, m->root, SLAVE),
				     NULL, NULL);
		} else if (choice < 85) {
			make_slave(world, m);
		} else if (choice < 90) {
			make_private(world, m);
		} else {
			list_del(&world->mounts, m);
			mount_free(world, m);
		}
		bad |= number(world, first, names[w]) || compare(world, names[w]);
	}
	return bad;
}

int main(int argc, char **argv)
{
	const int topologies = argc > 1 ? atoi(argv[1]) : 100;
	const int steps = argc > 2 ? atoi(argv[2]) : 60;
	uint64_t masters = 0, deep = 0;

	dice = argc > 3 ? (uint64_t)atoll(argv[3]) : 1;
	for (int t = 0; t < topologies; t++) {
		struct dentry dentries[DENTRIES] = { { NULL } };
		struct world worlds[WAYS];
		int bad = 0;

		for (uint32_t i = 1; i < DENTRIES; i++)
			dentries[i].parent = &dentries[roll(i)];
		memset(&naive, 0, sizeof(naive));
		naive_new(-1, NULL, &dentries[0]);
		for (int w = 0; w < WAYS; w++) {
			worlds[w] = (struct world){ .count = counts[w] };
			bad |= !mount_top(&worlds[w], &dentries[0]) ||
			       number(&worlds[w], 0, names[w]);
		}
		for (int i = 0; i < steps && !bad && naive.n < MOST / 3 &&
				  naive.groups < GROUPS - MOST; i++)
			bad = step(worlds, dentries);
		for (const struct mount *m = worlds[1].mounts; m; m = m->next) {
			masters += m->master != NULL;
			deep += m->master && m->master->master;
		}
		for (int w = 0; w < WAYS; w++)
			world_clear(&worlds[w]);
		if (bad) {
			printf("topology %d is wrong\n", t);
			return 1;
		}
	}
	printf("topologies=%d mounts=%" PRIu64 " kept=%" PRIu64 " wasted=%" PRIu64
	       " wasted_after=%" PRIu64 " handed_on=%" PRIu64 " slaves=%" PRIu64
	       " slaves_of_slaves=%" PRIu64 "\n",
	       topologies, counts[1][MOUNTS], counts[1][KEPT], counts[0][WASTED],
	       counts[1][WASTED], counts[0][HANDED_ON], masters, deep);
	return 0;
}
