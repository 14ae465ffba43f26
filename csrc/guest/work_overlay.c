/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_overlay.c - permission checks and reads through an overlay mount.
 *
 * An overlay does what it does below with the credentials of whoever mounted
 * it. Each change of credentials takes references on an object that all
 * tasks share: for a check of permissions, an open, and each read.
 */
#include "guest.h"

#include <linux/keyctl.h>
#include <sys/syscall.h>

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

static const struct param access_params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL,
	  "operations of each process" },
	{ "own", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: each process asks for a file of its own" },
	{ "depth", PARAM_NUMBER, "0", 0, 20, NULL,
	  "directories in the path to the file, each of which is checked as well" },
	{ "session", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: the processes have a session keyring, as those of a login do" },
	{ 0 },
};

static char deeper[128]; /* "d/" for each directory between the mount and the files */

/* A file, and beside it one for each of so many processes, in so many directories. */
static void mount_overlay(unsigned own, unsigned depth)
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
	for (unsigned i = 0; i < depth; i++) {
		strcat(deeper, "d/");
		make_dir(WORK "/o/lower/%s", deeper);
	}
	write_file(text(WORK "/o/lower/%sf", deeper), content);
	for (unsigned i = 0; i < own; i++)
		write_file(text(WORK "/o/lower/%sf%u", deeper, i), content);
	mount_fs("overlay", WORK "/o/merged",
		 "lowerdir=" WORK "/o/lower,upperdir=" WORK "/o/upper,workdir="
		 WORK "/o/work");
}

static void prepare_access(struct worker *w)
{
	const bool own = arg_number("own");
	char number[16];

	snprintf(number, sizeof(number), "%u", w->id);
	w->pointer = strdup(text(WORK "/o/merged/%sf%s", deeper, own ? number : ""));
}

static void op_access(struct worker *w, uint64_t i)
{
	(void)i;
	if (faccessat(AT_FDCWD, w->pointer, R_OK, 0))
		fail_errno("faccessat %s", (const char *)w->pointer);
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
	mount_overlay(arg_number("own") ? arg_procs(worker_cpus()) : 0, arg_number("depth"));
	if (arg_number("session") &&
	    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
		fail_errno("a session keyring");
	region("", prepare_access, op_access);
}

static void run_read(void)
{
	mount_overlay(0, 0);
	region("open", NULL, op_open);
	region("read", prepare_read, op_read);
	region("open-read", NULL, op_all);
}

const struct workload work_faccessat = {
	"faccessat", "all processes check their access to files of an overlay",
	access_params, run_access, false,
};
const struct workload work_overlay_read = {
	"overlay-read", "all processes open, read, and both, one file of an overlay",
	params, run_read, false,
};
