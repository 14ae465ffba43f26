/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * init.c - the start and the end: pid 1 of a lab kernel, or a command.
 *
 * As pid 1 it must neither end nor crash, which would be a kernel panic. So
 * it does as little as possible itself; the workload is run by a child, and
 * whatever becomes of it, the host gets its last line and the machine ends.
 */
#include "guest.h"

#include <sys/wait.h>

#include "args.h"
#include "calls.h"
#include "panic.h"
#include "report.h"
#include "shell.h"
#include "sys.h"

#define RESULTS "/dev/ttyS1"

static void describe(void)
{
	for (const struct workload *const *at = workloads; *at; at++) {
		const struct workload *w = *at;
		char params[1024] = "";

		for (const struct param *p = w->params; p && p->name; p++) {
			const size_t used = strlen(params);
			char range[128];

			if (p->kind == PARAM_WORD)
				snprintf(range, sizeof(range), "%s", p->words);
			else
				snprintf(range, sizeof(range), "%" PRIu64 "..%" PRIu64,
					 p->min, p->max);
			snprintf(params + used, sizeof(params) - used,
				 "%s%s=%s (%s: %s)", used ? ", " : "", p->name,
				 p->preset, range, p->help);
		}
		report_about(w->name, w->help, params);
	}
}

/* The workload's own process. */
static void run_workload(void)
{
	const char *run = args_given("run");
	const struct workload *w;

	if (run && !strcmp(run, "list")) {
		describe();
		return;
	}
	w = args_check();
	own_namespace();
	if (args_given("calls"))
		calls_setup(args_given("calls"));
	w->run();
	calls_done();
}

/* 0, or 1 if it failed; then an error line has been sent. */
static int supervise(void)
{
	int status;
	pid_t pid = fork_bound(), ended;

	if (pid < 0) {
		report_error("fork: %s", strerror(errno));
		return 1;
	}
	if (!pid) {
		run_workload();
		/* Here, where its mounts are: they go when this process does. */
		if (args_given("hold") && !strcmp(args_given("hold"), "1"))
			report_hold();
		_exit(0);
	}
	/* As pid 1 we are the parent of all that lose theirs. */
	do {
		ended = waitpid(-1, &status, 0);
	} while (ended != pid && (ended > 0 || errno == EINTR));
	if (WIFSIGNALED(status))
		report_error("the workload was killed by signal %d (%s)",
			     WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) && WEXITSTATUS(status) != EXIT_SAID)
		report_error("the workload ended with status %d",
			     WEXITSTATUS(status));
	return status ? 1 : 0;
}

static void try_mount(const char *type, const char *at)
{
	mkdir(at, 0755);
	/* What is missing is said by whoever needs it. */
	if (mount(type, at, type, 0, NULL) && errno != EBUSY && errno != ENODEV &&
	    errno != ENOENT)
		fail_errno("mount %s at %s", type, at);
}

/*
 * Where a kernel has control groups, as a login would do it: objects of the
 * root's own group are charged to nobody, and their allocation is shorter.
 */
static void join_memory_group(void)
{
	if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL)) {
		if (errno == ENOENT || errno == ENODEV)
			return;
		fail_errno("mount cgroup2");
	}
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	make_dir("/sys/fs/cgroup/work");
	write_file("/sys/fs/cgroup/work/cgroup.procs", "0");
}

_Noreturn static void init_main(void)
{
	char cmdline[4096];
	int fd, status = 0;

	mkdir("/dev", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	fd = open(RESULTS, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0) {
		dprintf(2, "ct: %s: %s; start QEMU with a second -serial\n",
			RESULTS, strerror(errno));
		report_end(1);
	}
	report_is_init();
	report_to(fd);
	try_mount("proc", "/proc");
	try_mount("sysfs", "/sys");
	try_mount("tracefs", "/sys/kernel/tracing");
	join_memory_group();
	read_file("/proc/cmdline", cmdline, sizeof(cmdline));
	args_add_cmdline(cmdline);
	report_hello();
	if (args_given("run") && !strcmp(args_given("run"), "panic"))
		panic_before_fork();
	if (args_given("run") && !strcmp(args_given("run"), "shell"))
		shell();
	else
		status = supervise();
	if (args_given("dmesg") && !strcmp(args_given("dmesg"), "1"))
		report_dmesg();
	report_end(status);
}

static int command_main(int argc, char **argv)
{
	int status;

	if (argc < 2) {
		fprintf(stderr, "usage: %s WORKLOAD|list [NAME=VALUE...]\n", argv[0]);
		return 2;
	}
	args_add("run", argv[1]);
	for (int i = 2; i < argc; i++) {
		char *equals = strchr(argv[i], '=');

		if (!equals || equals == argv[i]) {
			report_error("%s: parameters are NAME=VALUE", argv[i]);
			return 2;
		}
		*equals = '\0';
		args_add(argv[i], equals + 1);
	}
	status = supervise();
	if (args_given("dmesg") && !strcmp(args_given("dmesg"), "1"))
		report_dmesg();
	return status;
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[0], DOES_NOTHING))
		return 0;
	if (argc == 2 && !strcmp(argv[0], MOUNTS_ONE))
		return mount("tmpfs", argv[1], "tmpfs", 0, NULL) ? errno : 0;
	if (argc == 3 && !strcmp(argv[0], UNMOUNTS_ONE))
		return umount2(argv[1], atoi(argv[2])) ? errno : 0;
	setlinebuf(stdout);
	/* The name tells a machine's init from pid 1 of a container. */
	if (getpid() == 1 && !strcmp(argv[0], "/init"))
		init_main();
	return command_main(argc, argv);
}
