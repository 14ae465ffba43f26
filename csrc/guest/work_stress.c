/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_stress.c - what three of stress-ng's stressors ask the kernel for.
 *
 * handle: the name of a device becomes a handle, and the handle an open file.
 * All processes do it with the same device, whose inode is looked for under
 * the one lock of all inodes' hash, and whose dentry is found under its own.
 *
 * full: a device that is always full is opened, written to, read, sought in and
 * closed. All processes open the same one, each by its path.
 *
 * handle-perturbed and full-perturbed: the same with a device that is alone in
 * its directory, which somebody lists meanwhile.
 *
 * getdent: every directory under a few file systems is opened and listed, by
 * the old call or the new one, into memory that is got for it. In proc that
 * takes the lock of proc's entries for each of a directory of the network, and
 * looks the dentry of others up, under its lock. All processes go the same way.
 * Those who have done it for a while may be in different places: each begins
 * at one by chance, or with spread=0 all at the directory of the first process,
 * as most are those of processes. As stress-ng goes down into a directory it
 * leaves those above open (held=1). A server has many more devices than a guest,
 * so sysfs may be gone through several times for each time that proc is.
 *
 * getdent-perturbed: the same while somebody lists the root, whose dentry all
 * take that leave lock-free walk in sysfs. On a kernel whose listings of what
 * is in memory stay with a dentry's lock, processes that list such directories
 * themselves queue for those (memory=0 leaves them out).
 */
#include "guest.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "args.h"
#include "gate.h"
#include "lister.h"
#include "sys.h"
#include "work.h"

#define DEVICES "/dev"
#define ALONE WORK "/m0"
#define MAX_DIRS 65536
#define MAX_ROOM 262144
#define MAX_DEPTH 16
#define PAGE 4096

static const struct param handle_params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL, "opens by handle of each process" },
	{ 0 },
};

static const struct param full_params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL, "opens of each process" },
	{ 0 },
};

static const struct param perturbed_params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL, "opens of each process in each phase" },
	{ "listings", PARAM_NUMBER, "0", 0, 1000000, NULL,
	  "how often the directory is listed (0: while the phase lasts)" },
	{ 0 },
};

#define GETDENT_PARAMS \
	{ "ops", PARAM_NUMBER, "100", 1, 10000000, NULL, \
	  "directories until more than half the processes have listed as many" }, \
	{ "spread", PARAM_NUMBER, "1", 0, 1, NULL, "0: all begin at the first process's directory" }, \
	{ "held", PARAM_NUMBER, "0", 0, 1, NULL, "1: the directories above stay open" }, \
	{ "sysfs", PARAM_NUMBER, "1", 1, 1000, NULL, "how often sysfs is gone through, for once proc" }, \
	{ "memory", PARAM_NUMBER, "1", 0, 1, NULL, \
	  "0: without what lies in another file system than proc and sysfs" }

static const struct param getdent_params[] = { GETDENT_PARAMS, { 0 } };

static const struct param getdent_perturbed_params[] = {
	GETDENT_PARAMS,
	{ "listings", PARAM_NUMBER, "0", 0, 1000000, NULL,
	  "how often the root is listed (0: while the phase lasts)" },
	{ 0 },
};

static const char *directory = DEVICES;
static const char *device; /* in it */

static void in_devices(const char *name)
{
	device = text(DEVICES "/%s", name);
}

/* In a directory of many entries whoever lists is seldom at the device's lock. */
static void alone(const char *name)
{
	struct stat st;

	in_devices(name);
	if (stat(device, &st))
		fail_errno("stat %s", device);
	directory = ALONE;
	make_dir(directory);
	mount_fs("tmpfs", directory, NULL);
	device = text(ALONE "/%s", name);
	if (mknod(device, S_IFCHR | 0666, st.st_rdev))
		fail_errno("make %s", device);
}

