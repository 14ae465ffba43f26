/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_overlay.c - permission checks and reads through an overlay mount.
 *
 * An overlay does what it does below with the credentials of whoever mounted
 * it. Each change of credentials takes references on an object that all
 * tasks share: for a check of permissions, an open, and each read.
 */
#include "args.h"
#include "gate.h"
#include "sys.h"
#include "work.h"

#define FILE_PATH WORK "/o/merged/f"
#define BYTES 64

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL,
	  "operations of each process" },
	{ 0 },
};

static void mount_overlay(void)
{
	char content[BYTES + 1];

	make_dir(WORK "/o");
	mount_fs("tmpfs", WORK "/o", NULL);
	make_dir(WORK "/o/lower");
	make_dir(WORK "/o/upper");
	make_dir(WORK "/o/work");
	make_dir(WORK "/o/merged");
	memset(content, 'x', BYTES);
	content[BYTES] = '\0';
	write_file(WORK "/o/lower/f", content);
	mount_fs("overlay", WORK "/o/merged",
		 "lowerdir=" WORK "/o/lower,upperdir=" WORK "/o/upper,workdir="
		 WORK "/o/work");
}

static void op_access(struct worker *w, uint64_t i)
{
	(void)w;
	(void)i;
	if (faccessat(AT_FDCWD, FILE_PATH, R_OK, 0))
		fail_errno("faccessat " FILE_PATH);
}

static void read_it(int fd)
{
	char buffer[BYTES];

	if (pread(fd, buffer, BYTES, 0) != BYTES)
		fail_errno("read " FILE_PATH);
}

static int open_it(void)
{
	int fd = open(FILE_PATH, O_RDONLY);

	if (fd < 0)
		fail_errno("open " FILE_PATH);
	return fd;
}

static void op_open(struct worker *w, uint64_t i)
{
	(void)w;
	(void)i;
	close(open_it());
}

static void prepare_read(struct worker *w)
{
	w->local[0] = (uint64_t)open_it();
}

static void op_read(struct worker *w, uint64_t i)
{
	(void)i;
	read_it((int)w->local[0]);
}

static void op_all(struct worker *w, uint64_t i)
{
	int fd = open_it();

	(void)w;
	(void)i;
	read_it(fd);
	close(fd);
}

static void region(const char *label, void (*prepare)(struct worker *w),
		   void (*op)(struct worker *w, uint64_t i))
{
	const struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = arg_number("ops"),
		.warm_ups = 3,
		.prepare = prepare,
		.op = op,
	};
	struct result result = { .label = label };

	gate_run(&gate, &result);
	report_result(&result);
}

static void run_access(void)
{
	mount_overlay();
	region("", NULL, op_access);
}

static void run_read(void)
{
	mount_overlay();
	region("open", NULL, op_open);
	region("read", prepare_read, op_read);
	region("open-read", NULL, op_all);
}

const struct workload work_faccessat = {
	"faccessat", "all processes check their access to one file of an overlay",
	params, run_access, false,
};
const struct workload work_overlay_read = {
	"overlay-read", "all processes open, read, and both, one file of an overlay",
	params, run_read, false,
};
