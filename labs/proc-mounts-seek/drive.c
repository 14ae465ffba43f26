/* SPDX-License-Identifier: MIT */
/*
 * drive.c - read a list of mounts while they come and go, and count.
 *
 *   drive MOUNTS SIZE GO COME WHO FILES STRICT LIMIT SEED
 *
 * A namespace with MOUNTS mounts is read end to end through a buffer of SIZE
 * bytes; 0: of another size at each read. After each read GO mounts go and
 * COME come. WHO of them goes:
 *
 *   any    anyone        last   the one that was read last
 *   next   the one that would have been read next
 *
 * With FILES above 1 as many namespaces are read by turns. With STRICT 1 each
 * read is tried before with a buffer in which no line fits, and when the end
 * was reached more mounts come, and it must still be the end. Whoever takes
 * more than LIMIT steps in the trees is stopped.
 *
 * At the end each mount that was there from the first read to the last must
 * have been read once; the others do not matter.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mounts.h"

#define MAX_FILES 4
#define LONGEST 120 /* bytes of a line */
#define BUFFER 65536
#define FENCE 64

struct mount {
	uint32_t id, priority, slot;
	bool gone;
	struct mount *left, *right;
};

struct namespace {
	struct mount *root;
	struct mount **live; /* in no order */
	struct mount *pool;  /* by id: pool[id] */
	uint8_t *seen;
	uint32_t n_live, newest, capacity, at_open;
	uint64_t position;
	uint32_t last_read;
	bool ended;
};

static struct namespace spaces[MAX_FILES];
static uint64_t steps, reads, lines, shown, late, disordered, limit;
static uint64_t random_state;

static void end(const char *fault)
{
	uint64_t stayed = 0, missed = 0, repeated = 0;

	for (int f = 0; f < MAX_FILES; f++)
		for (uint32_t i = 0; i < spaces[f].n_live; i++) {
			const struct mount *m = spaces[f].live[i];

			if (m->id > spaces[f].at_open)
				continue;
			stayed++;
			missed += spaces[f].seen[m->id] == 0;
			repeated += spaces[f].seen[m->id] > 1;
		}
	printf("{\"reads\": %llu, \"steps\": %llu, \"lines\": %llu, \"shown\": %llu, "
	       "\"stayed\": %llu, \"missed\": %llu, \"repeated\": %llu, "
	       "\"disordered\": %llu, \"late\": %llu, \"fault\": \"%s\"}\n",
	       (unsigned long long)reads, (unsigned long long)steps,
	       (unsigned long long)lines, (unsigned long long)shown,
	       (unsigned long long)stayed, (unsigned long long)missed,
	       (unsigned long long)repeated, (unsigned long long)disordered,
	       (unsigned long long)late, fault);
	fflush(stdout);
	exit(0);
}

static uint32_t draw(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state % below);
}

/* --- What mounts.h promises ------------------------------------------------- */

static void step(void)
{
	if (++steps > limit)
		end("too many steps were taken in the tree");
}

static const struct mount *checked(const struct mount *m)
{
	if (m && m->gone)
		end("a mount was used that has gone: a pointer from an earlier read");
	return m;
}

const struct mount *tree_root(struct namespace *ns)
{
	step();
	return ns->root;
}

const struct mount *left_of(const struct mount *m)
{
	step();
	return checked(m)->left;
}

const struct mount *right_of(const struct mount *m)
{
	step();
	return checked(m)->right;
}

uint32_t id_of(const struct mount *m)
{
	return checked(m)->id;
}

uint32_t newest_id(struct namespace *ns)
{
	return ns->newest;
}

/* The line of an id: lengths differ, as real ones do. */
static size_t line_of(uint32_t id, char *line)
{
	const int dots = 20 + (int)(id * 7 % 61);

	return (size_t)snprintf(line, LONGEST, "%u /mnt/%.*s rw\n", id, dots,
				"................................................"
				"................................");
}

size_t show(const struct mount *m, char *place, size_t room)
{
	char line[LONGEST];
	const size_t length = line_of(checked(m)->id, line);

	shown++;
	if (length > room)
		return 0;
	memcpy(place, line, length);
	return length;
}

/* --- The tree: a treap, so that it is balanced whatever comes and goes --------- */

static void split(struct mount *tree, uint32_t id, struct mount **low, struct mount **high)
{
	if (!tree) {
		*low = *high = NULL;
	} else if (tree->id < id) {
		split(tree->right, id, &tree->right, high);
		*low = tree;
	} else {
		split(tree->left, id, low, &tree->left);
		*high = tree;
	}
}

static struct mount *join(struct mount *low, struct mount *high)
{
	if (!low || !high)
		return low ? low : high;
	if (low->priority > high->priority) {
		low->right = join(low->right, high);
		return low;
	}
	high->left = join(low, high->left);
	return high;
}

static void come(struct namespace *ns)
{
	struct mount *m;

	if (ns->newest + 1 >= ns->capacity)
		end("reading does not come to an end");
	m = &ns->pool[++ns->newest];
	*m = (struct mount){ .id = ns->newest, .priority = draw(1u << 31), .slot = ns->n_live };
	ns->live[ns->n_live++] = m;
	ns->root = join(ns->root, m);
}

