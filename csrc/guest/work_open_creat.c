/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_open_creat.c - each process opens its own file on its own mount.
 *
 * Nothing is shared by what the processes ask for. What they share is the
 * root directory, on which each open(O_CREAT) of an absolute path takes a
 * reference for a moment. With drawn=1 the processes, their directories and
 * files have names that nobody knows beforehand, and every other file system
 * is another one. With mounts=N a process has its file on any of so many, as
 * a task that the scheduler has picked: several may be on one. With jam=N each
 * directory's lock has sleepers from the start.
 */
#include "gate.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "args.h"
#include "draw.h"
#include "sys.h"
#include "work.h"

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "300", 1, 10000000, NULL, "opens of each process" },
	{ "exist", PARAM_NUMBER, "1", 0, 1, NULL,
	  "0: the file is created, and removed after each open" },
	{ "mounts", PARAM_NUMBER, "0", 0, 10000, NULL,
	  "on how many mounts the processes are, by chance; 0: each on its own" },
	{ "loose", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: no process is pinned to a CPU" },
	{ "jam", PARAM_NUMBER, "0", 0, 20000, NULL,
	  "each directory has so many more entries, and is listed when all begin" },
	{ "drawn", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: names are drawn, and half of the file systems are ramfs" },
	{ 0 },
};

enum { WARM_UPS = 3 };

static bool exists, drawn;
static const char **files; /* of each process */
static unsigned *begun;	   /* a futex: somebody works in the region; NULL: nobody lists */

static void open_and_close(const char *path)
{
	int fd = open(path, O_CREAT | O_RDWR, 0644);

	if (fd < 0)
		fail_errno("open %s", path);
	if (close(fd))
		fail_errno("close %s", path);
}

static void op(struct worker *w, uint64_t i)
{
	(void)i;
	if (begun && w->local[0]++ == WARM_UPS)
		set_and_wake(begun);
	open_and_close(w->pointer);
	if (!exists && unlink(w->pointer))
		fail_errno("unlink %s", (const char *)w->pointer);
}

/*
 * List a directory once, when the region has begun. That holds its lock for as
 * long as there are entries: all that open there meanwhile have to sleep.
 */
static void list(const char *path, unsigned id)
{
	const struct sched_param first = { .sched_priority = 1 };
	static char entries[1 << 20];
	int fd = open_file(path, O_RDONLY | O_DIRECTORY);

	pin_to(online_cpu(id));
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		fail_errno("SCHED_FIFO");
	wait_until_set(begun);
	if (syscall(SYS_getdents64, fd, entries, sizeof(entries)) < 0)
		fail_errno("list %s", path);
	/* To end would be work. */
	for (;;)
		pause();
}

/* A process for each of so many directories, which has as many more entries; who they are. */
static pid_t *jam(const char *const *at, unsigned mounts, unsigned more)
{
	pid_t *pids = calloc(mounts, sizeof(*pids));

	if (!pids)
		fail("no memory for %u processes", mounts);
	begun = shared_memory(sizeof(*begun));
	for (unsigned i = 0; i < mounts; i++) {
		for (unsigned j = 0; j < more; j++)
			make_file("%s/%u", at[i], j);
		pids[i] = fork_bound();
		if (pids[i] < 0)
			fail_errno("fork");
		if (!pids[i])
			list(at[i], i);
	}
	return pids;
}

static void prepare(struct worker *w)
{
	if (drawn)
		drawn_process_name();
	w->pointer = (void *)files[w->id];
}

static void run(void)
{
	struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = arg_number("ops"),
		.loose = arg_number("loose"),
		.warm_ups = WARM_UPS,
		.prepare = prepare,
		.op = op,
	};
	struct result result = { 0 };
	pid_t *jams = NULL;
	const char **at;
	unsigned mounts;

	exists = arg_number("exist");
	drawn = arg_number("drawn");
	files = calloc(gate.procs, sizeof(*files));
	if (!files)
		fail("no memory for %u names", gate.procs);
	mounts = arg_number("mounts") ? arg_number("mounts") : gate.procs;
	at = calloc(mounts, sizeof(*at));
	if (!at)
		fail("no memory for %u mounts", mounts);
	for (unsigned i = 0; i < mounts; i++) {
		at[i] = strdup(text(WORK "/%s", drawn ? drawn_word() : text("m%u", i)));
		make_dir("%s", at[i]);
		mount_fs(drawn && i % 2 ? "ramfs" : "tmpfs", at[i], NULL);
	}
	for (unsigned i = 0; i < gate.procs; i++) {
		const bool own = !arg_number("mounts");
		const char *name = own ? "f" : text("f%u", i);

		files[i] = strdup(text("%s/%s", at[own ? i : by_chance(i) % mounts],
				       drawn ? drawn_word() : name));
		if (exists)
			make_file("%s", files[i]);
	}
	if (arg_number("jam"))
		jams = jam(at, mounts, arg_number("jam"));
	gate_run(&gate, &result);
	for (unsigned i = 0; jams && i < mounts; i++) {
		kill(jams[i], SIGKILL);
		if (waitpid(jams[i], NULL, 0) != jams[i])
			fail_errno("wait for who listed");
	}
	report_result(&result);
}

const struct workload work_open_creat = {
	"open-creat", "open(O_CREAT) of a file of its own on a mount of its own",
	params, run, false,
};
