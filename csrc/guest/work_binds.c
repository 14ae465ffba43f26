/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_binds.c - one file of a shared mount bound to many others.
 *
 * The report's recipe: each bind mount joins the shared mount's peer group,
 * so the next mount is propagated to all of them, though none can contain
 * it. Count clone_mnt (or alloc_vfsmnt): one for each bind is what is needed.
 */
#include "args.h"
#include "gate.h"
#include "mounts.h"
#include "sys.h"
#include "work.h"

#define SHARED WORK "/blah"

static const struct param params[] = {
	{ "sizes", PARAM_SIZES, "250+500+1000", 1, 100000, NULL,
	  "how many bind mounts, each in a namespace of its own" },
	{ "shared", PARAM_NUMBER, "1", 0, 1, NULL,
	  "0: in a private mount, for comparison" },
	{ 0 },
};

static void prepare(struct worker *w)
{
	(void)w;
	if (chdir(SHARED))
		fail_errno("change to " SHARED);
}

static void op(struct worker *w, uint64_t i)
{
	char name[16];

	(void)w;
	snprintf(name, sizeof(name), "%" PRIu64, i);
	bind("foo", name);
}

static void run_size(void *arg)
{
	const uint32_t size = *(uint32_t *)arg;
	const struct gate gate = {
		.procs = 1,
		.ops = size,
		.prepare = prepare,
		.op = op,
	};
	struct result result = { .size = size };
	size_t there;

	own_namespace();
	make_dir(SHARED);
	bind(SHARED, SHARED);
	propagation(SHARED, arg_number("shared") ? MS_SHARED : MS_PRIVATE);
	make_file(SHARED "/foo");
	for (uint32_t i = 0; i < size; i++)
		make_file(SHARED "/%u", i);
	result.label = strdup(text("%u", size));
	gate_run(&gate, &result);
	there = mounts_below(SHARED);
	if (there != size)
		fail("%u bind mounts have become %zu mounts", size, there);
	count(&result, "mounts", there);
	report_result(&result);
}

static void run(void)
{
	arg_each_size("sizes", run_size);
}

const struct workload work_binds = {
	"binds", "a file of a shared mount bound to many others", params, run, true,
};
