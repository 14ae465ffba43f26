/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * calls.h - how often kernel functions are called in a measured region.
 */
#pragma once
#include "guest.h"
#include "report.h"

/*
 * Count these functions: names with commas between them. A * stands for any
 * characters. Each must exist in this kernel and be traceable.
 */
void calls_setup(const char *names);
/*
 * Count those of these that exist, unless names were given already; false if
 * this kernel has no function profiler. For what a workload counts unasked.
 */
bool calls_preset(const char *const *names);
bool calls_wanted(void);

/* Start from zero, and stop. Both are a write to a file that is open. */
void calls_on(void);
void calls_off(void);
/* Add what the CPUs from the first_cpu-th online one up have counted. */
void calls_collect(struct result *result, unsigned first_cpu);
/* Leave the profiler as it is after boot. */
void calls_done(void);
