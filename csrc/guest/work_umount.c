/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_umount.c - how long an unmount takes, plain and lazy.
 *
 * Both are rounds by turns, so that whatever else changes in the meantime
 * changes both. The mounts are there before a region begins. With busy=1 the
 * other CPUs run something, as those of a loaded machine do; a grace period
 * then has to interrupt them; with loops=1 a single process does, wherever it
 * is let, and that is beside the unmounts if there is but one. With others=1
 * somebody else waits for one grace period after the other meanwhile, as on a
 * machine where much is freed by RCU: who asks for one while one is on its way
 * has to wait for that and for the next. With drawn=1 the places and the process have
 * names that nobody knows beforehand, and it is counted how often the process
 * gives up its CPU to wait, for whatever. With apart=N some of N microseconds
 * pass before each, by chance: else every one begins where the one before it
 * was woken, at a timer tick. The process works meanwhile, or sleeps (asleep=1).
 * With command=1 a command mounts it before each, and another unmounts it, as
 * perf stat repeats it: what is timed is all of the latter, from fork() to its
 * end. Commands that begin and end leave work to RCU, so that a grace period
 * may be on its way just then. No time passes between them.
 */
#include "guest.h"

#include <linux/membarrier.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "args.h"
#include "calls.h"
#include "draw.h"
#include "gate.h"
#include "mounts.h"
#include "sys.h"
#include "work.h"

