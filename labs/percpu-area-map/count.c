/* SPDX-License-Identifier: MIT */
/*
 * count.c - how many words an allocator looks at and writes, and is it right?
 *
 *   count fill N SIZE newest|oldest|random LIMIT SEED
 *       N areas of SIZE units, then all of them are freed in that order.
 *   count holes N first|last LIMIT SEED [TIMES]
 *       N areas of two units and N/4 of four. The four units are freed, and
 *       every other one of the two, the longer ones first or last. Then N/4
 *       areas of four units are allocated, for which most holes are too short.
 *       With TIMES all of them are so many times as long.
 *   count mixed OPS UNITS LONGEST LIMIT SEED
 *       OPS allocations and frees as they come, of areas of 1 to LONGEST units.
 *   count refuse N LIMIT SEED
 *       N areas of three units and, for each, frees that must be refused.
 *
 * Each answer is compared with a plain record of what is in use. Whoever needs
 * more than LIMIT words in all is stopped. At the end everything is free, and
 * the whole chunk must be there as one area.
 *
 * The chunk that areas.c is given is a handle: there is no memory behind it.
 * areas.c runs on a small stack that is wiped before each call, so nothing can
 * be remembered there; and our own variables are where no address of its code
 * or of ours leads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "areas.h"

#define HIDDEN static _Thread_local
#ifdef __SANITIZE_ADDRESS__
#define STACK (1 << 20) /* its own functions take more */
#else
#define STACK 65536
#endif
#define WIPED 60000 /* the rest is for our own few calls */

enum { INIT, ALLOC, FREE, KINDS };

HIDDEN struct chunk *handle;
HIDDEN uint32_t units, words, *notebook;
HIDDEN uint32_t *length_at; /* of the area in use that begins there, or 0 */
HIDDEN uint8_t *in_use;
HIDDEN uint32_t *live; /* where the areas in use begin, in no order */
HIDDEN uint32_t n_live;
HIDDEN uint64_t steps[KINDS], calls[KINDS], limit;
HIDDEN int kind;
HIDDEN uint64_t random_state;

static void end(const char *fault)
{
	printf("{\"init\": %llu, \"alloc\": %llu, \"free\": %llu, \"allocs\": %llu, "
	       "\"frees\": %llu, \"fault\": \"%s\"}\n",
	       (unsigned long long)steps[INIT], (unsigned long long)steps[ALLOC],
	       (unsigned long long)steps[FREE], (unsigned long long)calls[ALLOC],
	       (unsigned long long)calls[FREE], fault);
	fflush(stdout);
	exit(0);
}

/* --- What areas.h promises -------------------------------------------------- */

static void count_one(struct chunk *c, uint32_t word)
{
	if (c != handle || word >= words)
		end("a word was asked for that the chunk does not have");
	if (++steps[kind] > limit)
		end("too many words were looked at or written");
}

uint32_t units_of(struct chunk *c)
{
	if (c != handle)
		end("something was taken for the chunk that is not");
	return units;
}

uint32_t peek(struct chunk *c, uint32_t word)
{
	count_one(c, word);
	return notebook[word];
}

void poke(struct chunk *c, uint32_t word, uint32_t value)
{
	count_one(c, word);
	notebook[word] = value;
}

/* --- The record ------------------------------------------------------------- */

static uint32_t draw(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state % below);
}

/* What a call has left on the stack, the next one must not find. */
static __attribute__((noinline)) void wipe(void)
{
	volatile uint64_t below[WIPED / sizeof(uint64_t)];

	for (size_t i = 0; i < WIPED / sizeof(below[0]); i++)
		below[i] = 0; /* no memset(): it may have to be looked up, below this */
}

static void begin(uint32_t n)
{
	units = n;
	words = WORDS_BEFORE + WORDS_PER_UNIT * units;
	handle = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	notebook = calloc(words, sizeof(notebook[0]));
	length_at = calloc(units + 1, sizeof(length_at[0]));
	in_use = calloc(units + 1, 1);
	live = calloc(2 * (size_t)units + 1, sizeof(live[0]));
	if (handle == MAP_FAILED || !notebook || !length_at || !in_use || !live) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	kind = INIT;
	wipe();
	area_init(handle);
}

/* Is there a free run of that length? Units are looked at once for each call. */
static int fits(uint32_t n)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < units && run < n; i++)
		run = in_use[i] ? 0 : run + 1;
	return n > 0 && run >= n;
}

/* Returns whether there was room. */
static int allocate(uint32_t n)
{
	int64_t at;

	kind = ALLOC;
	calls[ALLOC]++;
	wipe();
	at = area_alloc(handle, n);
	if (at < 0) {
		if (fits(n))
			end("an allocation failed although enough units in a row are free");
		return 0;
	}
	if (n == 0)
		end("an area of no units was allocated");
	if (at + n > units)
		end("an area does not lie in the chunk");
	for (uint32_t i = 0; i < n; i++)
		if (in_use[at + i]++)
			end("an area overlaps another one that is in use");
	length_at[at] = n;
	live[n_live++] = (uint32_t)at;
	return 1;
}

static void release(uint32_t at)
{
	const uint32_t n = length_at[at];

	kind = FREE;
	calls[FREE]++;
	wipe();
	if (area_free(handle, at) != n)
		end("area_free() did not return the length of the area");
	length_at[at] = 0;
	memset(in_use + at, 0, n);
}

static void give_back(uint32_t slot)
{
	const uint32_t at = live[slot];

	live[slot] = live[--n_live];
	release(at);
}

