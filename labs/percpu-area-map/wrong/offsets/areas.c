/* SPDX-License-Identifier: MIT */
/*
 * areas.c - as Linux 3.15 had it. Word 0: the number of areas; word 1: so many
 * at the start are in use; from word 2 on: where an area begins, times two,
 * plus one if it is in use; and the end of the chunk, in use.
 */
#include "areas.h"

#define AREAS 0
#define FULL 1
#define MAP(i) (2 + (i))

void area_init(struct chunk *c)
{
	poke(c, AREAS, 1);
	poke(c, FULL, 0);
	poke(c, MAP(0), 0);
	poke(c, MAP(1), units_of(c) << 1 | 1);
}

int64_t area_alloc(struct chunk *c, uint32_t n)
{
	const uint32_t areas = peek(c, AREAS), full = peek(c, FULL);
	uint32_t first_free = areas;

	for (uint32_t i = full; n > 0 && i < areas; i++) {
		const uint32_t begin = peek(c, MAP(i));
		uint32_t length;

		if (begin & 1)
			continue;
		if (first_free == areas)
			first_free = i;
		length = (peek(c, MAP(i + 1)) >> 1) - (begin >> 1);
		if (length < n)
			continue;
		if (length > n) {
			for (uint32_t k = areas + 1; k > i + 1; k--)
				poke(c, MAP(k), peek(c, MAP(k - 1)));
			poke(c, MAP(i + 1), begin + (n << 1));
			poke(c, AREAS, areas + 1);
		}
		poke(c, MAP(i), begin | 1);
		if (first_free == i)
			poke(c, FULL, i + 1);
		return begin >> 1;
	}
	return -1;
}

uint32_t area_free(struct chunk *c, uint32_t unit)
{
	const uint32_t areas = peek(c, AREAS);
	uint32_t low = 0, high = areas, gone = 0, length;

	if (unit >= units_of(c))
		return 0;
	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (peek(c, MAP(middle)) >> 1 < unit)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == areas || peek(c, MAP(low)) != (unit << 1 | 1))
		return 0;
	length = (peek(c, MAP(low + 1)) >> 1) - unit;
	if (low < peek(c, FULL))
		poke(c, FULL, low);
	poke(c, MAP(low), unit << 1);
	gone += !(peek(c, MAP(low + 1)) & 1);
	if (low > 0 && !(peek(c, MAP(low - 1)) & 1)) {
		gone++;
		low--;
	}
	if (gone) {
		for (uint32_t k = low + 1; k + gone <= areas; k++)
			poke(c, MAP(k), peek(c, MAP(k + gone)));
		poke(c, AREAS, areas - gone);
	}
	return length;
}
