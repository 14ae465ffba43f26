/* SPDX-License-Identifier: MIT */
/*
 * lockref.h - a ticket lock and a reference count in one word of 64 bits.
 *
 *   bits  0-15   the turn: the ticket that holds the lock, if anybody does
 *   bits 16-31   the next ticket to be drawn; equal to the turn: nobody holds it
 *   bits 32-63   the count; below zero: dead, and dead for ever
 *
 * The word can only be reached by the functions below. They are where others
 * may act in between, and where accesses are counted.
 */
#ifndef LOCKREF_H
#define LOCKREF_H

#include <stdbool.h>
#include <stdint.h>

struct lockref;

/* How long a call waits for a held lock before it asks for the lock itself. */
struct patience {
	int looks; /* looks at the word, the first one and failed swaps included */
	int turns; /* holders that are waited for: the one that was met is number 1 */
};

/* --- Given ---------------------------------------------------------------- */

/* One look at the word. */
uint64_t look(struct lockref *ref);

/*
 * If the word is still *seen, make it new. Otherwise change nothing and store
 * what the word is into *seen, which is as good as a look, and counts as one.
 */
bool swap(struct lockref *ref, uint64_t *seen, uint64_t new);

/* Draw a ticket and wait in line, however long it takes. */
void take_lock(struct lockref *ref);
void drop_lock(struct lockref *ref);

/* Change the count; only for whoever holds the lock. */
void set_count(struct lockref *ref, int32_t count);

static inline uint16_t turn_of(uint64_t word)
{
	return (uint16_t)word;
}

static inline bool is_locked(uint64_t word)
{
	return (uint16_t)word != (uint16_t)(word >> 16);
}

static inline int32_t count_of(uint64_t word)
{
	return (int32_t)(word >> 32);
}

static inline uint64_t with_count(uint64_t word, int32_t count)
{
	return (uint64_t)(uint32_t)count << 32 | (uint32_t)word;
}

/* --- Yours, in lockref.c --------------------------------------------------- */

/* Take a reference. Returns false, and does nothing, if the object is dead. */
bool ref_get(struct lockref *ref, struct patience patience);

/*
 * Drop a reference, unless it is the last one. Returns true if it was
 * dropped. If it is the last: returns false with the lock held and the count
 * still 1, so that the caller can take the object apart.
 */
bool ref_put(struct lockref *ref, struct patience patience);

#endif