#define MAX_BESIDE 1024

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "30", 1, 100000, NULL,
	  "unmounts of each kind" },
	{ "rounds", PARAM_NUMBER, "5", 1, 1000, NULL,
	  "turns in which they are done" },
	{ "busy", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: the other CPUs run a loop meanwhile" },
	{ "loops", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: one process runs a loop meanwhile, on any CPU, even the only one" },
	{ "others", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: on the last of several CPUs somebody waits for grace periods" },
	{ "drawn", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: names are drawn, and waits are counted" },
	{ "apart", PARAM_NUMBER, "0", 0, 1000000, NULL,
	  "microseconds at most that pass before each, by chance" },
	{ "asleep", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: the process sleeps for these" },
	{ "command", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: commands mount and unmount, and are timed" },
	{ 0 },
};

static int flags;
static uint64_t each, apart_us;
static bool drawn, asleep, command;
static char (*names)[WORD_BYTES]; /* of each place */

static const char *place(uint64_t i)
{
	return text(WORK "/%s", names[i]);
}

/* The guest's own program, told by its name what to do; see main(). */
static void execute(const char *name, const char *path)
{
	char *none = NULL;
	const pid_t pid = fork();
	int status;

	if (!pid) {
		const char *how = strcmp(name, MOUNTS_ONE) ? text("%d", flags) : NULL;
		char *const arguments[] = { (char *)name, (char *)path, (char *)how, NULL };

		execve("/proc/self/exe", arguments, &none);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail_errno("execute %s", name);
	if (WIFSIGNALED(status))
		fail("%s %s is killed by signal %d", name, path, WTERMSIG(status));
	errno = WEXITSTATUS(status);
	if (errno)
		fail_errno("%s %s", name, path);
}

static void prepare(struct worker *w)
{
	(void)w;
	if (drawn)
		drawn_process_name();
	for (uint64_t i = 0; i < each && !command; i++)
		mount_fs("tmpfs", place(i), NULL);
	/* The first of a kind may be slower. */
	if (command) {
		execute(MOUNTS_ONE, place(0));
		execute(UNMOUNTS_ONE, place(0));
	} else {
		mount_fs("tmpfs", place(0), NULL);
		unmount(place(0), flags);
	}
	sleep_ms(20);
}

static void op_command(struct worker *w, uint64_t i)
{
	uint64_t begin;

	execute(MOUNTS_ONE, place(i));
	begin = now_ns();
	execute(UNMOUNTS_ONE, place(i));
	w->latency_ns = now_ns() - begin;
}

static void op(struct worker *w, uint64_t i)
{
	const uint64_t before = drawn ? voluntary_waits() : 0;
	const char *path = place(i);
	uint64_t begin = now_ns();

	if (apart_us) {
		const uint64_t us = drawn_below((unsigned)apart_us), until = begin + 1000 * us;

		if (asleep)
			sleep_us(us);
		do
			begin = now_ns();
		while (begin < until);
	}
	if (umount2(path, flags))
		fail_errno("unmount %s", path);
	w->latency_ns = now_ns() - begin;
	if (drawn)
		w->count[0] += voluntary_waits() - before;
}

static void turn(struct result *result, int how, uint64_t ops)
{
	const struct gate gate = {
		.procs = 1,
		.loose = command, /* and so are its commands */
		.ops = ops,
		.latency = true,
		.prepare = prepare,
		.op = command ? op_command : op,
		.counts = { drawn ? "waits" : NULL },
	};

	flags = how;
	each = ops;
	gate_run(&gate, result);
}

/* synchronize_rcu(), as a system call */
static void wait_for_readers(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
		fail_errno("membarrier");
}

/* Not relax(): an emulator leaves its loop at each pause, and hardly any time would pass. */
static void compute(void)
{
	for (volatile unsigned i = 0; i < 1000; i++)
		;
}

/* On a CPU, or where the scheduler puts it if that is negative. */
static pid_t start_beside(int cpu, void (*what)(void))
{
	const pid_t pid = fork_bound();

	if (pid < 0)
		fail_errno("fork");
	if (!pid) {
		if (cpu >= 0)
			pin_to(cpu);
		for (;;)
			what();
	}
	return pid;
}

static void run(void)
{
	struct result plain = { .label = "plain" }, lazy = { .label = "lazy" };
	const uint64_t ops = arg_number("ops"), rounds = arg_number("rounds");
	static pid_t beside[MAX_BESIDE + 2];
	uint64_t beside_ms = 0;
	unsigned n = 0;

	drawn = arg_number("drawn");
	apart_us = arg_number("apart");
	asleep = arg_number("asleep");
	command = arg_number("command");
	if (command && (drawn || apart_us || asleep))
		fail("commands follow each other at once: no drawn=, apart= or asleep= with command=1");
	names = calloc(ops, sizeof(*names));
	if (!names)
		fail("no memory for %" PRIu64 " names", ops);
	for (uint64_t i = 0; i < ops; i++) {
		snprintf(names[i], sizeof(names[i]), "%s",
			 drawn ? drawn_word() : text("u%" PRIu64, i));
		make_dir("%s", place(i));
	}
	if (arg_number("busy"))
		for (unsigned i = 1; i < online_cpus() && n < MAX_BESIDE; i++)
			beside[n++] = start_beside(online_cpu(i), relax);
	if (arg_number("loops"))
		beside[n++] = start_beside(-1, compute);
	if (arg_number("others") && online_cpus() > 1) /* one alone waits for no reader */
		beside[n++] = start_beside(online_cpu(online_cpus() - 1), wait_for_readers);
	for (uint64_t round = 0; round < rounds; round++) {
		const uint64_t some = ops * (round + 1) / rounds - ops * round / rounds;

		if (!some)
			continue;
		turn(&plain, 0, some);
		turn(&lazy, MNT_DETACH, some);
	}
	for (unsigned i = 0; i < n; i++) {
		struct rusage used;

		kill(beside[i], SIGKILL);
		if (wait4(beside[i], NULL, 0, &used) != beside[i])
			fail_errno("wait for a process beside the unmounts");
		beside_ms += 1000 * (uint64_t)used.ru_utime.tv_sec + (uint64_t)used.ru_utime.tv_usec / 1000;
	}
	if (n)
		count(&plain, "beside_ms", beside_ms);
	report_result(&plain);
	report_result(&lazy);
	mounts_report_watch();
}

const struct workload work_umount = {
	"umount", "the latency of umount, plain and lazy", params, run, true,
};
