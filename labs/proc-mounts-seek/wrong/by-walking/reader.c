/* SPDX-License-Identifier: MIT */
#include "mounts.h"

struct reading {
	char *buffer;
	size_t size, used;
	uint32_t next, last;
	int full;
};

/* Every mount in the order of ids; those that were read already are passed. */
static void walk(const struct mount *m, struct reading *r)
{
	size_t length;

	if (!m || r->full)
		return;
	walk(left_of(m), r);
	if (!r->full && id_of(m) >= r->next && id_of(m) <= r->last) {
		length = show(m, r->buffer + r->used, r->size - r->used);
		r->full = !length;
		r->used += length;
		if (length)
			r->next = id_of(m) + 1;
	}
	walk(right_of(m), r);
}

long mounts_read(struct namespace *ns, uint64_t *position, char *buffer, size_t size)
{
	struct reading r = { .buffer = buffer, .size = size, .next = 1 };

	r.last = *position ? (uint32_t)(*position >> 32) : newest_id(ns);
	if (*position)
		r.next = (uint32_t)*position;
	walk(tree_root(ns), &r);
	if (r.full && !r.used)
		return -1;
	*position = (uint64_t)r.last << 32 | r.next;
	return (long)r.used;
}
