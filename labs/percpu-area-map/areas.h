/* SPDX-License-Identifier: MIT */
/*
 * areas.h - an allocator of areas whose every look and every write is counted.
 *
 * A chunk is a row of units. An area is a run of them, in use or free. All
 * that the allocator knows is in the chunk's notebook: words of 32 bits, all
 * zero at the start, WORDS_BEFORE of them and then WORDS_PER_UNIT for each
 * unit. What they mean is for you to say. There is no other memory: no static
 * variables, no allocation.
 */
#ifndef AREAS_H
#define AREAS_H

#include <stdint.h>

#define WORDS_BEFORE 256
#define WORDS_PER_UNIT 4

struct chunk;

/* --- Given ---------------------------------------------------------------- */

uint32_t units_of(struct chunk *c);                          /* costs nothing */
uint32_t peek(struct chunk *c, uint32_t word);               /* counted */
void poke(struct chunk *c, uint32_t word, uint32_t value);   /* counted */

/* --- Yours, in areas.c ----------------------------------------------------- */

/* Called once, before anything else: the whole chunk is one free area. */
void area_init(struct chunk *c);

/*
 * Take an area of n units out of a free one. Returns its first unit, or -1 if
 * n is 0 or no free area is that long. Neighbouring free areas are one: if n
 * units in a row are free, the allocation does not fail.
 */
int64_t area_alloc(struct chunk *c, uint32_t n);

/*
 * Give an area back. Returns its length, or 0, and changes nothing, if no area
 * in use begins at that unit.
 */
uint32_t area_free(struct chunk *c, uint32_t unit);

#endif
