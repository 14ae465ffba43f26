/* SPDX-License-Identifier: MIT */
#include "mounts.h"

static const struct mount *first_at(struct namespace *ns, uint64_t id)
{
	const struct mount *best = NULL;

	for (const struct mount *m = tree_root(ns); m;) {
		if (id_of(m) >= id)
			best = m;
		m = id_of(m) >= id ? left_of(m) : right_of(m);
	}
	return best;
}

/* The position: the newest id at the first read, and the id that comes next. */
long mounts_read(struct namespace *ns, uint64_t *position, char *buffer, size_t size)
{
	const uint64_t last = *position ? *position >> 32 : newest_id(ns);
	uint32_t next = (uint32_t)*position;
	const struct mount *m = first_at(ns, *position ? next : 1);
	size_t used = 0;

	if (*position && m && id_of(m) != next)
		m = NULL; /* it is gone: this must have been the end */
	while (m && id_of(m) <= last) {
		const size_t length = show(m, buffer + used, size - used);

		if (!length && !used)
			return -1;
		if (!length)
			break;
		used += length;
		m = first_at(ns, (uint64_t)id_of(m) + 1);
	}
	next = m && id_of(m) <= last ? id_of(m) : UINT32_MAX;
	*position = last << 32 | next;
	return (long)used;
}
