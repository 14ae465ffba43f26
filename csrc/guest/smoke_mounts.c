/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke_mounts.c - mount trees: what is mounted where, and who gets a copy.
 *
 * Expected trees are compared with mountinfo, whole: a copy too many fails
 * as well as one too few.
 */
#include "smoke.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#include "mounts.h"

static void tmpfs(const char *at)
{
	mount_fs("tmpfs", at, NULL);
}

static int move(const char *from, const char *to)
{
	return mount(from, to, NULL, MS_MOVE, NULL);
}

static int rbind(const char *from, const char *to)
{
	return mount(from, to, NULL, MS_BIND | MS_REC, NULL);
}

/* Two places that show the same; what is mounted in one propagates, or not. */
static void twins(unsigned long how)
{
	make_dir("a");
	make_dir("b");
	tmpfs("a");
	make_dir("a/x");
	make_dir("a/y");
	propagation("a", how);
	bind("a", "b");
}

static const char *optional_of(const char *at)
{
	static char optional[64];
	size_t n;
	struct mountinfo *all = mounts_read(&n);
	const struct mountinfo *m = mounts_find(all, n, at);

	if (!m)
		fail("nothing is mounted on %s", at);
	snprintf(optional, sizeof(optional), "%s", m->optional);
	free(all);
	return optional;
}

static void mount_and_unmount(void)
{
	make_dir("m");
	make_file("m/below");
	tmpfs("m");
	EXPECT(!there("m/below"));
	make_file("m/above");
	MOUNTS("m");
	OK(umount2("m", 0));
	EXPECT(there("m/below") && !there("m/above"));
	MOUNTS();
	FAILS(umount2("m", 0), EINVAL);
	FAILS(umount2("missing", 0), ENOENT);
}

static void bind_shows_the_same(void)
{
	make_dir("a");
	make_dir("b");
	write_file("a/f", "text");
	bind("a", "b");
	expect_content("b/f", "text");
	write_file("b/g", "back");
	expect_content("a/g", "back");
	FAILS(rename("a/f", "b/f2"), EXDEV);
	FAILS(link("a/f", "b/f2"), EXDEV);
	MOUNTS("b");
}

static void bind_of_a_file(void)
{
	write_file("f", "text");
	write_file("g", "hidden");
	bind("f", "g");
	expect_content("g", "text");
	FAILS(unlink("g"), EBUSY);
	FAILS(mount("f", ".", NULL, MS_BIND, NULL), ENOTDIR);
	OK(umount2("g", 0));
	expect_content("g", "hidden");
}

static void stacked(void)
{
	make_dir("m");
	for (int i = 0; i < 5; i++) {
		tmpfs("m");
		make_file("m/%d", i);
	}
	EXPECT(mounts_count(WORK "/m") == 5);
	for (int i = 4; i >= 0; i--) {
		EXPECT(there(text("m/%d", i)));
		OK(umount2("m", 0));
	}
	EXPECT(mounts_count(WORK "/m") == 0);
}

static void busy(void)
{
	int fd;

	make_dir("m");
	tmpfs("m");
	make_file("m/f");
	fd = open_file("m/f", O_RDONLY);
	FAILS(umount2("m", 0), EBUSY);
	OK(close(fd));
	OK(chdir("m"));
	FAILS(umount2(WORK "/m", 0), EBUSY);
	OK(chdir(WORK));
	make_dir("m/sub");
	tmpfs("m/sub");
	FAILS(umount2("m", 0), EBUSY);
	OK(umount2("m/sub", 0));
	OK(umount2("m", 0));
	MOUNTS();
}

static void expires(void)
{
	make_dir("m");
	tmpfs("m");
	FAILS(umount2("m", MNT_EXPIRE), EAGAIN);
	EXPECT(!there("m/x")); /* a use of it counts as one */
	FAILS(umount2("m", MNT_EXPIRE), EAGAIN);
	OK(umount2("m", MNT_EXPIRE));
	MOUNTS();
}

static void lazy_with_open_file(void)
{
	char byte;
	int fd;

	make_dir("m");
	tmpfs("m");
	write_file("m/f", "x");
	fd = open_file("m/f", O_RDWR);
	OK(umount2("m", MNT_DETACH));
	EXPECT(!there("m/f"));
	MOUNTS();
	EXPECT(pread(fd, &byte, 1, 0) == 1 && byte == 'x');
	EXPECT(pwrite(fd, "y", 1, 0) == 1);
	OK(close(fd));
	tmpfs("m");
	OK(umount2("m", 0));
}

