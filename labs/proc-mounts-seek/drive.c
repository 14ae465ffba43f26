/* SPDX-License-Identifier: MIT */
/*
 * drive.c - read a list of mounts while they come and go, and count.
 *
 *   drive MOUNTS SIZE GO COME WHO FILES STRICT LIMIT SEED [FIRST]
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
 * more than LIMIT steps in the trees is stopped. FIRST is the first id, 1 if it is
 * not given: a namespace that has seen many mounts may begin at four billion.
 *
 * At the end each mount that was there from the first read to the last must
 * have been read once; the others do not matter. A read is short if it has left
 * room for a line that was due.
 *
 * The namespaces and mounts that reader.c is given are handles: there is no
 * memory behind them, and a mount's has nothing to do with its id. Its buffer
 * is between fences. It runs on a small stack that is wiped before each read,
 * so nothing can be remembered there; and our own variables are where no
 * address of its code or ours leads.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "mounts.h"

#define HIDDEN static _Thread_local
#ifdef __SANITIZE_ADDRESS__
#define STACK (1 << 20) /* its own functions take more */
#else
#define STACK 65536
#endif
#define WIPED 56000 /* the rest is for our own few calls */
#define PAGE 4096
#define MAX_FILES 4
#define LONGEST 120 /* bytes of a line */
#define BUFFER 65536
#define FENCE 64

struct node {
	uint32_t id, priority, slot;
	uint8_t seen;
	bool gone;
	struct node *left, *right;
};

struct space {
	char *door;         /* the namespace's handle; behind it those of pool[0], ... */
	struct node *root;
	struct node **live; /* in no order */
	struct node *pool;  /* in an order drawn by lot: see by_id() */
	uint32_t *place;
	uint32_t n_live, first, newest, capacity, at_open;
	uint64_t position;
	uint32_t last_read;
	bool ended;
};

/* What a read gets: its position and its buffer, and a page on each side that nobody has. */
struct desk {
	uint64_t position;
	char buffer[BUFFER + FENCE];
};

HIDDEN struct desk *desk;
HIDDEN struct space spaces[MAX_FILES];
HIDDEN uint64_t steps, reads, lines, shown, late, disordered, short_reads, limit;
HIDDEN uint64_t random_state;

