/* SPDX-License-Identifier: MIT */
#include "mounts.h"

/* Mount number *left in the order of ids, or NULL; counts down. */
static const struct mount *numbered(const struct mount *m, uint64_t *left)
{
	const struct mount *found;

	if (!m)
		return NULL;
	found = numbered(left_of(m), left);
	if (found)
		return found;
	if ((*left)-- == 0)
		return m;
	return numbered(right_of(m), left);
}

long mounts_read(struct namespace *ns, uint64_t *position, char *buffer, size_t size)
{
	uint64_t number = *position;
	size_t used = 0;

	for (;; number++) {
		uint64_t left = number;
		const struct mount *m = numbered(tree_root(ns), &left);
		size_t length;

		if (!m)
			break;
		length = show(m, buffer + used, size - used);
		if (!length && !used)
			return -1;
		if (!length)
			break;
		used += length;
	}
	*position = number;
	if (!used)
		*position = UINT64_MAX;
	return (long)used;
}