static void op_handle(struct worker *w, uint64_t i)
{
	static union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} found;
	int mount, at, fd;

	(void)w;
	(void)i;
	/* First how long it is, as everybody asks who does not know. */
	found.handle.handle_bytes = 0;
	if (name_to_handle_at(AT_FDCWD, device, &found.handle, &mount, 0) != -1)
		fail("the handle of %s has no bytes", device);
	if (errno == ENOSYS)
		fail("this kernel opens nothing by handle: boot one with config handles");
	if (errno != EOVERFLOW || found.handle.handle_bytes > MAX_HANDLE_SZ)
		fail_errno("ask for the handle of %s", device);
	if (name_to_handle_at(AT_FDCWD, device, &found.handle, &mount, 0))
		fail_errno("get the handle of %s", device);
	at = open_file(directory, O_RDONLY);
	fd = open_by_handle_at(at, &found.handle, O_RDONLY);
	if (fd < 0)
		fail_errno("open %s by its handle", device);
	if (close(fd) || close(at))
		fail_errno("close %s", device);
}

static void run_handle(void)
{
	const struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = arg_number("ops"),
		.warm_ups = 3,
		.op = op_handle,
	};
	struct result result = { 0 };

	in_devices("zero");
	gate_run(&gate, &result);
	report_result(&result);
}

static void run_handle_perturbed(void)
{
	const struct gate gate = { .ops = arg_number("ops"), .warm_ups = 3, .op = op_handle };

	alone("zero");
	lister_phases(gate, directory, arg_number("listings"));
}

static void op_full(struct worker *w, uint64_t i)
{
	static char bytes[4096];
	const int whence[] = { SEEK_SET, SEEK_CUR, SEEK_END };
	int fd = open_file(device, O_RDWR);

	if (write(fd, bytes, sizeof(bytes)) >= 0 || errno != ENOSPC)
		fail("%s has room", device);
	if (read(fd, bytes, sizeof(bytes)) != sizeof(bytes))
		fail_errno("read %s", device);
	if (lseek(fd, (off_t)i, whence[(w->id + i) % ARRAY_SIZE(whence)]) < 0)
		fail_errno("seek in %s", device);
	if (close(fd))
		fail_errno("close %s", device);
}

static void run_full(void)
{
	const struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = arg_number("ops"),
		.warm_ups = 3,
		.op = op_full,
	};
	struct result result = { 0 };

	in_devices("full");
	gate_run(&gate, &result);
	report_result(&result);
}

static void run_full_perturbed(void)
{
	const struct gate gate = { .ops = arg_number("ops"), .warm_ups = 3, .op = op_full };

	alone("full");
	lister_phases(gate, directory, arg_number("listings"));
}

static char *dirs[MAX_DIRS];
static unsigned n_dirs, first_process;

static bool left_out(DIR *dir)
{
	struct statfs is;

	return !arg_number("memory") && !fstatfs(dirfd(dir), &is) &&
	       is.f_type != PROC_SUPER_MAGIC && is.f_type != SYSFS_MAGIC;
}

/* Note a directory and, before its next sibling, those in it. */
static void walk(const char *path, unsigned depth)
{
	struct dirent *entry;
	DIR *dir = opendir(path);

	if (!dir)
		return;
	if (left_out(dir)) {
		closedir(dir);
		return;
	}
	if (n_dirs == MAX_DIRS)
		fail("there are more than %u directories", MAX_DIRS);
	if (!strcmp(path, "/proc/1"))
		first_process = n_dirs;
	dirs[n_dirs] = strdup(path);
	if (!dirs[n_dirs++])
		fail("no memory for the names of directories");
	while (depth && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") &&
		    strcmp(entry->d_name, "..")) {
			char *below;

			if (asprintf(&below, "%s/%s", path, entry->d_name) < 0)
				fail("no memory for the names of directories");
			walk(below, depth - 1);
			free(below);
		}
	closedir(dir);
}

/* Open directories above the one that is listed, the outermost first; each process's own. */
static struct {
	const char *path;
	int fd;
} held[MAX_DEPTH];
static unsigned n_held;
static bool hold;

static bool is_below(const char *path, const char *above)
{
	const size_t length = strlen(above);

	return !strncmp(path, above, length) && path[length] == '/';
}

static void stay_open(const char *path, int fd)
{
	if (n_held == MAX_DEPTH)
		fail("%s lies deeper than %u directories", path, MAX_DEPTH);
	held[n_held].path = path;
	held[n_held++].fd = fd;
}

