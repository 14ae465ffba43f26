/* SPDX-License-Identifier: MIT */
/*
 * Random allocations and frees against a trivially correct allocator: a byte
 * for each four bytes of the chunk, searched from the start for the lowest
 * place that fits. Every variant must choose the same place each time, refuse
 * when the trivial one refuses, and know which areas it gave away.
 *
 * cc -DMODEL='"models/percpu_area_map.c"' ...; ./a.out SEED STEPS
 */
#include MODEL

#include "dice.h"

#define BYTES 8192
#define LIVE 700
#define CELLS (BYTES / UNIT)

struct area {
	int32_t off, size;
};

static int32_t naive_alloc(char *cell, int32_t size, int32_t align)
{
	for (int32_t off = 0; off + size <= BYTES; off += align) {
		int32_t n = 0;

		while (n < size / UNIT && !cell[off / UNIT + n])
			n++;
		if (n == size / UNIT) {
			memset(cell + off / UNIT, 1, (size_t)n);
			return off;
		}
	}
	return -1;
}

/* What the variant's own books say is in use, cell by cell. */
static void in_use(const struct chunk *c, enum kind kind, char *cell)
{
	int32_t off = 0;

	memset(cell, 0, CELLS);
	if (kind == BITMAP) {
		for (uint32_t i = 0; i < CELLS; i++)
			cell[i] = c->taken[i / 64] >> (i % 64) & 1;
		return;
	}
	for (uint32_t i = 0; i < c->used; i++) {
		int32_t size = abs(c->map[i]);
		bool taken = c->map[i] < 0;

		if (has_offsets(kind)) {
			off = c->map[i] & ~1;
			size = (c->map[i + 1] & ~1) - off;
			taken = c->map[i] & 1;
		}
		memset(cell + off / UNIT, taken, (size_t)(size / UNIT));
		off += size;
	}
}

static int run(enum kind kind, uint64_t seed, int steps)
{
	static char cell[CELLS], books[CELLS];
	static struct area live[LIVE];
	uint64_t count[CT_MAX_COUNTERS] = { 0 };
	struct chunk c;
	int n = 0, refused = 0, most = 0;

	memset(cell, 0, sizeof(cell));
	dice = seed;
	if (chunk_create(&c, kind, BYTES, LIVE + 1))
		return -1;
	for (int i = 0; i < steps; i++) {
		/* waves: the chunk fills up until it refuses, then drains */
		const bool grow = roll(100) < ((i / 1500) % 2 ? 30u : 70u);

		if (n < LIVE && (grow || !n)) {
			const int32_t size = UNIT * (int32_t)(1 + roll(roll(8) ? 6 : 60));
			const int32_t align = UNIT << roll(roll(4) ? 2 : 7);
			const int32_t want = naive_alloc(cell, size, align);
			const int32_t got = area_alloc(kind, &c, count, size, align);

			if (got != want) {
				printf("%d: step %d: %d bytes aligned to %d at %d, not %d\n",
				       kind, i, size, align, got, want);
				return -1;
			}
			if (got < 0)
				refused++;
			else
				live[n++] = (struct area){ got, size };
			if (n > most)
				most = n;
		} else {
			const uint32_t k = roll((uint32_t)n);
			const struct area a = live[k];

			/* no area begins in the middle of one, or at a free place */
			if (a.size > UNIT &&
			    !area_free(kind, &c, count, a.off + UNIT)) {
				printf("%d: step %d: freed the middle of an area\n", kind, i);
				return -1;
			}
			if (area_free(kind, &c, count, a.off) ||
			    !area_free(kind, &c, count, a.off)) {
				printf("%d: step %d: freeing %d is confused\n", kind, i, a.off);
				return -1;
			}
			memset(cell + a.off / UNIT, 0, (size_t)(a.size / UNIT));
			live[k] = live[--n];
		}
		in_use(&c, kind, books);
		if (memcmp(cell, books, CELLS)) {
			printf("%d: step %d: the books are wrong\n", kind, i);
			return -1;
		}
	}
	while (n)
		if (area_free(kind, &c, count, live[--n].off))
			return -1;
	if (!chunk_empty_from(&c, kind, 0)) {
		printf("%d: all freed, but not one free area\n", kind);
		return -1;
	}
	printf("%d: good, %d refused, %d areas at most\n", kind, refused, most);
	chunk_destroy(&c);
	return refused ? 0 : -1; /* a chunk that never filled up tested little */
}

int main(int argc, char **argv)
{
	int bad = 0;

	if (argc < 3)
		return 2;
	for (int kind = 0; kind < KINDS; kind++)
		bad |= run((enum kind)kind, (uint64_t)atoll(argv[1]), atoi(argv[2]));
	return bad != 0;
}
