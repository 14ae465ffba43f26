/* SPDX-License-Identifier: MIT */
#include "lockref.h"

static int try_change(struct lockref *ref, struct patience p, int32_t delta, int32_t least)
{
	uint64_t old = look(ref);

	for (int i = 1; ; i++) {
		if (!is_locked(old)) {
			if (count_of(old) < least)
				return 0;
			if (swap(ref, &old, with_count(old, count_of(old) + delta)))
				return 1;
			if (i >= p.looks)
				return -1;
		} else {
			if (i >= p.looks)
				return -1;
			old = look(ref);
		}
	}
}

bool ref_get(struct lockref *ref, struct patience patience)
{
	const int done = try_change(ref, patience, 1, 0);
	int32_t n;

	if (done >= 0)
		return done;
	take_lock(ref);
	n = count_of(look(ref));
	if (n >= 0)
		set_count(ref, n + 1);
	drop_lock(ref);
	return n >= 0;
}

bool ref_put(struct lockref *ref, struct patience patience)
{
	int32_t n;

	if (try_change(ref, patience, -1, 2) == 1)
		return true;
	take_lock(ref);
	n = count_of(look(ref));
	if (n <= 1)
		return false;
	set_count(ref, n - 1);
	drop_lock(ref);
	return true;
}