/* Who is in the middle has those above open already. */
static void open_above(const char *path)
{
	for (unsigned k = 0; k < n_dirs; k++) {
		int fd;

		if (!is_below(path, dirs[k]) ||
		    (n_held && strlen(held[n_held - 1].path) >= strlen(dirs[k])))
			continue;
		fd = open(dirs[k], O_RDONLY | O_DIRECTORY);
		if (fd >= 0)
			stay_open(dirs[k], fd);
		else if (errno != ENOENT) /* as in op_getdent() */
			fail_errno("open %s", dirs[k]);
	}
}

/* Close those that the next path is not below. */
static void leave(const char *next)
{
	while (n_held && !is_below(next, held[n_held - 1].path))
		if (close(held[--n_held].fd))
			fail_errno("close %s", held[n_held].path);
}

static void op_getdent(struct worker *w, uint64_t i)
{
	const uint64_t chance = by_chance(w->local[1] + i);
	const long call = chance & 1 ? SYS_getdents64 : SYS_getdents;
	const size_t room = ((chance >> 1) % MAX_ROOM + PAGE) & ~(size_t)(PAGE - 1);
	const char *path = dirs[(w->local[0] + i) % n_dirs];
	char *entries;
	long n;
	int fd;

	leave(path);
	/*
	 * A thread of the kernel may have ended since, and its directories with
	 * it. That is an operation here, and none of stress-ng's.
	 */
	fd = open(path, O_RDONLY | O_DIRECTORY);
	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0)
		fail_errno("open %s", path);
	entries = malloc(room);
	if (!entries)
		fail("no memory for the entries of %s", path);
	while ((n = syscall(call, fd, entries, room)) > 0)
		;
	if (n < 0 && errno != ENOENT)
		fail_errno("list %s", path);
	free(entries);
	if (hold) {
		w->count[0] += n_held; /* those above, as it is listed */
		stay_open(path, fd);
	} else if (close(fd)) {
		fail_errno("close %s", path);
	}
}

static void prepare_getdent(struct worker *w)
{
	w->local[0] = arg_number("spread") ? by_chance(w->id) : first_process;
	w->local[1] = (uint64_t)w->id << 32;
	hold = arg_number("held");
	if (hold)
		open_above(dirs[w->local[0] % n_dirs]);
}

static void note_directories(void)
{
	static const struct {
		const char *path;
		unsigned depth;
	} roots[] = { { "/proc", 8 }, { "/dev", 1 }, { "/sys", 8 } };

	for (unsigned i = 0; i < ARRAY_SIZE(roots); i++)
		for (uint64_t k = strcmp(roots[i].path, "/sys") ? 1 : arg_number("sysfs"); k; k--)
			walk(roots[i].path, roots[i].depth);
	if (!first_process)
		fail("there is no directory of a process in /proc");
}

/* Of the directories that are noted; how many processes is left open. */
static struct gate getdent_gate(void)
{
	note_directories();
	return (struct gate){
		.ops = arg_number("ops"),
		.on = true,
		.warm_ups = 3,
		.prepare = prepare_getdent,
		.op = op_getdent,
		.counts = { arg_number("held") ? "held" : NULL },
	};
}

static void run_getdent(void)
{
	struct gate gate = getdent_gate();
	struct result result = { .size = n_dirs };

	gate.procs = arg_procs(worker_cpus());
	gate_run(&gate, &result);
	report_result(&result);
}

static void run_getdent_perturbed(void)
{
	lister_phases(getdent_gate(), "/", arg_number("listings"));
}

const struct workload work_handle = {
	"handle", "a device opened by its handle, as by stress-ng --handle",
	handle_params, run_handle, false,
};
const struct workload work_handle_perturbed = {
	"handle-perturbed", "such a device: calm, while its directory is listed, after",
	perturbed_params, run_handle_perturbed, false,
};
const struct workload work_full = {
	"full", "a device that is always full, opened and used as by stress-ng --full",
	full_params, run_full, false,
};
const struct workload work_full_perturbed = {
	"full-perturbed", "such a device: calm, while its directory is listed, after",
	perturbed_params, run_full_perturbed, false,
};
const struct workload work_getdent = {
	"getdent", "directories of proc and sysfs listed, as by stress-ng --getdent",
	getdent_params, run_getdent, false,
};
const struct workload work_getdent_perturbed = {
	"getdent-perturbed", "such directories: calm, while the root is listed, after",
	getdent_perturbed_params, run_getdent_perturbed, false,
};