static void lazy_with_cwd(void)
{
	char path[PATH_MAX];
	long n;

	make_dir("m");
	tmpfs("m");
	make_dir("m/d");
	OK(chdir("m/d"));
	OK(umount2(WORK "/m", MNT_DETACH));
	make_file("f");
	EXPECT(there("../d/f"));
	n = syscall(SYS_getcwd, path, sizeof(path));
	OK(n);
	EXPECT(!strncmp(path, "(unreachable)", 13));
	EXPECT(there("../../../d/f")); /* its root is as far as it goes */
	OK(chdir(WORK));
	MOUNTS();
}

static void lazy_tree(void)
{
	int fd;

	make_dir("m");
	tmpfs("m");
	make_dir("m/a");
	tmpfs("m/a");
	make_dir("m/a/b");
	tmpfs("m/a/b");
	write_file("m/a/b/f", "deep");
	fd = open_file("m/a", O_RDONLY | O_DIRECTORY);
	OK(umount2("m", MNT_DETACH));
	MOUNTS();
	/* What was detached comes apart: the directory is seen, not the mount. */
	OK(faccessat(fd, "b", R_OK, 0));
	FAILS(openat(fd, "b/f", O_RDONLY), ENOENT);
	OK(close(fd));
}

static void lazy_many(void)
{
	make_dir("m");
	for (int i = 0; i < 100; i++) {
		tmpfs("m");
		make_file("m/f");
		OK(umount2("m", i % 2 ? MNT_DETACH : 0));
		EXPECT(!there("m/f"));
	}
	MOUNTS();
}

static void rbind_copies_the_tree(void)
{
	make_dir("a");
	make_dir("b");
	tmpfs("a");
	make_dir("a/x");
	tmpfs("a/x");
	make_dir("a/x/y");
	tmpfs("a/x/y");
	write_file("a/x/y/f", "deep");
	bind("a", "b");
	EXPECT(!there("b/x/y"));
	OK(umount2("b", 0));
	OK(rbind("a", "b"));
	expect_content("b/x/y/f", "deep");
	MOUNTS("a", "a/x", "a/x/y", "b", "b/x", "b/x/y");
	OK(umount2("b", MNT_DETACH));
	MOUNTS("a", "a/x", "a/x/y");
}

static void moved(void)
{
	make_dir("a");
	make_dir("b");
	tmpfs("a");
	make_dir("a/x");
	tmpfs("a/x");
	write_file("a/x/f", "text");
	OK(move("a", "b"));
	expect_content("b/x/f", "text");
	MOUNTS("b", "b/x");
	FAILS(move("b", "b/x"), ELOOP);
	make_dir("d");
	FAILS(move("d", "a"), EINVAL);
}

static void move_below_shared(void)
{
	make_dir("a");
	make_dir("b");
	tmpfs("a");
	propagation("a", MS_SHARED);
	make_dir("a/x");
	tmpfs("a/x");
	FAILS(move("a/x", "b"), EINVAL);
	MOUNTS("a", "a/x");
}

static void move_into_shared(void)
{
	twins(MS_SHARED);
	make_dir("m");
	tmpfs("m");
	make_file("m/f");
	OK(move("m", "a/x"));
	EXPECT(there("b/x/f"));
	MOUNTS("a", "b", "a/x", "b/x");
}

static void shared_propagates(void)
{
	twins(MS_SHARED);
	EXPECT(!strncmp(optional_of(WORK "/a"), "shared:", 7));
	tmpfs("a/x");
	make_file("a/x/f");
	EXPECT(there("b/x/f"));
	tmpfs("b/y");
	make_file("b/y/f");
	EXPECT(there("a/y/f"));
	MOUNTS("a", "b", "a/x", "b/x", "a/y", "b/y");
	OK(umount2("b/x", 0));
	MOUNTS("a", "b", "a/y", "b/y");
	OK(umount2("a/y", MNT_DETACH));
	MOUNTS("a", "b");
}

static void shared_unmount_busy(void)
{
	int fd;

	twins(MS_SHARED);
	tmpfs("a/x");
	make_file("a/x/f");
	fd = open_file("b/x/f", O_RDONLY);
	FAILS(umount2("a/x", 0), EBUSY); /* its copy is busy */
	OK(close(fd));
	OK(umount2("a/x", 0));
	MOUNTS("a", "b");
}

