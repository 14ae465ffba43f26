/* SPDX-License-Identifier: MIT */
/*
 * The lookup of csrc/models/dentry_false_sharing.c against string comparison.
 *
 *   cc -DMODEL='"models/dentry_false_sharing.c"' ...
 *   ./dentry_false_sharing_oracle find SEED      random names, random queries
 *   ./dentry_false_sharing_oracle rename SEED    a rename during lookups
 *
 * Exits 1 on a difference.
 */
#include MODEL

#include "dice.h"

#define FILES 60
#define PARENTS 3
#define CHAINS 4
#define QUERIES 20000
#define LOOKUPS_WANTED 400000
#define RENAMES_WANTED 1000000 /* so that on a busy machine the two do meet */

static const struct layout layouts[] = {
	LAYOUT(before), LAYOUT(after), LAYOUT(moved_32),
};

struct file {
	char name[MAX_NAME + 1];
	int parent;
	struct head *dentry;
	word *outside;
	struct inode inode;
};

/* Few letters and few lengths, so that names are often nearly the same. */
static void random_name(char *name)
{
	static const int lengths[] = { 1, 7, 8, 9, 16, 31, 32, 39, 40, 41,
				       64, MAX_NAME };
	const int len = lengths[roll(ct_array_size(lengths))];

	memset(name, 0, MAX_NAME + 1);
	memset(name, 'a', (size_t)len);
	for (int i = 0; i < 2; i++)
		name[roll((uint32_t)len)] = (char)('a' + roll(2));
}

static int find_all(const struct layout *layout)
{
	static struct file files[FILES];
	static struct query q;
	struct head *parents[PARENTS];
	_Atomic(struct head *) chains[CHAINS] = { 0 };
	uint64_t found = 0;
	int n = 0, bad = 0;

	for (int i = 0; i < PARENTS; i++)
		parents[i] = ct_alloc(layout->size);
	for (int tries = 0; tries < FILES; tries++) {
		struct file *f = &files[n];
		bool taken = false;
		uint64_t len;

		memset(f, 0, sizeof(*f));
		random_name(f->name);
		f->parent = (int)roll(PARENTS);
		for (int i = 0; i < n; i++)
			taken |= files[i].parent == f->parent &&
				 !strcmp(files[i].name, f->name);
		if (taken)
			continue;
		len = strlen(f->name);
		f->inode.number = (uint64_t)n;
		f->dentry = ct_alloc(layout->size);
		dentry_set(f->dentry, parents[f->parent], f->name, len,
			   name_place(f->dentry, layout, len, &f->outside),
			   &f->inode);
		f->dentry->hash[0] =
			chains[hash_len(f->name, len) % CHAINS];
		chains[hash_len(f->name, len) % CHAINS] = f->dentry;
		n++;
	}
	for (int k = 0; k < QUERIES; k++) {
		const struct inode *inode = NULL;
		char name[MAX_NAME + 1];
		struct head *expected = NULL, *seen;
		int parent = (int)roll(PARENTS);

		if (roll(2)) {
			const struct file *f = &files[roll((uint32_t)n)];

			memcpy(name, f->name, sizeof(name));
			parent = f->parent;
		} else {
			random_name(name);
		}
		for (int i = 0; i < n; i++)
			if (files[i].parent == parent &&
			    !strcmp(files[i].name, name))
				expected = files[i].dentry;
		query_set(&q, parents[parent], name, strlen(name));
		seen = lookup(&chains[q.hash_len % CHAINS], &q, &inode, NULL);
		found += seen != NULL;
		if (seen != expected ||
		    (seen && files[inode->number].dentry != seen)) {
			printf("the wrong dentry for %s\n", name);
			bad = 1;
			break;
		}
		if (!seen)
			continue;
		/* while it is being changed nobody may trust it */
		seen->seq++;
		if (lookup(&chains[q.hash_len % CHAINS], &q, &inode, NULL)) {
			puts("found in the middle of a change");
			bad = 1;
			break;
		}
		seen->seq++;
	}
	if (!found || found == QUERIES) {
		puts("a poor choice of queries");
		bad = 1;
	}
	for (int i = 0; i < n; i++) {
		free(files[i].dentry);
		free(files[i].outside);
	}
	for (int i = 0; i < PARENTS; i++)
		free(parents[i]);
	return bad;
}

static struct {
	struct head *dentry, *parent;
	const struct layout *layout;
	struct inode inode[2];
	_Atomic bool stop;
	_Atomic uint64_t renames;
	cpu_set_t allowed;
} renaming;

static void pin(int nth)
{
	cpu_set_t one;
	int cpu = 0;

	nth %= CPU_COUNT(&renaming.allowed);
	while (!CPU_ISSET(cpu, &renaming.allowed) || nth--)
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		abort();
}

static const char *const names[] = {
	"the first of two names of a file",
	"the other of two names of a file",
};

/* mv back and forth; the inode goes with the name, so that a mixture shows */
static void *renamer(void *arg)
{
	word *place = (word *)((char *)renaming.dentry + renaming.layout->iname);

	pin(1);
	for (int i = 0; !renaming.stop; i ^= 1) {
		dentry_set(renaming.dentry, renaming.parent, names[i],
			   strlen(names[i]), place, &renaming.inode[i]);
		atomic_fetch_add_explicit(&renaming.renames, 1, memory_order_relaxed);
	}
	return arg;
}

static int rename_meanwhile(void)
{
	static struct query q[2];
	_Atomic(struct head *) chain;
	uint64_t found = 0, mixed = 0;
	pthread_t thread;

	renaming.layout = &layouts[0];
	renaming.dentry = ct_alloc(renaming.layout->size);
	renaming.parent = ct_alloc(renaming.layout->size);
	chain = renaming.dentry;
	for (int i = 0; i < 2; i++)
		query_set(&q[i], renaming.parent, names[i], strlen(names[i]));
	sched_getaffinity(0, sizeof(renaming.allowed), &renaming.allowed);
	if (pthread_create(&thread, NULL, renamer, NULL))
		return 2;
	pin(0);
	for (uint64_t k = 0; !mixed && (k < LOOKUPS_WANTED || !found ||
				   renaming.renames < RENAMES_WANTED); k++) {
		const struct inode *inode = NULL;

		if (!lookup(&chain, &q[k & 1], &inode, NULL))
			continue;
		found++;
		mixed += inode != &renaming.inode[k & 1];
	}
	renaming.stop = true;
	pthread_join(thread, NULL);
	free(renaming.dentry);
	free(renaming.parent);
	printf("%" PRIu64 " found, %" PRIu64 " of them a mixture\n", found, mixed);
	return mixed != 0;
}

int main(int argc, char **argv)
{
	int bad = 0;

	if (argc != 3)
		return 2;
	dice = strtoull(argv[2], NULL, 0);
	if (!strcmp(argv[1], "rename"))
		return rename_meanwhile();
	for (size_t i = 0; i < ct_array_size(layouts); i++)
		bad |= find_all(&layouts[i]);
	if (!bad)
		puts("good");
	return bad;
}
