/* SPDX-License-Identifier: MIT */
/*
 * Does the table of mount_hash.c hold what was put in?
 *
 *   ./oracle ROUNDS SEED     random inserts, removals and lookups in tables
 *                            of many sizes, against a plain list of pairs
 *   ./oracle size MB CHAINS  prints the size of the table for that memory
 *                            and that boot parameter
 */
#ifndef MODEL
#define MODEL "models/mount_hash.c"
#endif
#include MODEL

#include "dice.h"

enum { PARENTS = 5, DENTRIES = 40, STEPS_A_ROUND = 600 };

static struct mount mounts[PARENTS * DENTRIES], parents[PARENTS];
static struct dentry dentries[DENTRIES];
static struct mount *there[PARENTS * DENTRIES]; /* the oracle */
static uint32_t n_there;

static struct mount *oracle_lookup(const struct mount *parent,
				   const struct dentry *dentry)
{
	for (uint32_t i = 0; i < n_there; i++)
		if (there[i]->parent == parent && there[i]->mountpoint == dentry)
			return there[i];
	return NULL;
}

static void die(const char *why)
{
	printf("%s\n", why);
	exit(1);
}

static void one_round(void)
{
	struct table t;
	const uint32_t from = roll(100000);
	uint64_t total = 0;

	if (table_init(&t, 1u << roll(12), roll(2)))
		die("out of memory");
	n_there = 0;
	for (uint32_t i = 0; i < PARENTS; i++)
		parents[i].address = slab_address(from + i, MOUNT_BYTES, 1);
	for (uint32_t i = 0; i < DENTRIES; i++)
		dentries[i].address = slab_address(from + i, DENTRY_BYTES, 2);
	for (int i = 0; i < STEPS_A_ROUND; i++) {
		const uint32_t p = roll(PARENTS), d = roll(DENTRIES);
		struct mount *known = oracle_lookup(&parents[p], &dentries[d]);
		uint64_t steps = 0;

		if (table_lookup(&t, &parents[p], &dentries[d], &steps) != known)
			die("the table and the list disagree");
		if (steps > n_there || (known && !steps))
			die("the steps do not fit");
		total += steps;
		if (!known && roll(3)) {
			struct mount *m = &mounts[p * DENTRIES + d];

			m->parent = &parents[p];
			m->mountpoint = &dentries[d];
			table_insert(&t, m);
			there[n_there++] = m;
		} else if (known && roll(2)) {
			table_remove(known);
			for (uint32_t k = 0; k < n_there; k++)
				if (there[k] == known)
					there[k] = there[--n_there];
		}
	}
	while (n_there)
		table_remove(there[--n_there]);
	for (uint32_t i = 0; i <= t.mask; i++)
		if (t.chains[i])
			die("a chain is not empty after all mounts are gone");
	if (!total)
		die("nothing was ever looked at");
	free(t.chains);
}

/* Two objects at one address would make the hash look worse than it is. */
static void addresses(void)
{
	static unsigned char seen[1 << 24];

	for (uint64_t page = 0; page < 1 << 24; page++) {
		const uint64_t a = slab_address(page * (PAGE / DENTRY_BYTES),
						DENTRY_BYTES, 2);

		if (a % PAGE || seen[a / PAGE & 0xffffff]++)
			die("two pages at one address");
	}
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "size")) {
		printf("%" PRIu32 "\n",
		       sized_to_memory(strtoull(argv[2], NULL, 10),
				       strtoull(argv[3], NULL, 10)));
		return 0;
	}
	if (argc != 3)
		return 2;
	dice = strtoull(argv[2], NULL, 10);
	for (long i = atol(argv[1]); i > 0; i--)
		one_round();
	addresses();
	printf("good\n");
	return 0;
}