static void go(struct namespace *ns, struct mount *m)
{
	struct mount *low, *rest, *high;

	split(ns->root, m->id, &low, &rest);
	split(rest, m->id + 1, &rest, &high);
	ns->root = join(low, high);
	m->gone = true;
	ns->live[m->slot] = ns->live[--ns->n_live];
	ns->live[m->slot]->slot = m->slot;
}

/* --- Reading -------------------------------------------------------------------- */

static void parse(struct namespace *ns, const char *text, size_t length)
{
	char line[LONGEST];

	while (length) {
		const uint32_t id = (uint32_t)strtoul(text, NULL, 10);
		size_t n;

		if (id == 0 || id > ns->newest)
			end("a line was read that is of no mount");
		n = line_of(id, line);
		if (n > length || memcmp(text, line, n) != 0)
			end("a line was read that is not whole");
		ns->seen[id] += ns->seen[id] < 2;
		lines++;
		late += id > ns->at_open;
		disordered += id <= ns->last_read;
		ns->last_read = id;
		text += n;
		length -= n;
	}
}

static void try_small(struct namespace *ns)
{
	char buffer[8];
	const uint64_t before = ns->position;
	const long n = mounts_read(ns, &ns->position, buffer, sizeof(buffer));

	if (n > 0)
		end("lines were read into a buffer in which none fits");
	if (n < 0 && ns->position != before)
		end("a read that failed has moved the position");
	if (n == 0)
		ns->ended = true;
}

/* One read(); returns whether there was anything. */
static bool read_once(struct namespace *ns, size_t size)
{
	static char buffer[BUFFER + FENCE];
	long n;

	memset(buffer + size, 'x', FENCE);
	n = mounts_read(ns, &ns->position, buffer, size);
	reads++;
	for (size_t i = 0; i < FENCE; i++)
		if (buffer[size + i] != 'x')
			end("a read wrote behind its buffer");
	if (n < 0)
		end("a read failed although a line fits into its buffer");
	if ((size_t)n > size)
		end("a read returned more bytes than its buffer has");
	if (n > 0 && ns->ended)
		end("lines were read after the end of the file");
	parse(ns, buffer, (size_t)n);
	return n > 0;
}

static struct mount *victim(struct namespace *ns, const char *who)
{
	struct mount *m = ns->root, *found = NULL;

	if (!strcmp(who, "last") && ns->last_read && !ns->pool[ns->last_read].gone)
		return &ns->pool[ns->last_read];
	if (!strcmp(who, "next"))
		while (m) {
			if (m->id > ns->last_read)
				found = m;
			m = m->id > ns->last_read ? m->left : m->right;
		}
	return found ? found : ns->live[draw(ns->n_live)];
}

static void create(struct namespace *ns, uint32_t mounts, uint32_t more)
{
	ns->capacity = 2 * mounts + more;
	ns->pool = calloc(ns->capacity + 1, sizeof(ns->pool[0]));
	ns->live = calloc(ns->capacity + 1, sizeof(ns->live[0]));
	ns->seen = calloc(ns->capacity + 1, 1);
	if (!ns->pool || !ns->live || !ns->seen)
		exit(1);
	/* some ids are gone already, as they are on any machine that has run for a while */
	for (uint32_t i = 0; i < mounts + mounts / 4; i++)
		come(ns);
	while (ns->n_live > mounts)
		go(ns, ns->live[draw(ns->n_live)]);
	ns->at_open = ns->newest;
}

int main(int argc, char **argv)
{
	long n[10];
	int files, open;

	if (argc != 10) {
		fprintf(stderr, "usage: %s MOUNTS SIZE GO COME any|next|last FILES STRICT LIMIT SEED\n",
			argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++)
		n[i] = atol(argv[i]);
	files = (int)n[6];
	limit = (uint64_t)n[8];
	random_state = (uint64_t)n[9] | 1;
	if (n[1] < 0 || n[2] < 0 || n[2] > BUFFER || files < 1 || files > MAX_FILES)
		return 2;
	for (int f = 0; f < files; f++)
		create(&spaces[f], (uint32_t)n[1], 1000 + 4 * (uint32_t)(n[4] * (n[1] + 1)));
	for (open = files; open;)
		for (int f = 0; f < files; f++) {
			struct namespace *ns = &spaces[f];
			const size_t size = n[2] ? (size_t)n[2] : LONGEST + draw(800);

			if (ns->ended)
				continue;
			if (n[7])
				try_small(ns);
			if (ns->ended || !read_once(ns, size)) {
				ns->ended = true;
				open--;
			}
			for (long i = 0; i < n[3] && ns->n_live > 1; i++)
				go(ns, victim(ns, argv[5]));
			for (long i = 0; i < n[4]; i++)
				come(ns);
			if (reads > 10 * (uint64_t)(n[1] + 10) * (uint64_t)files)
				end("reading does not come to an end");
		}
	/* the end is for ever */
	for (int f = 0; f < files && n[7]; f++)
		for (int i = 0; i < 3; i++) {
			come(&spaces[f]);
			if (read_once(&spaces[f], 4096))
				end("lines were read after the end of the file");
		}
	end("");
}
