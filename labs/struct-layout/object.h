/* SPDX-License-Identifier: MIT */
/*
 * object.h - what is in an object, and who touches it.
 *
 *   field       bytes  touched by
 *   next            8  lookups read it
 *   key             8  lookups read it
 *   flags           4  lookups and checks read it
 *   seq             4  lookups read it
 *   name           22  lookups read it
 *   mode            2  checks read it
 *   owner           8  checks read it
 *   ops             8  checks read it
 *   refs            4  references change it
 *   hits            8  references change it
 *   lock            4  the reclaimer changes it
 *   newer           8  the reclaimer changes it
 *   older           8  the reclaimer changes it
 *   rcu            16  nobody, until the object is freed
 *
 * A lookup and a check write nothing and take no reference. What they read is
 * written when the object is made, and then no more.
 */
#ifndef OBJECT_H
#define OBJECT_H

#include <stddef.h>
#include <stdint.h>

#define LINE 64 /* bytes of a cache line */

enum field {
	F_NEXT, F_KEY, F_FLAGS, F_SEQ, F_NAME, F_MODE, F_OWNER, F_OPS,
	F_REFS, F_HITS, F_LOCK, F_NEWER, F_OLDER, F_RCU, FIELDS
};

struct object;

/* --- Yours, in object.c ---------------------------------------------------- */

size_t object_size(void);
size_t object_align(void);

/* Where a field of an object is. */
void *object_field(struct object *o, enum field f);

#endif
