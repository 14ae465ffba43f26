/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * report.h - what the guest tells the host: one JSON object on each line.
 */
#pragma once
#include "guest.h"

#define MAX_CALLS 64
#define MAX_COUNTS 16

struct tally {
	const char *name;
	uint64_t value;
};

/* One measured region, or several under one label. */
struct result {
	const char *label;
	uint64_t size;
	unsigned procs;
	uint64_t ops, ns;
	struct tally calls[MAX_CALLS], counts[MAX_COUNTS];
	unsigned n_calls, n_counts;
	uint64_t *latency; /* of each operation, nanoseconds */
	size_t n_latency;
};

/* Send to this descriptor from now on. A terminal is made raw. */
void report_to(int fd);
void report_hello(void);
void report_result(struct result *result);
void report_check(const char *name, bool ok, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void report_about(const char *name, const char *help, const char *params);
void report_dmesg(void);
/* Say that we wait, and wait for a byte from the host. */
void report_hold(void);
/* The last line; then the machine reboots, which ends QEMU. */
_Noreturn void report_end(int status);
/* We are pid 1: from now on a failure ends the machine, not the process. */
void report_is_init(void);

/* Add to a count of this result. */
void count(struct result *result, const char *name, uint64_t value);

/* From now on, fail() tells this function instead of the host. */
void report_failures_to(void (*tell)(const char *what));

/* An error line, without ending; for pid 1. */
void report_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An error line, then the end of this process. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with the text of errno. */
_Noreturn void fail_errno(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
