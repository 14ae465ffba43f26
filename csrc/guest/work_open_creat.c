/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_open_creat.c - each process opens its own file on its own mount.
 *
 * Nothing is shared by what the processes ask for. What they share is the
 * root directory, on which each open(O_CREAT) of an absolute path takes a
 * reference for a moment.
 */
#include "args.h"
#include "gate.h"
#include "sys.h"
#include "work.h"

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL, "opens of each process" },
	{ "exist", PARAM_NUMBER, "1", 0, 1, NULL,
	  "0: the file is created, and removed after each open" },
	{ 0 },
};

static bool exists;

static void op(struct worker *w, uint64_t i)
{
	const char *path = w->pointer;
	int fd = open(path, O_CREAT | O_RDWR, 0644);

	(void)i;
	if (fd < 0)
		fail_errno("open %s", path);
	if (close(fd))
		fail_errno("close %s", path);
	if (!exists && unlink(path))
		fail_errno("unlink %s", path);
}

static void prepare(struct worker *w)
{
	w->pointer = strdup(text(WORK "/m%u/f", w->id));
}

static void run(void)
{
	struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = arg_number("ops"),
		.warm_ups = 3,
		.prepare = prepare,
		.op = op,
	};
	struct result result = { 0 };

	exists = arg_number("exist");
	for (unsigned i = 0; i < gate.procs; i++) {
		make_dir(WORK "/m%u", i);
		mount_fs("tmpfs", text(WORK "/m%u", i), NULL);
		if (exists)
			make_file(WORK "/m%u/f", i);
	}
	gate_run(&gate, &result);
	report_result(&result);
}

const struct workload work_open_creat = {
	"open-creat", "open(O_CREAT) of a file of its own on a mount of its own",
	params, run, false,
};