static void end(const char *fault)
{
	uint64_t stayed = 0, missed = 0, repeated = 0;

	for (int f = 0; f < MAX_FILES; f++)
		for (uint32_t i = 0; i < spaces[f].n_live; i++) {
			const struct node *m = spaces[f].live[i];

			if (m->id > spaces[f].at_open)
				continue;
			stayed++;
			missed += m->seen == 0;
			repeated += m->seen > 1;
		}
	printf("{\"reads\": %llu, \"steps\": %llu, \"lines\": %llu, \"shown\": %llu, "
	       "\"stayed\": %llu, \"missed\": %llu, \"repeated\": %llu, "
	       "\"disordered\": %llu, \"late\": %llu, \"short\": %llu, \"fault\": \"%s\"}\n",
	       (unsigned long long)reads, (unsigned long long)steps,
	       (unsigned long long)lines, (unsigned long long)shown,
	       (unsigned long long)stayed, (unsigned long long)missed,
	       (unsigned long long)repeated, (unsigned long long)disordered,
	       (unsigned long long)late, (unsigned long long)short_reads, fault);
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

static struct node *by_id(const struct space *s, uint32_t id)
{
	return &s->pool[s->place[id - s->first]];
}

static struct space *space_of(const struct namespace *ns)
{
	for (int f = 0; f < MAX_FILES; f++)
		if (spaces[f].door && (const char *)ns == spaces[f].door)
			return &spaces[f];
	end("something was taken for the namespace that is not");
	return NULL;
}

static const struct mount *handle(const struct node *m)
{
	for (int f = 0; m && f < MAX_FILES; f++)
		if (m >= spaces[f].pool && m < spaces[f].pool + spaces[f].capacity)
			return (const struct mount *)(spaces[f].door + 1 + (m - spaces[f].pool));
	return NULL;
}

static const struct node *node_of(const struct mount *m)
{
	for (int f = 0; f < MAX_FILES; f++) {
		const struct space *s = &spaces[f];
		const size_t at = (size_t)((uintptr_t)m - (uintptr_t)s->door) - 1;

		if (!s->door || at >= s->capacity || !s->pool[at].id)
			continue;
		if (s->pool[at].gone)
			end("a mount was used that has gone: a pointer from an earlier read");
		return &s->pool[at];
	}
	end("something was taken for a mount that is none");
	return NULL;
}

const struct mount *tree_root(struct namespace *ns)
{
	step();
	return handle(space_of(ns)->root);
}

const struct mount *left_of(const struct mount *m)
{
	step();
	return handle(node_of(m)->left);
}

const struct mount *right_of(const struct mount *m)
{
	step();
	return handle(node_of(m)->right);
}

uint32_t id_of(const struct mount *m)
{
	return node_of(m)->id;
}

uint32_t newest_id(struct namespace *ns)
{
	return space_of(ns)->newest;
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
	const size_t length = line_of(node_of(m)->id, line);

	shown++;
	if (length > room)
		return 0;
	memcpy(place, line, length);
	return length;
}

/* --- The tree: a treap, so that it is balanced whatever comes and goes --------- */

static void split(struct node *tree, uint32_t id, struct node **low, struct node **high)
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

static struct node *join(struct node *low, struct node *high)
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

static void come(struct space *ns)
{
	struct node *m;

	if (ns->newest + 1 - ns->first >= ns->capacity)
		end("reading does not come to an end");
	m = by_id(ns, ++ns->newest);
	*m = (struct node){ .id = ns->newest, .priority = draw(1u << 31), .slot = ns->n_live };
	ns->live[ns->n_live++] = m;
	ns->root = join(ns->root, m);
}

static void go(struct space *ns, struct node *m)
{
	struct node *low, *rest, *high;

	split(ns->root, m->id, &low, &rest);
	split(rest, m->id + 1, &rest, &high);
	ns->root = join(low, high);
	m->gone = true;
	ns->live[m->slot] = ns->live[--ns->n_live];
	ns->live[m->slot]->slot = m->slot;
}

/* --- Reading -------------------------------------------------------------------- */

static void parse(struct space *ns, const char *text, size_t length)
{
	char line[LONGEST];

	while (length) {
		const uint32_t id = (uint32_t)strtoul(text, NULL, 10);
		size_t n;

		if (id < ns->first || id > ns->newest)
			end("a line was read that is of no mount");
		n = line_of(id, line);
		if (n > length || memcmp(text, line, n) != 0)
			end("a line was read that is not whole");
		by_id(ns, id)->seen += by_id(ns, id)->seen < 2;
		lines++;
		late += id > ns->at_open;
		disordered += id <= ns->last_read;
		ns->last_read = id;
		text += n;
		length -= n;
	}
}

/* What a call has left on the stack, the next one must not find. */
static __attribute__((noinline)) void wipe(void)
{
	volatile uint64_t below[WIPED / sizeof(uint64_t)];

	for (size_t i = 0; i < WIPED / sizeof(below[0]); i++)
		below[i] = 0; /* no memset(): it may have to be looked up, below this */
}

static long call_reader(struct space *ns, size_t size)
{
	long n;

	memset(desk->buffer + size, 'x', FENCE);
	desk->position = ns->position;
	wipe();
	n = mounts_read((struct namespace *)ns->door, &desk->position, desk->buffer, size);
	ns->position = desk->position;
	for (size_t i = 0; i < FENCE; i++)
		if (desk->buffer[size + i] != 'x')
			end("a read wrote behind its buffer");
	if (n > 0 && (size_t)n > size)
		end("a read returned more bytes than its buffer has");
	return n;
}

static void try_small(struct space *ns)
{
	const uint64_t before = ns->position;
	const long n = call_reader(ns, 8);

	if (n > 0)
		end("lines were read into a buffer in which none fits");
	if (n < 0 && ns->position != before)
		end("a read that failed has moved the position");
	if (n == 0)
		ns->ended = true;
}

/* The first mount with a greater id; NULL: there is none. */
static struct node *behind(const struct space *ns, uint32_t id)
{
	struct node *m = ns->root, *found = NULL;

	while (m) {
		if (m->id > id)
			found = m;
		m = m->id > id ? m->left : m->right;
	}
	return found;
}

/* One read(); returns whether there was anything. */
static bool read_once(struct space *ns, size_t size)
{
	const long n = call_reader(ns, size);
	const struct node *due;
	char line[LONGEST];

	reads++;
	if (n < 0)
		end("a read failed although a line fits into its buffer");
	if (n > 0 && ns->ended)
		end("lines were read after the end of the file");
	parse(ns, desk->buffer, (size_t)n);
	due = n > 0 ? behind(ns, ns->last_read) : NULL;
	short_reads += due && due->id <= ns->at_open && line_of(due->id, line) <= size - (size_t)n;
	return n > 0;
}

static struct node *victim(struct space *ns, const char *who)
{
	struct node *found = NULL;

	if (!strcmp(who, "last") && ns->last_read && !by_id(ns, ns->last_read)->gone)
		return by_id(ns, ns->last_read);
	if (!strcmp(who, "next"))
		found = behind(ns, ns->last_read);
	return found ? found : ns->live[draw(ns->n_live)];
}

static void create(struct space *ns, uint32_t mounts, uint32_t more, uint32_t first)
{
	ns->first = first;
	ns->newest = first - 1;
	ns->capacity = 2 * mounts + more;
	ns->door = mmap(NULL, ns->capacity + 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ns->pool = calloc(ns->capacity + 1, sizeof(ns->pool[0]));
	ns->live = calloc(ns->capacity + 1, sizeof(ns->live[0]));
	ns->place = calloc(ns->capacity + 1, sizeof(ns->place[0]));
	if (ns->door == MAP_FAILED || !ns->pool || !ns->live || !ns->place)
		exit(1);
	for (uint32_t i = 0; i < ns->capacity; i++) {
		const uint32_t other = draw(i + 1);

		ns->place[i] = ns->place[other];
		ns->place[other] = i;
	}
	/* some ids are gone already, as they are on any machine that has run for a while */
	for (uint32_t i = 0; i < mounts + mounts / 4; i++)
		come(ns);
	while (ns->n_live > mounts)
		go(ns, ns->live[draw(ns->n_live)]);
	ns->at_open = ns->newest;
}

static void run(int argc, char **argv)
{
	long n[11] = { [10] = 1 };
	int files, open;

	if (argc != 10 && argc != 11) {
		fprintf(stderr, "usage: %s MOUNTS SIZE GO COME any|next|last FILES STRICT LIMIT SEED "
			"[FIRST]\n",
			argv[0]);
		exit(2);
	}
	for (int i = 1; i < argc; i++)
		n[i] = atol(argv[i]);
	files = (int)n[6];
	limit = (uint64_t)n[8];
	random_state = (uint64_t)n[9] | 1;
	if (n[1] < 0 || n[2] < 0 || n[2] > BUFFER || files < 1 || files > MAX_FILES || n[10] < 1)
		exit(2);
	for (int f = 0; f < files; f++)
		create(&spaces[f], (uint32_t)n[1], 1000 + 4 * (uint32_t)(n[4] * (n[1] + 1)),
		       (uint32_t)n[10]);
	for (open = files; open;)
		for (int f = 0; f < files; f++) {
			struct space *ns = &spaces[f];
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

int main(int argc, char **argv)
{
	static ucontext_t inside, outside;
	const size_t room = (sizeof(*desk) + PAGE - 1) / PAGE * PAGE;
	char *pages = mmap(NULL, 2 * PAGE + room + 2 * STACK, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *stack = pages + 2 * PAGE + room + STACK;

	if (pages == MAP_FAILED || mprotect(pages + PAGE, room, PROT_READ | PROT_WRITE) ||
	    mprotect(stack, STACK, PROT_READ | PROT_WRITE) || getcontext(&inside))
		return 1;
	desk = (struct desk *)(pages + PAGE);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = STACK;
	makecontext(&inside, (void (*)(void))run, 2, argc, argv);
	return swapcontext(&outside, &inside);
}