static void private_does_not(void)
{
	twins(MS_PRIVATE);
	tmpfs("a/x");
	MOUNTS("a", "b", "a/x");
	EXPECT(!*optional_of(WORK "/a"));
}

static void slave_receives(void)
{
	twins(MS_SHARED);
	propagation("b", MS_SLAVE);
	EXPECT(!strncmp(optional_of(WORK "/b"), "master:", 7));
	tmpfs("a/x");
	tmpfs("b/y");
	MOUNTS("a", "b", "a/x", "b/x", "b/y");
	EXPECT(!strncmp(optional_of(WORK "/b/x"), "master:", 7));
	OK(umount2("b/x", 0));
	MOUNTS("a", "b", "a/x", "b/y");
	OK(umount2("a/x", 0));
	MOUNTS("a", "b", "b/y");
}

static void slave_of_a_slave(void)
{
	twins(MS_SHARED);
	propagation("b", MS_SLAVE);
	propagation("b", MS_SHARED);
	make_dir("c");
	make_dir("d");
	bind("b", "c");
	bind("b", "d");
	propagation("d", MS_SLAVE);
	tmpfs("a/x");
	MOUNTS("a", "b", "c", "d", "a/x", "b/x", "c/x", "d/x");
	tmpfs("c/y");
	MOUNTS("a", "b", "c", "d", "a/x", "b/x", "c/x", "d/x", "b/y", "c/y", "d/y");
	OK(umount2("a/x", 0));
	MOUNTS("a", "b", "c", "d", "b/y", "c/y", "d/y");
	EXPECT(strstr(optional_of(WORK "/b"), "shared:") &&
	       strstr(optional_of(WORK "/b"), "master:"));
}

static void master_goes(void)
{
	twins(MS_SHARED);
	propagation("b", MS_SLAVE);
	OK(umount2("a", 0));
	EXPECT(!strstr(optional_of(WORK "/b"), "master:"));
	tmpfs("b/x");
	MOUNTS("b", "b/x");
}

static void tree_propagates(void)
{
	twins(MS_SHARED);
	make_dir("t");
	tmpfs("t");
	make_dir("t/1");
	tmpfs("t/1");
	make_dir("t/1/2");
	tmpfs("t/1/2");
	OK(rbind("t", "a/x"));
	MOUNTS("a", "b", "t", "t/1", "t/1/2", "a/x", "a/x/1", "a/x/1/2", "b/x",
	       "b/x/1", "b/x/1/2");
	OK(umount2("b/x", MNT_DETACH));
	MOUNTS("a", "b", "t", "t/1", "t/1/2");
}

static void only_where_it_fits(void)
{
	twins(MS_SHARED);
	make_dir("part");
	bind("a/y", "part"); /* a peer that does not contain x */
	tmpfs("a/x");
	MOUNTS("a", "b", "part", "a/x", "b/x");
	make_dir("a/y/z");
	tmpfs("a/y/z");
	MOUNTS("a", "b", "part", "a/x", "b/x", "a/y/z", "b/y/z", "part/z");
}

static void recipe(void)
{
	make_dir("blah");
	bind("blah", "blah");
	propagation("blah", MS_SHARED);
	OK(chdir("blah"));
	make_file("foo");
	for (int i = 0; i < 60; i++) {
		make_file("%d", i);
		bind("foo", text("%d", i));
	}
	EXPECT(mounts_below(WORK "/blah") == 60);
	for (int i = 0; i < 60; i++) {
		EXPECT(mounts_count(text(WORK "/blah/%d", i)) == 1);
		OK(umount2(text("%d", i), 0));
	}
	EXPECT(mounts_below(WORK "/blah") == 0);
}

static void unbindable(void)
{
	make_dir("a");
	make_dir("b");
	tmpfs("a");
	make_dir("a/u");
	make_dir("a/v");
	tmpfs("a/u");
	tmpfs("a/v");
	propagation("a/u", MS_UNBINDABLE);
	FAILS(mount("a/u", "b", NULL, MS_BIND, NULL), EINVAL);
	OK(rbind("a", "b"));
	MOUNTS("a", "a/u", "a/v", "b", "b/v");
	FAILS(move("a/u", "missing"), ENOENT);
	EXPECT(!strcmp(optional_of(WORK "/a/u"), "unbindable"));
	OK(umount2("b", MNT_DETACH));
	make_dir("s");
	tmpfs("s");
	propagation("s", MS_SHARED);
	make_dir("s/x");
	FAILS(move("a/u", "s/x"), EINVAL);
}

