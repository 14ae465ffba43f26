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

long mounts_read(struct namespace *ns, uint64_t *position, char *buffer, size_t size)
{
	uint64_t next = *position;
	size_t used = 0;

	for (const struct mount *m = first_at(ns, next); m; m = first_at(ns, next)) {
		const size_t length = show(m, buffer + used, size - used);

		if (!length && !used)
			return -1;
		if (!length)
			break;
		used += length;
		next = id_of(m) + 1;
	}
	*position = next;
	return (long)used;
}
