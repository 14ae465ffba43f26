/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke.c - runs the checks, each in a world of its own.
 */
#include "smoke.h"

#include <signal.h>
#include <sys/klog.h>
#include <sys/wait.h>

#include "args.h"
#include "mounts.h"
#include "work.h"

#define PATIENCE_S 30

static const struct {
	const char *name;
	const struct check *checks;
} families[] = {
	{ "names", smoke_names },     { "lookup", smoke_lookup },
	{ "mounts", smoke_mounts },   { "overlay", smoke_overlay },
	{ "access", smoke_access },   { "races", smoke_races },
};

static const struct param params[] = {
	{ "only", PARAM_WORD, "all", 0, 0, "all|names|lookup|mounts|overlay|access|races",
	  "one family of checks" },
	{ 0 },
};

/* Shared with the processes of a check. */
static struct notes {
	char detail[512];
	unsigned stop;
} *notes;

/* Mounts that were below WORK already, under what we have mounted there. */
static size_t hidden;

static pid_t companions[16];
static unsigned n_companions;

void expect_content(const char *path, const char *content)
{
	char is[1024];

	read_file(path, is, sizeof(is));
	if (strcmp(is, content) != 0)
		fail("%s contains \"%s\", not \"%s\"", path, is, content);
}

bool there(const char *path)
{
	struct stat st;

	if (!lstat(path, &st))
		return true;
	if (errno != ENOENT)
		fail_errno("lstat %s", path);
	return false;
}

void expect_mounts(const char *const *places)
{
	size_t n = 0;

	for (; places[n]; n++)
		if (mounts_count(text(WORK "/%s", places[n])) < 1)
			fail("nothing is mounted on %s", places[n]);
	if (mounts_below(WORK) - hidden != n)
		fail("there are %zu mounts, not %zu", mounts_below(WORK) - hidden, n);
}

void beside(void (*f)(void))
{
	pid_t pid = fork();

	if (pid < 0)
		fail_errno("fork");
	if (!pid) {
		/* A lab kernel's other CPUs are isolated: nobody is moved there. */
		if (in_lab())
			pin_to(online_cpu((n_companions + 1) % online_cpus()));
		n_companions = 0;
		f();
		_exit(0);
	}
	adopt(pid);
}

void adopt(pid_t pid)
{
	if (n_companions == ARRAY_SIZE(companions))
		fail("more than %zu companions", ARRAY_SIZE(companions));
	companions[n_companions++] = pid;
}

void together(void)
{
	__atomic_store_n(&notes->stop, 1, __ATOMIC_RELEASE);
	while (n_companions) {
		int status;

		if (waitpid(companions[--n_companions], &status, 0) < 0)
			fail_errno("wait for a companion");
		if (status)
			child_failed("a companion", status);
	}
	__atomic_store_n(&notes->stop, 0, __ATOMIC_RELEASE);
}

bool time_is_up(void)
{
	return __atomic_load_n(&notes->stop, __ATOMIC_ACQUIRE);
}

void let_run(unsigned ms)
{
	sleep_ms(ms);
}

static void note_failure(const char *what)
{
	if (!notes->detail[0])
		snprintf(notes->detail, sizeof(notes->detail), "%s", what);
	/* Its companions would go on without it. */
	__atomic_store_n(&notes->stop, 1, __ATOMIC_RELEASE);
}

static bool run_check(const struct check *check)
{
	pid_t pid;
	int status;

	memset(notes, 0, sizeof(*notes));
	pid = fork();
	if (pid < 0)
		fail_errno("fork");
	if (!pid) {
		setpgid(0, 0);
		report_failures_to(note_failure);
		alarm(PATIENCE_S);
		own_namespace();
		hidden = mounts_below(WORK);
		umask(0);
		if (chdir(WORK))
			fail_errno("change to " WORK);
		check->run();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) < 0)
		fail_errno("wait for a check");
	kill(-pid, SIGKILL); /* what it may have left behind */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(notes->detail, sizeof(notes->detail),
			 "no end after %d s", PATIENCE_S);
	else if (WIFSIGNALED(status))
		snprintf(notes->detail, sizeof(notes->detail),
			 "killed by signal %d", WTERMSIG(status));
	report_check(check->name, !status, "%s", notes->detail);
	return !status;
}

/* Reports of bugs in the kernel's log: what they begin with. */
static unsigned splats(void)
{
	static const char *const signs[] = {
		"WARNING: ", "BUG: ", "INFO: possible ", "INFO: task ",
		"INFO: rcu", "rcu: INFO", "Oops: ", "general protection fault",
	};
	int size = klogctl(10, NULL, 0);
	char *log = size < 0 ? NULL : malloc((size_t)size + 1);
	unsigned found = 0;
	int n;

	if (!log)
		fail_errno("the kernel log");
	n = klogctl(3, log, size);
	if (n < 0)
		fail_errno("read the kernel log");
	log[n] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
		for (char *at = log; (at = strstr(at, signs[i])); at++)
			found++;
	free(log);
	return found;
}

/* What the kernel has noted of warnings and worse, printed or not. */
static long tainted(void)
{
	char content[32];

	if (try_read_file("/proc/sys/kernel/tainted", content, sizeof(content)) < 0)
		return 0;
	return atol(content);
}

static void run(void)
{
	const char *only = arg_word("only");
	struct result result = { .label = "smoke", .procs = 1 };
	const uint64_t begin = now_ns();
	unsigned before = 0, after;
	uint64_t failed = 0;

	notes = shared_memory(sizeof(*notes));
	if (in_lab())
		before = splats();
	for (size_t f = 0; f < ARRAY_SIZE(families); f++) {
		if (strcmp(only, "all") != 0 && strcmp(only, families[f].name) != 0)
			continue;
		for (const struct check *c = families[f].checks; c->name; c++) {
			failed += !run_check(c);
			result.ops++;
		}
	}
	if (in_lab()) {
		/* What is freed late must have had its chance to complain. */
		sleep_ms(200);
		after = splats();
		report_check("kernel-log-silent", after == before,
			     "%u reports before, %u after", before, after);
		failed += after != before;
		result.ops++;
		/* Before the first check there is nothing that would do that. */
		report_check("kernel-not-tainted", after || !tainted(),
			     "tainted is %ld, and the log is silent", tainted());
		failed += !after && tainted();
		result.ops++;
	}
	result.ns = now_ns() - begin;
	count(&result, "failed", failed);
	report_result(&result);
}

const struct workload work_smoke = {
	"smoke", "does the file system layer do what it promises", params, run, true,
};