static void read_only_bind(void)
{
	make_dir("a");
	make_dir("b");
	make_file("a/f");
	bind("a", "b");
	OK(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	FAILS(open("b/f", O_RDWR), EROFS);
	FAILS(open("b/new", O_CREAT | O_RDWR, 0600), EROFS);
	FAILS(unlink("b/f"), EROFS);
	OK(close(open("b/f", O_RDONLY)));
	make_file("a/new");
	int fd = open_file("a/f", O_RDWR);

	FAILS(mount(NULL, "b", NULL, MS_REMOUNT | MS_RDONLY, NULL), EBUSY);
	OK(close(fd));
}

static void wait_for(pid_t pid)
{
	int status;

	OK(waitpid(pid, &status, 0));
	if (status)
		child_failed("a process in another namespace", status);
}

/* Run f in a child with a copy of our mount namespace; then we go on. */
static pid_t elsewhere(void (*f)(int ready, int go), int *ready, int *go)
{
	int to[2], from[2];
	char byte;
	pid_t pid;

	OK(pipe(to));
	OK(pipe(from));
	pid = fork();
	OK(pid);
	if (!pid) {
		OK(unshare(CLONE_NEWNS));
		f(from[1], to[0]);
		_exit(0);
	}
	close(from[1]);
	close(to[0]);
	*ready = from[0];
	*go = to[1];
	if (read(*ready, &byte, 1) != 1)
		wait_for(pid);
	return pid;
}

static void tell(int fd)
{
	if (write(fd, "x", 1) != 1)
		fail_errno("write to a pipe");
}

static void hear(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		fail("the other process has gone");
}

static void peer_namespace(int ready, int go)
{
	tell(ready);
	hear(go);
	MOUNTS("a", "b", "a/x", "b/x");
	EXPECT(there("a/x/f"));
	tmpfs("b/y");
	tell(ready);
	hear(go);
	MOUNTS("a", "b", "a/y", "b/y");
}

static void namespace_of_peers(void)
{
	int ready, go;
	pid_t pid;

	twins(MS_SHARED);
	pid = elsewhere(peer_namespace, &ready, &go);
	tmpfs("a/x");
	make_file("a/x/f");
	tell(go);
	hear(ready);
	MOUNTS("a", "b", "a/x", "b/x", "a/y", "b/y");
	OK(umount2("a/x", 0));
	tell(go);
	wait_for(pid);
	MOUNTS("a", "b", "a/y", "b/y");
}

static void slave_namespace_body(int ready, int go)
{
	propagation("/", MS_REC | MS_SLAVE);
	tmpfs("a/y");
	MOUNTS("a", "b", "a/y");
	tell(ready);
	hear(go);
	MOUNTS("a", "b", "a/y", "a/x", "b/x");
}

static void slave_namespace(void)
{
	int ready, go;
	pid_t pid;

	twins(MS_SHARED);
	pid = elsewhere(slave_namespace_body, &ready, &go);
	MOUNTS("a", "b");
	tmpfs("a/x");
	tell(go);
	wait_for(pid);
	MOUNTS("a", "b", "a/x", "b/x");
}

static void namespace_holds_mounts(int ready, int go)
{
	OK(umount2("b", 0));
	MOUNTS("a");
	tell(ready);
	hear(go);
	MOUNTS("a");
	EXPECT(there("a/x"));
}

static void namespace_copy(void)
{
	int ready, go;
	pid_t pid;

	twins(MS_PRIVATE);
	pid = elsewhere(namespace_holds_mounts, &ready, &go);
	MOUNTS("a", "b");
	/* Another namespace's mount of it is none of our business. */
	OK(umount2("a", 0));
	MOUNTS("b");
	tell(go);
	wait_for(pid);
}

static void pivot(void)
{
	make_dir("new");
	tmpfs("new");
	make_dir("new/old");
	make_dir("new/in");
	OK(symlink("/in/f", "new/l"));
	OK(chroot("new"));
	OK(chdir("/"));
	OK(close(open("/l", O_CREAT | O_RDWR, 0600)));
	EXPECT(there("/in/f"));
	FAILS(syscall(SYS_pivot_root, ".", "old"), EBUSY); /* it is the root */
	OK(close(open("/l", O_CREAT | O_RDWR, 0600)));
}

static void pivot_twice(void)
{
	make_dir("one");
	tmpfs("one");
	make_dir("one/two");
	tmpfs("one/two");
	make_dir("one/two/old");
	make_dir("one/two/in");
	OK(symlink("/in/f", "one/two/l"));
	OK(chroot("one"));
	OK(chdir("/"));
	OK(syscall(SYS_pivot_root, "two", "two/old"));
	OK(chdir("/"));
	OK(close(open("/l", O_CREAT | O_RDWR, 0600)));
	EXPECT(there("/in/f") && there("/old/two"));
	OK(umount2("/old", MNT_DETACH));
	OK(close(open("/l", O_CREAT | O_RDWR, 0600)));
}

static void mountinfo_order(void)
{
	struct mountinfo *all;
	size_t n, next = 0;

	for (int i = 0; i < 40; i++) {
		make_dir("m%d", i);
		tmpfs(text("m%d", i));
	}
	for (int i = 0; i < 40; i += 2)
		OK(umount2(text("m%d", i), 0));
	all = mounts_read(&n);
	for (size_t i = 0; i < n; i++) {
		unsigned number;

		for (size_t k = 0; k < i; k++)
			EXPECT(all[k].id != all[i].id);
		if (sscanf(all[i].at, WORK "/m%u", &number) == 1) {
			EXPECT(number == 2 * next + 1);
			next++;
		}
	}
	EXPECT(next == 20);
	free(all);
}

static void mountinfo_seek(void)
{
	static char whole[65536], part[65536];
	size_t size;
	int fd;

	for (int i = 0; i < 40; i++) {
		make_dir("m%d", i);
		tmpfs(text("m%d", i));
	}
	size = read_file("/proc/self/mountinfo", whole, sizeof(whole));
	fd = open_file("/proc/self/mountinfo", O_RDONLY);
	for (size_t chunk = 1; chunk < 200; chunk += 37) {
		size_t used = 0;
		ssize_t n;

		OK(lseek(fd, 0, SEEK_SET));
		while ((n = read(fd, part + used, chunk)) > 0)
			used += (size_t)n;
		EXPECT(used == size && !memcmp(whole, part, size));
	}
	for (size_t at = 0; at < size; at += 101) {
		char byte;

		EXPECT(pread(fd, &byte, 1, (off_t)at) == 1 && byte == whole[at]);
	}
	OK(close(fd));
}

const struct check smoke_mounts[] = {
	{ "mount-and-unmount", mount_and_unmount },
	{ "bind-shows-the-same", bind_shows_the_same },
	{ "bind-of-a-file", bind_of_a_file },
	{ "mounts-stacked", stacked },
	{ "umount-busy", busy },
	{ "umount-expires", expires },
	{ "umount-lazy-open-file", lazy_with_open_file },
	{ "umount-lazy-current-directory", lazy_with_cwd },
	{ "umount-lazy-tree", lazy_tree },
	{ "umount-lazy-many", lazy_many },
	{ "rbind-copies-the-tree", rbind_copies_the_tree },
	{ "move", moved },
	{ "move-below-shared-refused", move_below_shared },
	{ "move-into-shared", move_into_shared },
	{ "shared-propagates", shared_propagates },
	{ "shared-umount-busy", shared_unmount_busy },
	{ "private-does-not-propagate", private_does_not },
	{ "slave-receives", slave_receives },
	{ "slave-of-a-slave", slave_of_a_slave },
	{ "slave-loses-its-master", master_goes },
	{ "tree-propagates", tree_propagates },
	{ "propagates-where-it-fits", only_where_it_fits },
	{ "shared-binds-recipe", recipe },
	{ "unbindable", unbindable },
	{ "read-only-bind", read_only_bind },
	{ "namespace-of-peers", namespace_of_peers },
	{ "namespace-of-slaves", slave_namespace },
	{ "namespace-copy", namespace_copy },
	{ "pivot-root-refused", pivot },
	{ "pivot-root", pivot_twice },
	{ "mountinfo-order", mountinfo_order },
	{ "mountinfo-seek", mountinfo_seek },
	{ 0 },
};
