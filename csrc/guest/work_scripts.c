/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_scripts.c - what a small shell script asks the kernel for, as
 * UnixBench's shell1 repeats one: a shell that starts seven programs, which
 * read, write and remove a few files of the script's own.
 *
 * All scripts execute the same files, and a program that begins opens the
 * loader's cache and the C library, so each dentry on the way gets references
 * of everybody. What the programs themselves calculate is left out, and they
 * run one after the other, where the script has pipes.
 */
#include "guest.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

#include "args.h"
#include "gate.h"
#include "sys.h"
#include "work.h"

#define BIN WORK "/bin"
#define LIB WORK "/lib"
#define LIBRARY_BYTES (2u << 20)

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "3", 1, 100000, NULL, "scripts of each process" },
	{ 0 },
};

/* In the script's order, with the file that each leaves behind. */
static const struct program {
	const char *name, *reads, *writes;
} programs[] = {
	{ "sh", NULL, NULL },
	{ "sort", "source", "sorted" },
	{ "od", "sorted", "dump" },
	{ "sort", "dump", "dump" },
	{ "grep", "sorted", "found" },
	{ "tee", "found", "found" },
	{ "wc", "found", "count" },
	{ "rm", NULL, NULL },
};

static const char *const libraries[] = { LIB "/ld.so.cache", LIB "/libc.so.6" };

/* The guest's own program under all the names: one file, and a dentry each. */
static void install(void)
{
	int from = open_file("/proc/self/exe", O_RDONLY), to;
	struct stat st;

	make_dir(BIN);
	make_dir(LIB);
	to = open(BIN "/sh", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0700);
	if (to < 0 || fstat(from, &st) ||
	    sendfile(to, from, NULL, (size_t)st.st_size) != st.st_size)
		fail_errno("copy the guest program to " BIN "/sh");
	if (close(to) || close(from))
		fail_errno("close " BIN "/sh");
	for (size_t i = 1; i < ARRAY_SIZE(programs); i++)
		if (link(BIN "/sh", text(BIN "/%s", programs[i].name)) && errno != EEXIST)
			fail_errno("link " BIN "/%s", programs[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
		make_file("%s", libraries[i]);
		if (truncate(libraries[i], LIBRARY_BYTES))
			fail_errno("make %s longer", libraries[i]);
	}
}

/* As the loader does it: open, look at the head, map, close. */
static void load(void)
{
	char head[832];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
		int fd = open_file(libraries[i], O_RDONLY | O_CLOEXEC);
		void *at;

		if (read(fd, head, sizeof(head)) != sizeof(head) || fstat(fd, &st))
			fail_errno("read %s", libraries[i]);
		at = mmap(NULL, LIBRARY_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
		if (at == MAP_FAILED || close(fd) || munmap(at, LIBRARY_BYTES))
			fail_errno("map %s", libraries[i]);
	}
}

static void copy(const char *from, const char *to)
{
	char bytes[4096];
	int in = open_file(from, O_RDONLY | O_CLOEXEC), out;
	ssize_t n = read(in, bytes, sizeof(bytes));

	out = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (n < 0 || out < 0 || write(out, bytes, (size_t)n) != n || close(in) || close(out))
		fail_errno("copy %s to %s", from, to);
}

/* What the program does to files is done before its exec, which has no way to be told. */
static void start(const struct program *program)
{
	char *const arguments[] = { DOES_NOTHING, NULL }, *none = NULL;
	pid_t pid = fork();
	int status;

	if (!pid) {
		load();
		if (program->writes)
			copy(program->reads, program->writes);
		execve(text(BIN "/%s", program->name), arguments, &none);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		fail_errno("start %s", program->name);
}

static void in_own_directory(struct worker *w)
{
	const char *home = text(WORK "/w%u", w->id);

	make_dir("%s", home);
	if (chdir(home))
		fail_errno("change to %s", home);
	write_file("source", "a line to sort and to count\n");
}

static void op_script(struct worker *w, uint64_t i)
{
	(void)w, (void)i;
	for (size_t p = 0; p < ARRAY_SIZE(programs); p++)
		start(&programs[p]);
	if (unlink("sorted") || unlink("dump") || unlink("found") || unlink("count"))
		fail_errno("remove the script's files");
}

static void run(void)
{
	const struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = arg_number("ops"),
		.warm_ups = 1,
		.prepare = in_own_directory,
		.op = op_script,
	};
	struct result result = { 0 };

	install();
	gate_run(&gate, &result);
	report_result(&result);
}

const struct workload work_scripts = {
	"scripts", "programs started as by a small shell script, as by UnixBench's shell1",
	params, run, false,
};
