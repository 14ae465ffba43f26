/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_c2c.c - programs of which it is known what the cache lines do.
 *
 *   padded    each process counts in a line of its own: nothing is shared
 *   unpadded  each counts in its own word of one line: it moves as often as
 *             two processes' operations alternate
 *   pingpong  two processes take turns with one word: every turn begins with
 *             a load that finds the line modified by the other, so that each
 *             operation has one HITM load, and its store one invalidation
 *   ring      one process fills a slot, the other empties it, by turns: two
 *             lines (slot and index) move to and fro
 *   readonly  all read one table that nobody writes
 *   seldom    as unpadded, but that each only reads in three of four operations
 *   exchanged all leave their number in one word, by load and compare-and-exchange;
 *             counted is whose number an attempt finds: its own, that of its
 *             core's other thread (of twice as many CPUs as cores), another's
 *   filled    each process fills a page of its own by one string instruction
 *   queued    each counts in one word under the models' queued lock: who waits
 *             writes into the place of whoever came just before, each time
 *             another one
 *
 * The counts say where the lines are, so that the gate's own are left out.
 */
#include "../locks.h"

#include "args.h"
#include "gate.h"
#include "sys.h"
#include "work.h"

#define SLOTS 8
#define LINE 64
#define TABLE 64 /* lines */
#define PROCS 64
#define PAGE 4096
#define WAIT 1000 /* queued: turns of a loop between two operations, on average */

static const struct param params[] = {
	{ "kind", PARAM_WORD, "pingpong", 0, 0,
	  "padded|unpadded|pingpong|ring|readonly|seldom|exchanged|filled|queued", "what the processes do" },
	{ "ops", PARAM_NUMBER, "1000", 1, 100000000, NULL,
	  "operations of each process" },
	{ 0 },
};

struct line {
	_Alignas(LINE) volatile uint64_t word[LINE / 8];
};

/* Pages apart, so that nothing else is near. */
static struct field {
	_Alignas(PAGE) struct line own[PROCS]; /* padded, exchanged: one for each process */
	_Alignas(PAGE) struct line one;     /* unpadded, pingpong, exchanged */
	_Alignas(PAGE) struct line slot[SLOTS];
	_Alignas(PAGE) struct line filled, emptied; /* ring: numbers of slots */
	_Alignas(PAGE) struct line table[TABLE];
	_Alignas(PAGE) uint8_t page[PROCS][PAGE]; /* filled */
	_Alignas(PAGE) _Atomic uint32_t lock;	  /* queued */
	_Alignas(PAGE) struct lock_node node[PROCS];
} *field;

enum { OWN, TWIN, OTHER }; /* exchanged: words of the line that counts whose number was there */

static unsigned procs;
static uint64_t all_ops;

static void op_padded(struct worker *w, uint64_t i)
{
	(void)i;
	field->own[w->id].word[0]++;
}

static void op_unpadded(struct worker *w, uint64_t i)
{
	(void)i;
	field->one.word[w->id % 8]++;
}

static void op_pingpong(struct worker *w, uint64_t i)
{
	volatile uint64_t *turn = &field->one.word[0];

	while (*turn != 2 * i + w->id)
		relax();
	*turn = 2 * i + w->id + 1;
}

static void op_ring(struct worker *w, uint64_t i)
{
	volatile uint64_t *filled = &field->filled.word[0];
	volatile uint64_t *emptied = &field->emptied.word[0];
	volatile uint64_t *slot = &field->slot[i % SLOTS].word[0];

	if (w->id == 0) {
		while (i - *emptied >= SLOTS)
			relax();
		*slot = i * 3 + 1;
		*filled = i + 1;
	} else {
		while (*filled <= i)
			relax();
		if (*slot != i * 3 + 1)
			fail("the ring has lost slot %" PRIu64, i);
		*emptied = i + 1;
	}
}

static void op_readonly(struct worker *w, uint64_t i)
{
	if (field->table[(i * 7 + w->id) % TABLE].word[0] != 1)
		fail("the table has changed");
}

static void op_seldom(struct worker *w, uint64_t i)
{
	volatile uint64_t *word = &field->one.word[w->id % 8];
	const uint64_t now = *word;

	if (i % 4 == 0)
		*word = now + 1;
}

