/* SPDX-License-Identifier: MIT */
/*
 * areas.c - an allocator of areas.
 *
 * The only file of this lab that is handed in. areas.h says what the three
 * functions promise.
 */
#include "areas.h"

/*
 * Boundary tags: the first unit of an area has its length and whether it is in
 * use, the last unit of a free one has where it begins. So whoever frees an
 * area sees both neighbours at once. Free areas of one length are in one list,
 * those of LONG units and more in the last; a bit for each list says that
 * there is something in it, so the shortest that will do is found at once.
 */
#define LONG 8u /* the last list */
#define BITS 0u  /* three words: lists 0-31, 32-63, 64 */
#define HEAD(list) (8u + (list))

/* The words of a unit. */
#define TAG(unit) (WORDS_BEFORE + 4 * (unit)) /* length << 1 | in use, or 0 */
#define NEXT(unit) (TAG(unit) + 1)            /* in its list, unit + 1 or 0 */
#define PREVIOUS(unit) (TAG(unit) + 2)
#define BEGIN(unit) (TAG(unit) + 3) /* of the free area that ends here, + 1 */

static uint32_t list_of(uint32_t n)
{
	return n < LONG ? n : LONG;
}

static void flip(struct chunk *c, uint32_t list)
{
	const uint32_t word = BITS + list / 32;

	poke(c, word, peek(c, word) ^ 1u << list % 32);
}

static void put_in(struct chunk *c, uint32_t unit, uint32_t n)
{
	const uint32_t list = list_of(n), first = peek(c, HEAD(list));

	poke(c, TAG(unit), n << 1);
	poke(c, BEGIN(unit + n - 1), unit + 1);
	poke(c, NEXT(unit), first);
	poke(c, PREVIOUS(unit), 0);
	poke(c, HEAD(list), unit + 1);
	if (first)
		poke(c, PREVIOUS(first - 1), unit + 1);
	else
		flip(c, list);
}

static void take_out(struct chunk *c, uint32_t unit, uint32_t n)
{
	const uint32_t next = peek(c, NEXT(unit)), previous = peek(c, PREVIOUS(unit));
	const uint32_t list = list_of(n);

	poke(c, TAG(unit), 0);
	poke(c, BEGIN(unit + n - 1), 0);
	if (next)
		poke(c, PREVIOUS(next - 1), previous);
	if (previous)
		poke(c, NEXT(previous - 1), next);
	else
		poke(c, HEAD(list), next);
	if (!next && !previous)
		flip(c, list);
}

/* The first list, from this one on, that has something in it; LONG + 1: none. */
static uint32_t first_list(struct chunk *c, uint32_t list)
{
	while (list <= LONG) {
		const uint32_t bits = peek(c, BITS + list / 32) >> list % 32;

		if (bits)
			return list + (uint32_t)__builtin_ctz(bits);
		list = (list / 32 + 1) * 32;
	}
	return LONG + 1;
}

void area_init(struct chunk *c)
{
	put_in(c, 0, units_of(c));
}

int64_t area_alloc(struct chunk *c, uint32_t n)
{
	const uint32_t list = first_list(c, list_of(n));
	uint32_t at, length;

	if (n == 0 || list > LONG)
		return -1;
	for (at = peek(c, HEAD(list)); at; at = peek(c, NEXT(at - 1))) {
		length = peek(c, TAG(at - 1)) >> 1;
		if (length >= n)
			break; /* at once, unless n is LONG or more */
	}
	if (!at)
		return -1;
	take_out(c, --at, length);
	if (length > n)
		put_in(c, at + n, length - n);
	poke(c, TAG(at), n << 1 | 1);
	return at;
}

uint32_t area_free(struct chunk *c, uint32_t unit)
{
	const uint32_t units = units_of(c);
	const uint32_t tag = unit < units ? peek(c, TAG(unit)) : 0;
	const uint32_t freed = tag >> 1;
	uint32_t n = freed, before, behind;

	if (!(tag & 1))
		return 0;
	poke(c, TAG(unit), 0);
	behind = unit + n < units ? peek(c, TAG(unit + n)) : 1;
	if (!(behind & 1)) {
		take_out(c, unit + n, behind >> 1);
		n += behind >> 1;
	}
	before = unit ? peek(c, BEGIN(unit - 1)) : 0;
	if (before) {
		n += unit - (before - 1);
		take_out(c, before - 1, unit - (before - 1));
		unit = before - 1;
	}
	put_in(c, unit, n);
	return freed;
}