static void refuse(uint32_t at)
{
	kind = FREE;
	calls[FREE]++;
	wipe();
	if (area_free(handle, at) != 0)
		end("area_free() freed what is no area in use");
}

static void give_all_back(const char *order)
{
	if (!strcmp(order, "oldest")) {
		for (uint32_t i = 0; i < n_live; i++)
			release(live[i]);
		n_live = 0;
	}
	while (n_live)
		give_back(!strcmp(order, "newest") ? n_live - 1 : draw(n_live));
}

/* All is free: is it one area again? Not counted among the rest. */
static void finish(void)
{
	uint64_t before[KINDS], called[KINDS];

	memcpy(before, steps, sizeof(before));
	memcpy(called, calls, sizeof(called));
	if (n_live == 0 && !allocate(units))
		end("all areas are free, and they are not one");
	memcpy(steps, before, sizeof(before));
	memcpy(calls, called, sizeof(called));
	end("");
}

/* --- The scenarios ---------------------------------------------------------- */

static void fill(uint32_t n, uint32_t size, const char *order)
{
	begin(n * size + 7);
	for (uint32_t i = 0; i < n; i++)
		allocate(size);
	give_all_back(order);
	finish();
}

/* Free the areas of that length, or every other one, by address. */
static void make_holes(uint32_t length, uint32_t every)
{
	uint32_t seen = 0;

	for (uint32_t at = 0; at < units; at++)
		if (length_at[at] == length && seen++ % every == 0)
			release(at);
}

static void holes(uint32_t n, const char *longer, uint32_t times)
{
	begin(2 * times * n + n / 4 * (4 * times + 1));
	for (uint32_t i = 0; i < n; i++)
		allocate(2 * times);
	for (uint32_t i = 0; i < n / 4; i++) {
		allocate(4 * times);
		allocate(1); /* or they would become one when they are freed */
	}
	if (!strcmp(longer, "first"))
		make_holes(4 * times, 1);
	make_holes(2 * times, 2);
	if (strcmp(longer, "first") != 0)
		make_holes(4 * times, 1);
	for (uint32_t i = 0; i < n / 4; i++)
		allocate(4 * times);
	n_live = 0;
	for (uint32_t at = 0; at < units; at++)
		if (length_at[at])
			live[n_live++] = at;
	give_all_back("random");
	finish();
}

static void mixed(uint32_t ops, uint32_t units, uint32_t longest)
{
	begin(units);
	for (uint32_t i = 0; i < ops; i++) {
		/* fuller and emptier by turns, so that both ends are met */
		const uint32_t bias = i / (ops / 8 + 1) % 2 ? 3 : 7;

		if (n_live && draw(10) >= bias)
			give_back(draw(n_live));
		else
			allocate(1 + draw(longest));
	}
	give_all_back("random");
	finish();
}

static void refusals(uint32_t n)
{
	uint32_t last = 0;

	begin(4 * n + 5);
	for (uint32_t i = 0; i < n; i++)
		allocate(3);
	for (uint32_t i = 0; i < n; i++) {
		last = live[i];
		refuse(last + 1);
		refuse(last + 2);
	}
	for (uint32_t i = 0; i < n / 2; i++) {
		const uint32_t slot = draw(n_live);

		last = live[slot];
		give_back(slot);
		refuse(last);     /* twice */
		refuse(last + 1); /* in what is free now */
	}
	refuse(units);
	refuse(units + 12345);
	refuse(UINT32_MAX);
	refuse(1u << 30); /* its words' numbers, times four, begin again */
	if (allocate(0))
		end("an area of no units was allocated");
	if (allocate(units) || allocate(units + 1) || allocate(1u << 31) ||
	    allocate(UINT32_MAX))
		end("an area was allocated that is longer than what is free");
	give_all_back("random");
	refuse(last);
	refuse(0);
	finish();
}

static uint32_t number(const char *text)
{
	return (uint32_t)strtoul(text, NULL, 10);
}

static void run(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const int needed = !strcmp(what, "fill")  ? 7 :
			   !strcmp(what, "mixed") ? 7 :
			   !strcmp(what, "holes") ? 6 :
			   !strcmp(what, "refuse") ? 5 : 0;

	if (argc != needed && !(needed == 6 && argc == 7)) {
		fprintf(stderr, "usage: see the comment at the top of count.c\n");
		exit(2);
	}
	limit = strtoull(argv[needed - 2], NULL, 10);
	random_state = strtoull(argv[needed - 1], NULL, 10) | 1;
	if (!strcmp(what, "fill"))
		fill(number(argv[2]), number(argv[3]), argv[4]);
	if (!strcmp(what, "mixed"))
		mixed(number(argv[2]), number(argv[3]), number(argv[4]));
	if (!strcmp(what, "holes"))
		holes(number(argv[2]), argv[3], argc > 6 ? number(argv[6]) : 1);
	refusals(number(argv[2]));
}

int main(int argc, char **argv)
{
	static ucontext_t inside, outside;
	char *stack = mmap(NULL, 2 * STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED || mprotect(stack + STACK, STACK, PROT_READ | PROT_WRITE) ||
	    getcontext(&inside))
		return 1;
	inside.uc_stack.ss_sp = stack + STACK;
	inside.uc_stack.ss_size = STACK;
	makecontext(&inside, (void (*)(void))run, 2, argc, argv);
	return swapcontext(&outside, &inside);
}
