/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * gate.h - the measured region: processes, pinned by default, that start together.
 */
#pragma once
#include "guest.h"
#include "report.h"

/* Memory that is shared by all workers, a page for each of them. */
struct worker {
	_Alignas(4096) unsigned id;
	int cpu;
	unsigned turn; /* a futex: set when it may prepare */
	uint64_t ops;
	uint64_t begin_ns, end_ns;
	uint64_t count[MAX_COUNTS]; /* named by gate.counts */
	uint64_t latency_ns;        /* op() may set it to what it timed itself */
	uint64_t woke;		    /* of a crowd: those who slept until it woke them */
	uint64_t local[8];          /* whatever prepare() and op() keep */
	void *pointer;
	/* Of who leads others, who read them, so not on a line that it writes to as it works. */
	_Alignas(256) unsigned called; /* a futex: set when they may begin */
	unsigned leave;		       /* a futex: set when they may end, and it */
};

/*
 * For a process beside the workers that disturbs them: it works while
 * "running" is set, and keeps "resting" set while it sees that it is not. The
 * gate sets it going when the region begins and waits for its rest before it
 * touches the profiler again: the less runs while the kernel's code is
 * patched the better, and what it did is then all within the region.
 */
struct companion {
	_Alignas(256) unsigned running;
	_Alignas(256) unsigned resting;
};

struct gate {
	unsigned procs;
	unsigned first_cpu; /* worker i runs on the (first_cpu + i)-th CPU */
	bool loose;	    /* no worker is pinned: the scheduler places them */
	bool only_workers;  /* count calls on no CPU before first_cpu */
	uint64_t ops;       /* of each worker, or of more than half if they go on */
	bool on;	    /* who did them goes on until more than half have; no latency then */
	unsigned warm_ups;  /* calls of op() before the gate */
	bool latency;       /* note how long each op() takes */
	void (*prepare)(struct worker *w); /* in the worker; may be NULL */
	/* i counts from 0, in the warm-up too. */
	void (*op)(struct worker *w, uint64_t i);
	void (*finish)(struct worker *w); /* after the region; may be NULL */
	struct companion *companion;      /* in shared memory; may be NULL */
	const char *counts[MAX_COUNTS];
};

/*
 * Run a region and add it to the result. Each worker is a process: it pins
 * itself, unless it is to be loose, prepares, warms up, waits for the others,
 * and then does its operations. The first one starts the function profiler and marks the begin
 * of the region, the last to finish marks its end and stops the profiler;
 * starting and ending processes is outside.
 *
 * The result's time is from the first worker's first operation to the last
 * worker's last. Results are added up: ops, time, calls, counts, latencies.
 */
void gate_run(const struct gate *gate, struct result *result);
