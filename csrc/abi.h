/* SPDX-License-Identifier: MIT */
/*
 * abi.h - what crosses the border between a C model and Python.
 *
 * The Python package hands this very file to cffi, so the two sides cannot
 * drift apart. cffi reads declarations and plain integer #defines only: keep
 * it to those.
 *
 * A model exports one function, ct_model(), which describes it, and gets
 * ct_measure() from harness.h. All names start with ct_, for "contended".
 */
#pragma once
#include <stdint.h>

#define CT_ABI 3
#define CT_MAX_COUNTERS 16
#define CT_MAX_PHASES 8
#define CT_MAX_SLICES 64
#define CT_TEXT 256

/* How the worker threads are scheduled. */
#define CT_SCHED_AUTO 0  /* SCHED_FIFO if allowed and safe, else SCHED_OTHER */
#define CT_SCHED_FIFO 1  /* SCHED_FIFO or an error */
#define CT_SCHED_OTHER 2

struct ct_run;
struct ct_worker;

/* A number that the reader may set: contended measure SLUG --set name=value */
struct ct_param {
	const char *name;
	const char *unit;
	const char *help;
	int64_t initial;
	int64_t min;
	int64_t max;
};

/* Something that a worker counts for itself, on its own cache lines. */
struct ct_counter {
	const char *name;
	const char *help;
};

/* A member of a struct whose layout is the point: the book draws it. */
struct ct_field {
	const char *of;   /* the struct's name; members of one follow each other */
	const char *name;
	const char *kind; /* what touches it, e.g. "lookup" */
	uint32_t offset;  /* bytes */
	uint32_t size;
};

/*
 * One version of the code under study.
 *
 * loop runs the operation n times; CT_LOOP() in harness.h makes it from an
 * inline function, so that measuring adds no call to each operation. setup
 * and check return 0, or the value of ct_fail().
 */
struct ct_variant {
	const char *name;
	const char *help;
	int (*setup)(struct ct_run *run);
	void (*loop)(struct ct_worker *worker, uint64_t n);
	int (*check)(struct ct_run *run);
	void (*teardown)(struct ct_run *run);
};

struct ct_model {
	uint32_t abi;
	const char *slug;
	const char *summary;
	const char *op;       /* what one operation is */
	uint32_t min_threads;
	uint32_t max_threads; /* 0: as many as there are CPUs */
	uint32_t n_variants;
	const struct ct_variant *variants;
	uint32_t n_params;
	const struct ct_param *params;
	uint32_t n_counters;
	const struct ct_counter *counters;
	uint32_t n_phases;
	const char *const *phases; /* run one after the other on the same state */
	uint32_t n_fields;         /* 0 unless the layout is the point */
	const struct ct_field *fields;
};

/*
 * One run of one variant. Either ops is 0 and every slice lasts slice_ns, or
 * every thread performs exactly ops operations in each slice.
 */
struct ct_config {
	uint32_t variant;
	uint32_t threads;
	uint32_t slices;       /* timed samples in each phase */
	uint32_t sched;        /* CT_SCHED_* */
	uint32_t pin;          /* 0 only to show what goes wrong without */
	const int32_t *cpus;   /* one for each thread */
	const int64_t *params; /* in the order of ct_model.params */
	uint64_t think_ns;     /* private work after each operation */
	uint64_t warmup_ns;
	uint64_t slice_ns;
	uint64_t ops;
};

struct ct_phase {
	double slice_rate[CT_MAX_SLICES]; /* operations/s, all threads together */
	double rate_min;
	double rate_median;
	double rate_max;
	uint64_t ops;
	uint64_t counts[CT_MAX_COUNTERS];
	uint64_t cpu_changes; /* slices that ended on another CPU than they began */
	uint64_t latencies;   /* how many ct_latency() calls there were, and */
	double latency_p50;   /* their percentiles and maximum, nanoseconds */
	double latency_p90;
	double latency_p99;
	double latency_max;
};

struct ct_result {
	char error[CT_TEXT]; /* empty if the run is good */
	uint32_t starved;    /* a busy machine may be to blame for the error */
	char sched[CT_TEXT]; /* the policy used, and why not FIFO */
	double think_ns;     /* what the think loop really takes */
	double clock_ns;     /* what one reading of the clock takes */
	uint64_t start_skew_ns;
	uint64_t stop_skew_ns;
	uint64_t runq_wait_ns;
	uint64_t planned_ns;
	int32_t first_touch; /* the CPU that ran setup(), and with it shared lines first */
	struct ct_phase phases[CT_MAX_PHASES];
};

const struct ct_model *ct_model(void);
uint32_t ct_sizeof_config(void);
uint32_t ct_sizeof_result(void);
int ct_measure(const struct ct_config *config, struct ct_result *result);
