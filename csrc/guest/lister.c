/* SPDX-License-Identifier: GPL-2.0-only */
#include "lister.h"

#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "args.h"
#include "sys.h"
#include "work.h"

static void list(struct lister *lister, const char *directory, uint64_t most)
{
	struct companion *companion = &lister->companion;
	int fd = open_file(directory, O_RDONLY | O_DIRECTORY);
	char entries[32768];

	pin_to(online_cpu(0));
	for (;;) {
		long n;

		while ((most && lister->passes == most) ||
		       !__atomic_load_n(&companion->running, __ATOMIC_ACQUIRE)) {
			__atomic_store_n(&companion->resting, 1, __ATOMIC_RELEASE);
			relax();
		}
		__atomic_store_n(&companion->resting, 0, __ATOMIC_RELEASE);
		if (lseek(fd, 0, SEEK_SET))
			fail_errno("rewind %s", directory);
		while ((n = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0)
			;
		if (n < 0)
			fail_errno("list %s", directory);
		__atomic_fetch_add(&lister->passes, 1, __ATOMIC_RELAXED);
	}
}

struct lister *lister_shared(void)
{
	return shared_memory(sizeof(struct lister));
}

void lister_begin(struct lister *lister, struct gate *gate, const char *directory, uint64_t most)
{
	pid_t pid = fork_bound(); /* the child shares what the parent notes of it */

	if (pid < 0)
		fail_errno("fork");
	if (!pid)
		list(lister, directory, most);
	lister->pid = pid;
	gate->companion = &lister->companion;
}

void lister_end(struct lister *lister)
{
	kill(lister->pid, SIGKILL);
	if (waitpid(lister->pid, NULL, 0) != lister->pid)
		fail_errno("wait for the process that lists");
	if (!lister->passes)
		fail("the directory was not listed while the workers ran");
}

static void phase(struct gate gate, const char *label, const char *directory, uint64_t most)
{
	struct lister *lister = directory ? lister_shared() : NULL;
	struct result result = { .label = label };

	if (lister)
		lister_begin(lister, &gate, directory, most);
	gate_run(&gate, &result);
	if (lister) {
		count(&result, "passes", lister->passes);
		lister_end(lister);
	}
	report_result(&result);
}

void lister_phases(struct gate gate, const char *directory, uint64_t most)
{
	if (online_cpus() < 2)
		fail("2 CPUs are needed: one is for the process that lists");
	gate.first_cpu = 1;
	gate.only_workers = true;
	gate.procs = arg_procs(online_cpus() - 1);
	if (gate.procs > online_cpus() - 1)
		fail("procs=%u: there is room for %u processes here beside the one that lists",
		     gate.procs, online_cpus() - 1);
	phase(gate, "calm", NULL, 0);
	phase(gate, "perturbed", directory, most);
	phase(gate, "after", NULL, 0);
}
