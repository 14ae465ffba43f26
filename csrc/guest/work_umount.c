/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_umount.c - how long an unmount takes, plain and lazy.
 *
 * Both are rounds by turns, so that whatever else changes in the meantime
 * changes both. The mounts are there before a region begins. With busy=1 the
 * other CPUs run something, as those of a loaded machine do; a grace period
 * then has to interrupt them.
 */
#include "guest.h"

#include <signal.h>
#include <sys/wait.h>

#include "args.h"
#include "calls.h"
#include "gate.h"
#include "sys.h"
#include "work.h"

#define MAX_BUSY 1024

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "30", 1, 100000, NULL,
	  "unmounts of each kind" },
	{ "rounds", PARAM_NUMBER, "5", 1, 1000, NULL,
	  "turns in which they are done" },
	{ "busy", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: the other CPUs run a loop meanwhile" },
	{ 0 },
};

static int flags;
static uint64_t each;

static void prepare(struct worker *w)
{
	(void)w;
	for (uint64_t i = 0; i < each; i++)
		mount_fs("tmpfs", text(WORK "/u%" PRIu64, i), NULL);
	/* The first of a kind may be slower. */
	mount_fs("tmpfs", WORK "/u0", NULL);
	unmount(WORK "/u0", flags);
	sleep_ms(20);
}

static void op(struct worker *w, uint64_t i)
{
	char path[64];

	(void)w;
	snprintf(path, sizeof(path), WORK "/u%" PRIu64, i);
	if (umount2(path, flags))
		fail_errno("unmount %s", path);
}

static void turn(struct result *result, int how, uint64_t ops)
{
	const struct gate gate = {
		.procs = 1,
		.ops = ops,
		.latency = true,
		.prepare = prepare,
		.op = op,
	};

	flags = how;
	each = ops;
	gate_run(&gate, result);
}

static void run(void)
{
	struct result plain = { .label = "plain" }, lazy = { .label = "lazy" };
	const uint64_t ops = arg_number("ops"), rounds = arg_number("rounds");
	static pid_t busy[MAX_BUSY];
	unsigned n_busy = 0;

	for (uint64_t i = 0; i < ops; i++)
		make_dir(WORK "/u%" PRIu64, i);
	if (arg_number("busy"))
		for (unsigned i = 1; i < online_cpus() && n_busy < MAX_BUSY; i++) {
			pid_t pid = fork();

			if (pid < 0)
				fail_errno("fork");
			if (!pid) {
				pin_to(online_cpu(i));
				for (;;)
					relax();
			}
			busy[n_busy++] = pid;
		}
	for (uint64_t round = 0; round < rounds; round++) {
		const uint64_t n = ops * (round + 1) / rounds - ops * round / rounds;

		if (!n)
			continue;
		turn(&plain, 0, n);
		turn(&lazy, MNT_DETACH, n);
	}
	for (unsigned i = 0; i < n_busy; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
	report_result(&plain);
	report_result(&lazy);
}

const struct workload work_umount = {
	"umount", "the latency of umount, plain and lazy", params, run, true,
};
