/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * args.h - the parameters of a run, and the workloads' tables of them.
 */
#pragma once
#include "guest.h"

#define MAX_SIZES 128

enum param_kind {
	PARAM_NUMBER, /* min to max */
	PARAM_SIZES,  /* numbers from min to max with + between them */
	PARAM_WORD,   /* one of words, which has | between them */
};

struct param {
	const char *name;
	enum param_kind kind;
	const char *preset;
	uint64_t min, max;
	const char *words;
	const char *help;
};

struct workload {
	const char *name;
	const char *help;
	const struct param *params; /* up to one without a name */
	void (*run)(void);
	bool single; /* always one process, whatever the number of CPUs */
};

/* All workloads, up to NULL. */
extern const struct workload *const workloads[];

/* Take NAME=VALUE; fails if NAME is there already. */
void args_add(const char *name, const char *value);
/* Take each ct.NAME=VALUE of a kernel command line. */
void args_add_cmdline(const char *cmdline);
/* What was given, or NULL. */
const char *args_given(const char *name);
/* Call back for everything that was given, in that order. */
void args_each(void (*each)(const char *name, const char *value));
/* Find the workload, and check every parameter against its table. */
const struct workload *args_check(void);

uint64_t arg_number(const char *name);
const char *arg_word(const char *name);
/* Run f(&size) for each of the sizes, as a uint32_t, in a child process of its own. */
void arg_each_size(const char *name, void (*f)(void *size));
/* Is this one of the sizes? */
bool arg_is_among(const char *name, uint64_t number);
/* How many processes: procs=, or what the workload prefers. */
unsigned arg_procs(unsigned preset);

/*
 * spare=1: workers leave the first CPU to the kernel, which does its chores
 * there, timer ticks among them. 1 or 0.
 */
unsigned arg_spare(void);
unsigned worker_cpus(void);
