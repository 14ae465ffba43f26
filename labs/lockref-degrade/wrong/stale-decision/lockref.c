/* SPDX-License-Identifier: MIT */
#include "lockref.h"

static int try_change(struct lockref *ref, struct patience p, int32_t delta, int32_t least,
		      int32_t *count)
{
	uint64_t old = look(ref);
	int turns = 0, holder = -1;

	for (int i = 1; ; i++) {
		*count = count_of(old);
		if (!is_locked(old)) {
			if (*count < least)
				return 0;
			if (swap(ref, &old, with_count(old, *count + delta)))
				return 1;
			*count = count_of(old);
			if (i >= p.looks)
				return -1;
		} else {
			if (turn_of(old) != holder && ++turns > p.turns)
				return -1;
			holder = turn_of(old);
			if (i >= p.looks)
				return -1;
			old = look(ref);
		}
	}
}

bool ref_get(struct lockref *ref, struct patience patience)
{
	int32_t n;
	const int done = try_change(ref, patience, 1, 0, &n);

	if (done >= 0)
		return done;
	if (n < 0)
		return false;
	take_lock(ref);
	set_count(ref, n + 1);
	drop_lock(ref);
	return true;
}

bool ref_put(struct lockref *ref, struct patience patience)
{
	int32_t n;

	if (try_change(ref, patience, -1, 2, &n) == 1)
		return true;
	take_lock(ref);
	if (n <= 1)
		return false;
	set_count(ref, n - 1);
	drop_lock(ref);
	return true;
}
