/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke.h - small checks that the file system layer does what it promises.
 *
 * A check is a function. It runs in a process and a mount namespace of its
 * own, with an empty tmpfs at WORK, which is also its current directory. It
 * succeeds by returning; whatever fails ends it with the reason.
 */
#pragma once
#include "guest.h"
#include "report.h"
#include "sys.h"

struct check {
	const char *name;
	void (*run)(void);
};

/* Tables of checks, up to one without a name. */
extern const struct check smoke_names[], smoke_lookup[], smoke_mounts[],
	smoke_overlay[], smoke_access[], smoke_races[];

/* A call that must not return a negative number. */
#define OK(call)                                 \
	do {                                     \
		if ((call) < 0)                  \
			fail_errno("%s", #call); \
	} while (0)

/* A call that must fail, and with this error. */
#define FAILS(call, error)                                                    \
	do {                                                                  \
		errno = 0;                                                    \
		if ((call) >= 0)                                              \
			fail("%s succeeds; %s was expected", #call, #error);  \
		if (errno != (error))                                         \
			fail_errno("%s: %s was expected", #call, #error);     \
	} while (0)

#define EXPECT(condition)                             \
	do {                                          \
		if (!(condition))                     \
			fail("not so: %s", #condition); \
	} while (0)

/* Does this file contain this text? Fails if not. */
void expect_content(const char *path, const char *content);
bool there(const char *path);
/* Fails unless there are just these mounts below WORK. */
void expect_mounts(const char *const *places);
#define MOUNTS(...) \
	expect_mounts((const char *const[]){ "", ##__VA_ARGS__, NULL } + 1)

/* Processes that run beside the check, until together() is called. */
void beside(void (*f)(void));
/* One that the check has started itself. */
void adopt(pid_t pid);
/* Ask them to end, and fail if one failed. */
void together(void);
/* For them: is it time to end? */
bool time_is_up(void);
/* For the check: let them run for so long. */
void let_run(unsigned ms);
