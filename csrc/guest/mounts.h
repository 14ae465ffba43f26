/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mounts.h - what /proc/self/mountinfo says, and the lab's watch on mounts.
 */
#pragma once
#include "guest.h"

struct mountinfo {
	int id, parent;
	char root[128], at[128];
	char optional[64]; /* shared:1 master:2 propagate_from:3 unbindable */
	char type[32];
};

/* Parse one line; false if it is torn or not one. */
bool mounts_parse(const char *line, size_t length, struct mountinfo *m);
/* All mounts of our namespace; the caller frees them. */
struct mountinfo *mounts_read(size_t *n);
/* The last of them at this place, or NULL. */
const struct mountinfo *mounts_find(const struct mountinfo *all, size_t n,
				    const char *at);
/* How many are at this place, or below it. */
size_t mounts_count(const char *at);
size_t mounts_below(const char *at);
/* How many mount points begin with this text. */
size_t mounts_prefixed(const char *prefix);

/* N mounts in a private directory WORK/t, which must not exist: WORK/t/0, ... */
void mounts_make_dirs(uint32_t n);
void mounts_make_one(uint32_t i);

/* What the lab's watch on mounts counts; -1 in a kernel without it. */
long mounts_watched(const char *what);
/* Have the watch do something to what is unmounted next. */
void mounts_have_watch(const char *what, long value);
/* Wait until all that was unhooked is put, and report what the watch counts. */
void mounts_report_watch(void);
