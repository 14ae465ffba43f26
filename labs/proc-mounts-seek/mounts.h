/* SPDX-License-Identifier: MIT */
/*
 * mounts.h - a file that lists the mounts of a namespace, a buffer at a time.
 *
 * Each mount has an id. Ids ascend in the order of mounting, from 1, stay
 * below 2^32 and are never given twice. The namespace keeps its mounts in a
 * balanced search tree that is ordered by id.
 */
#ifndef MOUNTS_H
#define MOUNTS_H

#include <stddef.h>
#include <stdint.h>

struct namespace;
struct mount;

/* --- Given ----------------------------------------------------------------- */

/* Steps in the tree, which are counted. NULL: there is nothing. */
const struct mount *tree_root(struct namespace *ns);
const struct mount *left_of(const struct mount *m);  /* the smaller ids */
const struct mount *right_of(const struct mount *m); /* the greater ids */

/* These cost nothing. */
uint32_t id_of(const struct mount *m);
uint32_t newest_id(struct namespace *ns); /* given so far, or 0; it may be gone */

/*
 * Write the line of a mount. Returns how long it is, or 0, with nothing
 * written, if there is not so much room.
 */
size_t show(const struct mount *m, char *place, size_t room);

/* --- Yours, in reader.c ------------------------------------------------------ */

/*
 * One read() of the file: whole lines, in the order of their ids, as many as
 * fit. *position is 0 in a file that was just opened. What it is afterwards is
 * for you to say; the next read() gets it back, and it gets nothing else: no
 * static variables, no marks in the tree. Between two reads mounts come and
 * go; during a read nothing changes. No pointer survives from one read to the
 * next: its mount may be gone.
 *
 * Returns the bytes written; 0 at the end of the file, and then for ever; -1
 * if not even the next line fits, and then *position stays as it was.
 *
 * A mount that is there from the first read to the last is read exactly once.
 * One that comes later need not be read, and the file must come to an end even
 * if mounts come faster than they are read.
 */
long mounts_read(struct namespace *ns, uint64_t *position, char *buffer, size_t size);

#endif
