/* SPDX-License-Identifier: MIT */
/*
 * lines.c - who takes which cache line from whom, for a layout.
 *
 *   lines layout
 *
 * The offsets of all fields, and the object's size and alignment.
 *
 *   lines run OBJECTS LOOKERS CHECKERS REFS RECLAIMERS OPS SEED
 *
 * An array of objects, and CPUs, each of which does one kind of thing with
 * objects drawn by lot, OPS times; which CPU is next is drawn as well. A line
 * is modified in one cache, or may be in many: a read that hits a line which
 * another CPU has modified is a HITM, as `perf c2c` counts them. Caches are
 * endless, and every CPU has seen all objects before the counting begins.
 * There is no time in it: the same arguments give the same counts everywhere.
 *
 * What object.c says of its fields is asked once and then believed, after it
 * has been seen that each has bytes of its own, and that all objects are alike.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"

#define HIDDEN static _Thread_local
#define MAX_OBJECTS 64
#define MAX_SIZE 4096
#define MAX_CPUS 64
#define PAGE 4096

enum kind { LOOKER, CHECKER, REFERENCE, RECLAIMER, KINDS };

static const struct {
	const char *name;
	size_t size, align;
} known[FIELDS] = {
	{ "next", 8, 8 },     { "key", 8, 8 },      { "flags", 4, 4 },
	{ "seq", 4, 4 },      { "name", 22, 1 },    { "mode", 2, 2 },
	{ "owner", 8, 8 },    { "ops", 8, 8 },      { "refs", 4, 4 },
	{ "hits", 8, 8 },     { "lock", 4, 4 },     { "newer", 8, 8 },
	{ "older", 8, 8 }, { "rcu", 16, 8 },
};

/* What each kind touches, up to the end mark. */
static const enum field touched[KINDS][8] = {
	{ F_NEXT, F_KEY, F_FLAGS, F_SEQ, F_NAME, FIELDS },
	{ F_FLAGS, F_MODE, F_OWNER, F_OPS, FIELDS },
	{ F_REFS, F_HITS, FIELDS },
	{ F_LOCK, F_NEWER, F_OLDER, FIELDS },
};

HIDDEN size_t size, align, offset[FIELDS];
/* Not beside the rest: this is where object.c gets addresses of. */
static unsigned char memory[PAGE + MAX_OBJECTS * MAX_SIZE + PAGE];

static int refuse(const char *why)
{
	printf("{\"fault\": \"%s\"}\n", why);
	return 0;
}

/* Aligned as the type asks, and no better: what it does not say is not so. */
static unsigned char *first_object(void)
{
	uintptr_t place = ((uintptr_t)memory + PAGE - 1) / PAGE * PAGE;

	return (unsigned char *)place + (align < LINE ? align : 0);
}

/* The layout, into size, align and offset; or what is wrong with it. */
static const char *ask(void)
{
	HIDDEN unsigned char owned[MAX_SIZE];
	HIDDEN char words[80];

	size = object_size();
	align = object_align();
	if (size < 1 || size > MAX_SIZE)
		return "an object has no size, or more than 4096 bytes";
	if (align < 1 || align > PAGE || (align & (align - 1)) || size % align)
		return "the alignment is none, or the size no multiple of it";
	for (int o = 0; o < MAX_OBJECTS; o++)
		for (int f = 0; f < FIELDS; f++) {
			unsigned char *object = first_object() + (size_t)o * size;
			unsigned char *place = object_field((struct object *)object, f);
			size_t at = (uintptr_t)place - (uintptr_t)object;

			snprintf(words, sizeof(words), "%s", known[f].name);
			if (at > size || at + known[f].size > size)
				return strcat(words, " is not within the object");
			if (at % known[f].align)
				return strcat(words, " is not at its natural alignment");
			if (o && at != offset[f])
				return strcat(words, " is elsewhere in another object");
			offset[f] = at;
		}
	for (int f = 0; f < FIELDS; f++)
		for (size_t b = 0; b < known[f].size; b++)
			if (owned[offset[f] + b]++) {
				snprintf(words, sizeof(words), "%s", known[f].name);
				return strcat(words, " lies upon another field");
			}
	return NULL;
}

static int layout(void)
{
	printf("{\"fault\": \"\", \"size\": %zu, \"align\": %zu, \"offsets\": {", size, align);
	for (int f = 0; f < FIELDS; f++)
		printf("%s\"%s\": %zu", f ? ", " : "", known[f].name, offset[f]);
	puts("}}");
	return 0;
}

