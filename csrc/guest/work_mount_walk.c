/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_mount_walk.c - finding the mount on a mount point.
 *
 * Each path that crosses a mount point asks a hash table for the mount. With
 * few chains for many mounts they are long. The control asks for directories
 * that are like the mount points but have nothing mounted on them.
 */
#include "args.h"
#include "gate.h"
#include "mounts.h"
#include "sys.h"
#include "work.h"

static const struct param params[] = {
	{ "sizes", PARAM_SIZES, "500+2000+8000", 1, 100000, NULL,
	  "how many mounts, each in a namespace of its own" },
	{ "ops", PARAM_NUMBER, "2000", 1, 10000000, NULL,
	  "stats, of a random mount point each" },
	{ "what", PARAM_WORD, "mounts", 0, 0, "mounts|plain",
	  "plain: directories beside them, for comparison" },
	{ 0 },
};

static uint32_t size;
static bool plain;
static dev_t device;

/* The same places in each run. */
static uint32_t dice(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33);
}

static void prepare(struct worker *w)
{
	struct stat st;

	w->local[0] = 1;
	/* The dentries of all of them are in the cache from the start. */
	for (uint32_t i = 0; i < size; i++)
		if (stat(text(WORK "/%s/%u", plain ? "p" : "t", i), &st))
			fail_errno("stat of a mount point");
}

static void op(struct worker *w, uint64_t i)
{
	struct stat st;
	char path[64];

	(void)i;
	snprintf(path, sizeof(path), WORK "/%s/%u", plain ? "p" : "t",
		 dice(&w->local[0]) % size);
	if (stat(path, &st))
		fail_errno("stat %s", path);
	if ((st.st_dev == device) == plain)
		fail("stat %s has not crossed the mount, or has", path);
}

static void run_size(void *arg)
{
	const struct gate gate = {
		.procs = 1,
		.ops = arg_number("ops"),
		.prepare = prepare,
		.op = op,
	};
	struct result result = { 0 };
	struct stat st;

	size = *(uint32_t *)arg;
	result.size = size;
	result.label = strdup(text("%u", size));
	plain = !strcmp(arg_word("what"), "plain");
	own_namespace();
	mounts_make_dirs(size);
	/* Of another file system, so that crossing shows. */
	mount_fs("tmpfs", WORK "/what", NULL);
	if (stat(WORK "/what", &st))
		fail_errno("stat " WORK "/what");
	device = st.st_dev;
	make_dir(WORK "/p");
	for (uint32_t i = 0; i < size; i++) {
		mounts_make_one(i);
		make_dir(WORK "/p/%u", i);
	}
	gate_run(&gate, &result);
	report_result(&result);
}

static void run(void)
{
	arg_each_size("sizes", run_size);
}

const struct workload work_mount_walk = {
	"mount-walk", "stat of random mount points among many", params, run, true,
};