static void op_exchanged(struct worker *w, uint64_t i)
{
	volatile uint64_t *word = &field->one.word[0];
	volatile uint64_t *attempts = field->own[w->id].word;
	bool done = false;

	while (!done) {
		uint64_t found = *word;
		unsigned from;

		done = __atomic_compare_exchange_n(word, &found, (i + 1) << 8 | w->id, false,
						   __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
		from = found & 255;
		attempts[from == w->id ? OWN : from % (procs / 2) == w->id % (procs / 2) ? TWIN :
											   OTHER]++;
	}
}

static void op_filled(struct worker *w, uint64_t i)
{
	uint8_t *at = field->page[w->id];
	uint64_t n = PAGE;

	__asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"((uint8_t)i) : "memory");
}

/* Twice as many instructions. Not each time as many, or all would come in one order for ever. */
static void wait_for(uint64_t n)
{
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(n) : : "cc");
}

static void op_queued(struct worker *w, uint64_t i)
{
	static uint64_t drawn; /* each process's own */

	drawn = drawn * 6364136223846793005 + 2 * w->id + 1;
	(void)i;
	wait_for(WAIT / 2 + (drawn >> 33) % WAIT);
	queued_acquire(&field->lock, field->node, w->id);
	field->one.word[0]++;
	queued_release(&field->lock);
}

static void check_sum(const char *kind)
{
	uint64_t sum = 0, expected = procs * all_ops;

	if (!strcmp(kind, "padded"))
		for (unsigned i = 0; i < procs; i++)
			sum += field->own[i].word[0];
	else if (!strcmp(kind, "unpadded"))
		for (unsigned i = 0; i < 8; i++)
			sum += field->one.word[i];
	else if (!strcmp(kind, "pingpong") || !strcmp(kind, "queued"))
		sum = field->one.word[0];
	else if (!strcmp(kind, "exchanged")) {
		for (unsigned i = 0; i < procs; i++)
			for (unsigned n = OWN; n <= OTHER; n++)
				sum += field->own[i].word[n];
		sum = sum < expected ? sum : expected; /* who fails tries again */
	} else if (!strcmp(kind, "ring"))
		sum = field->filled.word[0] + field->emptied.word[0];
	else
		return;
	if (sum != expected)
		fail("%s: %" PRIu64 " operations have counted %" PRIu64, kind,
		     expected, sum);
}

static void report_attempts(struct result *result)
{
	static const char *const whose[] = { "own", "twin", "other" };

	for (unsigned n = 0; n < ARRAY_SIZE(whose); n++) {
		uint64_t sum = 0;

		for (unsigned i = 0; i < procs; i++)
			sum += field->own[i].word[n];
		count(result, whose[n], sum);
	}
}

static void run(void)
{
	static const struct {
		const char *kind;
		void (*op)(struct worker *w, uint64_t i);
		unsigned least, most;
	} kinds[] = {
		{ "padded", op_padded, 1, PROCS },
		{ "unpadded", op_unpadded, 1, 8 },
		{ "seldom", op_seldom, 1, 8 },
		{ "pingpong", op_pingpong, 2, 2 },
		{ "ring", op_ring, 2, 2 },
		{ "readonly", op_readonly, 1, PROCS },
		{ "exchanged", op_exchanged, 2, PROCS },
		{ "filled", op_filled, 1, PROCS },
		{ "queued", op_queued, 1, PROCS },
	};
	const char *kind = arg_word("kind");
	struct gate gate = { 0 };
	struct result result = { .label = kind };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kinds[i].kind, kind) != 0)
			continue;
		gate.op = kinds[i].op;
		procs = worker_cpus();
		procs = procs < kinds[i].least ? kinds[i].least :
			procs > kinds[i].most  ? kinds[i].most  : procs;
		procs = arg_procs(procs);
		if (procs < kinds[i].least || procs > kinds[i].most)
			fail("procs=%u: %s is for %u to %u processes", procs,
			     kind, kinds[i].least, kinds[i].most);
	}
	if (!strcmp(kind, "exchanged") && procs % 2)
		fail("procs=%u: exchanged is for pairs, the threads of a core: give an even number",
		     procs);
	if (procs > worker_cpus())
		fail("%s needs %u CPUs; there are %u", kind, procs,
		     worker_cpus());
	gate.procs = procs;
	gate.ops = all_ops = arg_number("ops");
	field = shared_memory(sizeof(*field));
	for (unsigned i = 0; i < TABLE; i++)
		field->table[i].word[0] = 1;
	gate_run(&gate, &result);
	check_sum(kind);
	count(&result, "address", (uint64_t)(uintptr_t)field);
	count(&result, "bytes", sizeof(*field));
	if (!strcmp(kind, "exchanged"))
		report_attempts(&result);
	report_result(&result);
}

const struct workload work_c2c_validate = {
	"c2c-validate", "programs of which it is known what the cache lines do",
	params, run, false,
};
