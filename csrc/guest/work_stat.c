/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_stat.c - all processes stat one file; and the same while somebody
 * lists the directory that it is in.
 *
 * A stat walks the path without writing anything, and takes one reference at
 * the end, on the file's dentry. It is a lockref: a compare-and-exchange as
 * long as nobody holds the dentry's lock, and a spin lock otherwise. Reading
 * a tmpfs directory takes the lock of each entry for a moment.
 *
 * What the lister does must not be counted as the workers' doing. So it has
 * CPU 0 for itself, and calls are counted on the other CPUs only.
 */
#include "guest.h"

#include <sys/syscall.h>

#include "args.h"
#include "gate.h"
#include "lister.h"
#include "loop.h"
#include "sys.h"
#include "work.h"

#define DIRECTORY WORK "/m0"

static const struct param stat_params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL, "operations of each process" },
	{ "name", PARAM_NUMBER, "18", 1, 255, NULL,
	  "characters of the file's name" },
	{ "disk", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: the file is on an ext4, as if on a disk, and not on tmpfs" },
	{ "own", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: a file for each process, all in one directory" },
	{ 0 },
};

static const struct param perturbed_params[] = {
	{ "ops", PARAM_NUMBER, "20000", 1, 10000000, NULL,
	  "stats of each process in each phase" },
	{ "dirs", PARAM_NUMBER, "32", 0, 100000, NULL,
	  "other entries of the directory" },
	{ "name", PARAM_NUMBER, "18", 1, 255, NULL,
	  "characters of the file's name" },
	{ "listings", PARAM_NUMBER, "0", 0, 1000000, NULL,
	  "how often the directory is listed (0: while the phase lasts)" },
	{ 0 },
};

static char path[512];
static uint64_t inode;

static void op(struct worker *w, uint64_t i)
{
	struct stat st;

	(void)w;
	(void)i;
	if (stat(path, &st))
		fail_errno("stat %s", path);
	if (st.st_ino != inode)
		fail("stat %s found another file", path);
}

static void make_file_of(unsigned number)
{
	struct stat st;

	snprintf(path, sizeof(path), DIRECTORY "/%0*u",
		 (int)arg_number("name"), number);
	make_file("%s", path);
	if (stat(path, &st))
		fail_errno("stat %s", path);
	inode = st.st_ino;
}

static void make_the_file(bool disk)
{
	make_dir(DIRECTORY);
	if (disk)
		mount_disk(DIRECTORY);
	else
		mount_fs("tmpfs", DIRECTORY, NULL);
	make_file_of(7);
}

/* Each process has its copy of the path since the fork. */
static void choose_file(struct worker *w)
{
	if (arg_number("own"))
		make_file_of(100 + w->id);
}

static void run_on_one_file(void (*prepare)(struct worker *w),
			    void (*what)(struct worker *w, uint64_t i))
{
	const struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = arg_number("ops"),
		.warm_ups = 3,
		.prepare = prepare,
		.op = what,
	};
	struct result result = { .size = arg_number("name") };

	make_the_file(arg_number("disk"));
	gate_run(&gate, &result);
	report_result(&result);
}

static void run_stat(void)
{
	run_on_one_file(choose_file, op);
}

static int descriptor; /* each process's own */

static void open_the_file(struct worker *w)
{
	choose_file(w);
	descriptor = open_file(path, O_RDWR);
}

/*
 * What a C library makes of fstat() on x86-64 since 2.33: by descriptor, with
 * an empty name. The kernel then takes a reference on the file's path, and
 * drops it.
 */
static void op_fstat(struct worker *w, uint64_t i)
{
	struct stat st;

	(void)w;
	(void)i;
	if (syscall(SYS_newfstatat, descriptor, "", &st, AT_EMPTY_PATH))
		fail_errno("fstat");
	if (st.st_ino != inode)
		fail("fstat found another file");
}

static void op_open(struct worker *w, uint64_t i)
{
	(void)w;
	(void)i;
	if (close(open_file(path, O_RDWR)))
		fail_errno("close %s", path);
}

/* As will-it-scale's fstat2 and open3, with processes. */
static void run_fstat(void)
{
	run_on_one_file(open_the_file, op_fstat);
}

static void run_open(void)
{
	run_on_one_file(choose_file, op_open);
}

static void run_perturbed(void)
{
	const struct gate gate = { .ops = arg_number("ops"), .warm_ups = 3, .op = op };

	make_the_file(false);
	for (unsigned i = 0; i < arg_number("dirs"); i++)
		make_dir(DIRECTORY "/d%u", i);
	lister_phases(gate, DIRECTORY, arg_number("listings"));
}

const struct workload work_stat = {
	"stat", "all processes stat one file", stat_params, run_stat, false,
};
const struct workload work_fstat = {
	"fstat", "all processes fstat one file that each has opened", stat_params, run_fstat, false,
};
const struct workload work_open = {
	"open", "all processes open and close one file", stat_params, run_open, false,
};
const struct workload work_stat_perturbed = {
	"stat-perturbed", "stat of one file: calm, while its directory is listed, after",
	perturbed_params, run_perturbed, false,
};
