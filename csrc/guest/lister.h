/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * lister.h - a process that lists a directory while others work on what is in it.
 *
 * A listing takes each entry's lock for a moment. The process has CPU 0 for
 * itself, so that what it does is not counted as the workers' doing.
 */
#pragma once

#include "gate.h"

struct lister {
	struct companion companion;
	_Alignas(256) uint64_t passes; /* listings so far */
	pid_t pid;
};

/* One that is not at work yet, in memory that processes share. */
struct lister *lister_shared(void);

/* It is the gate's companion: lists while the region lasts, or `most` times if that is not 0. */
void lister_begin(struct lister *lister, struct gate *gate, const char *directory, uint64_t most);

/* End it, or the workload if it has listed nothing. */
void lister_end(struct lister *lister);

/*
 * Three regions: "calm", "perturbed" while a process lists the directory, and "after". The workload
 * says what its processes do, `gate.op`, and how often; they are on all CPUs but the lister's.
 */
void lister_phases(struct gate gate, const char *directory, uint64_t most);