/* --- Caches ----------------------------------------------------------------- */

#define LINES ((MAX_OBJECTS * MAX_SIZE + 2 * PAGE) / LINE)

HIDDEN struct {
	int owner; /* the CPU that has modified it, plus 1; or 0 */
	uint64_t copies;
} line[LINES];
HIDDEN uint64_t hitm[KINDS], lines_read[KINDS], done[KINDS], draws;

static uint64_t draw(uint64_t below)
{
	draws ^= draws << 13;
	draws ^= draws >> 7;
	draws ^= draws << 17;
	return draws % below;
}

static void touch(size_t number, int cpu, enum kind kind)
{
	if (line[number].owner && line[number].owner != cpu + 1)
		hitm[kind]++;
	if (kind == REFERENCE || kind == RECLAIMER) {
		line[number].owner = cpu + 1;
		line[number].copies = 1ull << cpu;
	} else if (line[number].owner != cpu + 1) {
		line[number].owner = 0;
		line[number].copies |= 1ull << cpu;
	}
}

static void operate(int cpu, enum kind kind, size_t object)
{
	/* From the beginning of a line: where an object begins matters. */
	const size_t base = (align < LINE ? align : 0) + object * size;
	bool seen[LINES] = { false };

	done[kind]++;
	for (const enum field *f = touched[kind]; *f != FIELDS; f++) {
		const size_t from = (base + offset[*f]) / LINE;
		const size_t to = (base + offset[*f] + known[*f].size - 1) / LINE;

		for (size_t l = from; l <= to; l++) {
			touch(l, cpu, kind);
			lines_read[kind] += !seen[l];
			seen[l] = true;
		}
	}
}

/* The lines that hold bytes of two objects. */
static int shared_lines(size_t objects)
{
	const size_t base = align < LINE ? align : 0;
	int shared = 0;

	for (size_t o = 1; o < objects; o++)
		shared += (base + o * size) % LINE != 0;
	return shared;
}

static int run(char **words)
{
	const size_t objects = strtoul(words[0], NULL, 10);
	const uint64_t ops = strtoull(words[5], NULL, 10);
	enum kind kind_of[MAX_CPUS];
	size_t cpus = 0;

	for (int kind = 0; kind < KINDS; kind++)
		for (int n = atoi(words[1 + kind]); n > 0 && cpus < MAX_CPUS; n--)
			kind_of[cpus++] = kind;
	if (objects < 1 || objects > MAX_OBJECTS || !cpus || !ops)
		return 2;
	draws = strtoull(words[6], NULL, 10) | 1;
	for (size_t cpu = 0; cpu < cpus; cpu++)
		for (size_t o = 0; o < objects; o++)
			operate((int)cpu, kind_of[cpu], o);
	/* The last writer's lines are read once more, so that counting begins with copies. */
	for (size_t cpu = 0; cpu < cpus; cpu++)
		for (size_t o = 0; o < objects && kind_of[cpu] <= CHECKER; o++)
			operate((int)cpu, kind_of[cpu], o);
	memset(hitm, 0, sizeof(hitm));
	memset(lines_read, 0, sizeof(lines_read));
	memset(done, 0, sizeof(done));
	for (uint64_t n = 0; n < ops * cpus; n++) {
		const int cpu = (int)draw(cpus);

		operate(cpu, kind_of[cpu], draw(objects));
	}
	printf("{\"fault\": \"\", \"shared_lines\": %d, \"hitm\": [%llu, %llu, %llu, %llu], "
	       "\"lines\": [%llu, %llu, %llu, %llu], \"ops\": [%llu, %llu, %llu, %llu]}\n",
	       shared_lines(objects), (unsigned long long)hitm[0], (unsigned long long)hitm[1],
	       (unsigned long long)hitm[2], (unsigned long long)hitm[3],
	       (unsigned long long)lines_read[0], (unsigned long long)lines_read[1],
	       (unsigned long long)lines_read[2], (unsigned long long)lines_read[3],
	       (unsigned long long)done[0], (unsigned long long)done[1],
	       (unsigned long long)done[2], (unsigned long long)done[3]);
	return 0;
}

int main(int argc, char **argv)
{
	const char *why = ask();
	int status = 2;

	if (argc == 2 && !strcmp(argv[1], "layout"))
		status = why ? refuse(why) : layout();
	else if (argc == 9 && !strcmp(argv[1], "run"))
		status = why ? refuse(why) : run(argv + 2);
	if (status == 2)
		fprintf(stderr, "see the comment at the top of lines.c for what can be asked\n");
	return status;
}
