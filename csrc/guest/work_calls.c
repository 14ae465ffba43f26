/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_calls.c - one system call after the other, by processes that ask for
 * nothing in common.
 *
 * Each process has its own directory, with its own file, link and mount
 * points, and its own pipe and descriptors. Two such calls commute: the result
 * would be the same in either order, so nothing forces them to write to one
 * cache line. Where they do all the same, a kernel can be better. What the
 * processes still have in common is the file system, the mount namespace and
 * the kernel.
 */
#include "guest.h"

#include <linux/openat2.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "args.h"
#include "gate.h"
#include "sys.h"
#include "work.h"

#define WARM_UPS 3
#define DOWN_AND_UP "d/../d/../d/../d/../d/../d/../d/../d/../"
#define ENTRIES 8 /* of the directory that is listed */

static const struct param params[] = {
	{ "kind", PARAM_WORD, "all", 0, 0,
	  "all|open|stat|create|rename|readlink|getdents|pipe|epoll|spawn|mount|umount|lazy|beside|scoped",
	  "what each process does" },
	{ "ops", PARAM_NUMBER, "200", 10, 100000, NULL,
	  "operations of each process; a tenth of what is long" },
	{ 0 },
};

static const struct kind {
	const char *name;
	void (*prepare)(struct worker *w);
	void (*op)(struct worker *w, uint64_t i);
	void (*finish)(struct worker *w);
	bool is_long;
	bool mixed; /* two kinds of process: not one of "all" */
} *kind;

/* A process's own; each worker has its copy since the fork. */
static char home[64], file[96], other[96], link_[96];
static int fd = -1, event = -1;
static uint64_t done; /* operations so far, the warm-up's too */

static uint64_t operations(void)
{
	return arg_number("ops") / (kind->is_long ? 10 : 1);
}

static void in_own_directory(struct worker *w)
{
	snprintf(home, sizeof(home), WORK "/%s/w%u", kind->name, w->id);
	snprintf(file, sizeof(file), "%s/file", home);
	snprintf(other, sizeof(other), "%s/other", home);
	snprintf(link_, sizeof(link_), "%s/link", home);
	make_dir("%s", home);
}

static void with_file(struct worker *w)
{
	in_own_directory(w);
	make_file("%s", file);
}

static void op_open(struct worker *w, uint64_t i)
{
	int opened = open(file, O_RDONLY | O_CLOEXEC);

	(void)w, (void)i;
	if (opened < 0 || close(opened))
		fail_errno("open %s", file);
}

static void op_stat(struct worker *w, uint64_t i)
{
	struct stat st;

	(void)w, (void)i;
	if (stat(file, &st))
		fail_errno("stat %s", file);
}

