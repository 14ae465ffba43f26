/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_percpu.c - what the per-CPU allocator does for many mounts.
 *
 * Each mount has counters for each CPU: a small allocation. The old
 * allocator walked a list of all of them; today's finds a gap in a bitmap by
 * hints. What it calls is counted, for as many mounts as are asked for.
 */
#include "args.h"
#include "calls.h"
#include "gate.h"
#include "mounts.h"
#include "sys.h"
#include "work.h"

static const struct param params[] = {
	{ "sizes", PARAM_SIZES, "250+500+1000+2000", 1, 100000, NULL,
	  "how many mounts, each in a namespace of its own" },
	{ "what", PARAM_WORD, "mount", 0, 0, "mount|umount",
	  "whether mounting or unmounting them is measured" },
	{ 0 },
};

/* Those that gcc has left are counted if no others are asked for. */
static const char *const preset[] = {
	"pcpu_alloc", "pcpu_find_block_fit", "pcpu_alloc_area",
	"pcpu_block_update_hint_alloc", "pcpu_block_update",
	"pcpu_block_refresh_hint", "pcpu_chunk_refresh_hint",
	"pcpu_next_md_free_region", "pcpu_next_fit_region", "pcpu_create_chunk",
	"pcpu_chunk_relocate", "free_percpu", "pcpu_free_area", NULL,
};

static uint32_t size;
static bool unmounting;

static void op(struct worker *w, uint64_t i)
{
	char path[64];

	(void)w;
	if (!unmounting) {
		mounts_make_one((uint32_t)i);
		return;
	}
	snprintf(path, sizeof(path), WORK "/t/%" PRIu64, i);
	unmount(path, 0);
}

static void run_size(void *arg)
{
	struct gate gate = { .procs = 1, .op = op };
	struct result result = { 0 };

	size = *(uint32_t *)arg;
	result.size = size;
	result.label = strdup(text("%u", size));
	gate.ops = size;
	own_namespace();
	mounts_make_dirs(size);
	unmounting = !strcmp(arg_word("what"), "umount");
	for (uint32_t i = 0; unmounting && i < size; i++)
		mounts_make_one(i);
	gate_run(&gate, &result);
	count(&result, "mounts", mounts_below(WORK "/t"));
	report_result(&result);
}

static void run(void)
{
	calls_preset(preset);
	arg_each_size("sizes", run_size);
}

const struct workload work_percpu = {
	"percpu", "what the per-CPU allocator does for many mounts", params, run,
	true,
};