/* With the unlink, since one without the other ends at some time. */
static void op_create(struct worker *w, uint64_t i)
{
	int opened = open(other, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	(void)w, (void)i;
	if (opened < 0 || close(opened))
		fail_errno("create %s", other);
	if (unlink(other))
		fail_errno("unlink %s", other);
}

static void op_rename(struct worker *w, uint64_t i)
{
	const bool back = done++ % 2;

	(void)w, (void)i;
	if (back ? rename(other, file) : rename(file, other))
		fail_errno("rename %s", back ? other : file);
}

/* One renames its file; all others stat theirs. */
static void op_beside(struct worker *w, uint64_t i)
{
	if (w->id == 0)
		op_rename(w, i);
	else
		op_stat(w, i);
}

static void with_link(struct worker *w)
{
	in_own_directory(w);
	if (symlink("file", link_))
		fail_errno("symlink %s", link_);
}

static void op_readlink(struct worker *w, uint64_t i)
{
	char target[16];

	(void)w, (void)i;
	if (readlink(link_, target, sizeof(target)) != 4)
		fail_errno("readlink %s", link_);
}

static void with_entries(struct worker *w)
{
	in_own_directory(w);
	make_dir("%s/d", home);
	for (unsigned i = 0; i < ENTRIES; i++)
		make_file("%s/d/%u", home, i);
	fd = open_file(text("%s/d", home), O_RDONLY | O_DIRECTORY);
}

static void with_entries_and_file(struct worker *w)
{
	with_entries(w);
	make_file("%s", file);
	close(fd);
	fd = open_file(home, O_PATH | O_DIRECTORY);
}

static void op_getdents(struct worker *w, uint64_t i)
{
	_Alignas(8) char entries[1024];
	long bytes, all = 0;

	(void)w, (void)i;
	if (lseek(fd, 0, SEEK_SET))
		fail_errno("lseek %s/d", home);
	while ((bytes = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0)
		all += bytes;
	if (bytes || all < ENTRIES)
		fail_errno("getdents %s/d", home);
}

/*
 * One renames; the others walk paths with many ".." that must not leave a
 * directory. A walk that notices a rename on its way fails, and may be tried
 * again: what it goes up from may have been moved out.
 */
static void op_scoped(struct worker *w, uint64_t i)
{
	struct open_how how = { .flags = O_PATH, .resolve = RESOLVE_BENEATH };
	int found;

	if (w->id == 0) {
		for (unsigned n = 0; n < 8; n++)
			op_rename(w, i);
		return;
	}
	found = (int)syscall(SYS_openat2, fd, DOWN_AND_UP "d", &how, sizeof(how));
	if (found >= 0)
		close(found);
	else if (errno != EAGAIN)
		fail_errno("openat2 beneath %s", home);
}

static void op_pipe(struct worker *w, uint64_t i)
{
	char byte = 'x';
	int ends[2];

	(void)w, (void)i;
	if (pipe2(ends, O_CLOEXEC) || write(ends[1], &byte, 1) != 1 ||
	    read(ends[0], &byte, 1) != 1 || close(ends[0]) || close(ends[1]))
		fail_errno("pipe");
}

static void with_event(struct worker *w)
{
	in_own_directory(w);
	fd = epoll_create1(EPOLL_CLOEXEC);
	event = eventfd(1, EFD_CLOEXEC);
	if (fd < 0 || event < 0)
		fail_errno("epoll_create1 and eventfd");
}

static void op_epoll(struct worker *w, uint64_t i)
{
	struct epoll_event ready = { .events = EPOLLIN };

	(void)w, (void)i;
	if (epoll_ctl(fd, EPOLL_CTL_ADD, event, &ready) ||
	    epoll_wait(fd, &ready, 1, 0) != 1 ||
	    epoll_ctl(fd, EPOLL_CTL_DEL, event, NULL))
		fail_errno("epoll");
}

static void op_spawn(struct worker *w, uint64_t i)
{
	char *const arguments[] = { DOES_NOTHING, NULL }, *none = NULL;
	pid_t pid = fork();
	int status;

	(void)w, (void)i;
	if (!pid) {
		execve("/proc/self/exe", arguments, &none);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		fail_errno("fork and execute");
}

static const char *place(uint64_t i)
{
	return text("%s/m%" PRIu64, home, i);
}

static void with_places(struct worker *w)
{
	in_own_directory(w);
	for (uint64_t i = 0; i < operations() + WARM_UPS; i++)
		make_dir("%s", place(i));
}

static void with_mounts(struct worker *w)
{
	with_places(w);
	for (uint64_t i = 0; i < operations() + WARM_UPS; i++)
		mount_fs("tmpfs", place(i), NULL);
}

static void op_mount(struct worker *w, uint64_t i)
{
	(void)w, (void)i;
	mount_fs("tmpfs", place(done++), NULL);
}

static void op_umount(struct worker *w, uint64_t i)
{
	(void)w, (void)i;
	unmount(place(done++), 0);
}

static void op_lazy(struct worker *w, uint64_t i)
{
	(void)w, (void)i;
	unmount(place(done++), MNT_DETACH);
}

/* The next region is not to be one among thousands of mounts. */
static void without_mounts(struct worker *w)
{
	(void)w;
	for (uint64_t i = 0; i < done; i++)
		unmount(place(i), MNT_DETACH);
}

static const struct kind kinds[] = {
	{ "open", with_file, op_open, NULL, false, false },
	{ "stat", with_file, op_stat, NULL, false, false },
	{ "create", in_own_directory, op_create, NULL, false, false },
	{ "rename", with_file, op_rename, NULL, false, false },
	{ "readlink", with_link, op_readlink, NULL, false, false },
	{ "getdents", with_entries, op_getdents, NULL, false, false },
	{ "pipe", in_own_directory, op_pipe, NULL, false, false },
	{ "epoll", with_event, op_epoll, NULL, false, false },
	{ "spawn", in_own_directory, op_spawn, NULL, true, false },
	{ "mount", with_places, op_mount, without_mounts, true, false },
	{ "umount", with_mounts, op_umount, NULL, true, false },
	{ "lazy", with_mounts, op_lazy, NULL, true, false },
	{ "beside", with_file, op_beside, NULL, false, true },
	{ "scoped", with_entries_and_file, op_scoped, NULL, false, true },
};

static void measure(void)
{
	const struct gate gate = {
		.procs = arg_procs(worker_cpus()),
		.ops = operations(),
		.warm_ups = WARM_UPS,
		.prepare = kind->prepare,
		.op = kind->op,
		.finish = kind->finish,
	};
	struct result result = { .label = kind->name };

	make_dir(WORK "/%s", kind->name);
	gate_run(&gate, &result);
	report_result(&result);
}

static void run(void)
{
	const char *wanted = arg_word("kind");

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		kind = &kinds[i];
		if (strcmp(wanted, "all") ? !strcmp(wanted, kind->name) : !kind->mixed)
			measure();
	}
}

const struct workload work_calls = {
	"calls", "system calls of processes that ask for nothing in common",
	params, run, false,
};
