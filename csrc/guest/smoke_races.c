/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke_races.c - several processes at once, and what must hold for all.
 *
 * None of these can prove the absence of a race. They make the paths of the
 * patches run against each other for a moment, so that lockdep and the list
 * checks have something to look at, and what is wrong often shows at once.
 */
#include "smoke.h"

#include <linux/fs.h>
#include <signal.h>
#include <sys/syscall.h>

#include "mounts.h"

#define MOMENT_MS 60

static ino_t inode_of(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		fail_errno("stat %s", path);
	return st.st_ino;
}

static unsigned *elsewhere;

static void say_where(void)
{
	if (sched_getcpu() != online_cpu(0))
		__atomic_fetch_add(elsewhere, 1, __ATOMIC_RELAXED);
}

/* Or none of these is a race: a lab kernel moves nobody to another CPU. */
static void companions_apart(void)
{
	elsewhere = shared_memory(sizeof(*elsewhere));
	beside(say_where);
	together();
	EXPECT(!in_lab() || *elsewhere == (online_cpus() > 1));
}

static ino_t inode_a, inode_b;

static void exchange_for_ever(void)
{
	while (!time_is_up())
		if (renameat2(AT_FDCWD, "a", AT_FDCWD, "b-with-a-long-name-that-is-elsewhere",
			      RENAME_EXCHANGE))
			fail_errno("exchange");
}

static void stat_for_ever(void)
{
	while (!time_is_up()) {
		const ino_t a = inode_of("a");
		const ino_t b = inode_of("b-with-a-long-name-that-is-elsewhere");

		if ((a != inode_a && a != inode_b) || (b != inode_a && b != inode_b))
			fail("stat has found a file that is neither");
		if (access(WORK "/c", F_OK) == 0)
			fail("there is a file that nobody has made");
	}
}

static void rename_and_stat(void)
{
	make_file("a");
	make_file("b-with-a-long-name-that-is-elsewhere");
	inode_a = inode_of("a");
	inode_b = inode_of("b-with-a-long-name-that-is-elsewhere");
	beside(exchange_for_ever);
	beside(stat_for_ever);
	beside(stat_for_ever);
	let_run(MOMENT_MS);
	together();
}

static void make_and_remove(void)
{
	while (!time_is_up()) {
		OK(mkdir("d/x", 0700));
		OK(rmdir("d/x"));
	}
}

static void walk_up(void)
{
	while (!time_is_up()) {
		struct stat st;

		if (stat("d/x/../y", &st) && errno != ENOENT)
			fail_errno("d/x/../y");
		if (stat("d/x/../../d/y", &st) && errno != ENOENT)
			fail_errno("d/x/../../d/y");
		if (stat("d/y", &st))
			fail_errno("d/y");
	}
}

static void rmdir_and_dotdot(void)
{
	make_dir("d");
	make_file("d/y");
	beside(make_and_remove);
	beside(walk_up);
	beside(walk_up);
	let_run(MOMENT_MS);
	together();
}

static void move_for_ever(void)
{
	while (!time_is_up()) {
		OK(rename("p/x", "q/x"));
		OK(rename("q/x", "p/x"));
	}
}

static int moved; /* p/x, wherever it is */

static void dotdot_for_ever(void)
{
	const ino_t p = inode_of("p"), q = inode_of("q");

	/* By its name it might never be found: it is on its way all the time. */
	OK(fchdir(moved));
	while (!time_is_up()) {
		const ino_t up = inode_of("..");

		if (up != p && up != q)
			fail(".. leads to neither directory");
	}
}

static void rename_and_dotdot(void)
{
	make_dir("p");
	make_dir("q");
	make_dir("p/x");
	moved = open_file("p/x", O_RDONLY | O_DIRECTORY);
	beside(dotdot_for_ever);
	beside(dotdot_for_ever);
	beside(move_for_ever);
	let_run(MOMENT_MS);
	together();
}

static unsigned *winners;

static void create_all(void)
{
	for (int i = 0; i < 100; i++) {
		int fd = open(text("f%d", i), O_CREAT | O_EXCL | O_RDWR, 0600);

		if (fd >= 0) {
			__atomic_fetch_add(winners, 1, __ATOMIC_RELAXED);
			close(fd);
		} else if (errno != EEXIST) {
			fail_errno("create f%d", i);
		}
	}
}

static void one_winner(void)
{
	winners = shared_memory(sizeof(*winners));
	for (int i = 0; i < 4; i++)
		beside(create_all);
	together();
	EXPECT(*winners == 100);
}

static void link_for_ever(void)
{
	while (!time_is_up()) {
		/* A dentry that is on its way out must not be walked through. */
		if (link("f", "g") && errno != EEXIST)
			fail_errno("link");
		if (unlink("g") && errno != ENOENT)
			fail_errno("unlink");
	}
}

static void open_for_ever(void)
{
	while (!time_is_up()) {
		int fd = open("g", O_RDONLY);

		if (fd >= 0)
			close(fd);
		else if (errno != ENOENT)
			fail_errno("open");
		fd = open(WORK "/f", O_RDWR | O_CREAT, 0600);
		OK(fd);
		close(fd);
	}
}

static void link_and_open(void)
{
	make_file("f");
	beside(link_for_ever);
	beside(link_for_ever);
	beside(open_for_ever);
	beside(open_for_ever);
	let_run(MOMENT_MS);
	together();
}

static void switch_target(void)
{
	for (unsigned i = 0; !time_is_up(); i++) {
		const char *next = text("next%u", i % 2);

		OK(symlink(i % 2 ? WORK "/t/a" : WORK "/t/b", next));
		OK(rename(next, "l"));
	}
}

static void creat_through(void)
{
	const ino_t a = inode_of("t/a"), b = inode_of("t/b");

	while (!time_is_up()) {
		int fd = open("l", O_CREAT | O_RDWR, 0600);
		struct stat st;

		OK(fd);
		OK(fstat(fd, &st));
		if (st.st_ino != a && st.st_ino != b)
			fail("the link has led to a file that is neither");
		close(fd);
	}
}

static void symlink_and_creat(void)
{
	make_dir("t");
	make_file("t/a");
	make_file("t/b");
	OK(symlink(WORK "/t/a", "l"));
	beside(switch_target);
	beside(creat_through);
	beside(creat_through);
	let_run(MOMENT_MS);
	together();
}

/* A process that shares our root and current directory, as a thread does. */
static void chroot_and_creat(void)
{
	ino_t a, b;
	int dir_a, dir_b, status_fd[2];
	pid_t pid;
	char byte;

	make_dir("A");
	make_dir("B");
	make_file("A/f");
	make_file("B/f");
	OK(symlink("/f", "A/l"));
	OK(symlink("/f", "B/l"));
	a = inode_of("A/f");
	b = inode_of("B/f");
	dir_a = open_file("A", O_RDONLY | O_DIRECTORY);
	dir_b = open_file("B", O_RDONLY | O_DIRECTORY);
	OK(pipe(status_fd));
	OK(fchdir(dir_a));
	OK(chroot("."));
	pid = (pid_t)syscall(SYS_clone, CLONE_FS | SIGCHLD, NULL, NULL, NULL, NULL);
	OK(pid);
	if (pid)
		adopt(pid);
	if (!pid) {
		while (!time_is_up()) {
			OK(fchdir(dir_b));
			OK(chroot("."));
			OK(fchdir(dir_a));
			OK(chroot("."));
		}
		_exit(write(status_fd[1], "x", 1) == 1 ? 0 : 1);
	}
	for (int i = 0; i < 2000; i++) {
		int fd = open("/l", O_CREAT | O_RDWR, 0600);
		struct stat st;

		OK(fd);
		OK(fstat(fd, &st));
		if (st.st_ino != a && st.st_ino != b)
			fail("the root's link has led to a file of neither root");
		close(fd);
	}
	together();
	EXPECT(read(status_fd[0], &byte, 1) == 1);
}

static int work_dir, new_root;
static unsigned *renaming; /* shared */

/* Wait until a process waits for a lock, or for a second if it does not. */
static void await_wait(int stat_fd)
{
	for (const uint64_t end = now_ns() + 1000000000; now_ns() < end;) {
		char line[512], *state;
		const ssize_t n = pread(stat_fd, line, sizeof(line) - 1, 0);

		if (n <= 0)
			return;
		line[n] = '\0';
		state = strrchr(line, ')');
		if (state && state[2] == 'D')
			return;
		relax();
	}
}

/* One that shares root and directory with its parent, and takes both away. */
static void take_root_away(int stat_fd)
{
	pin_to(online_cpu(2));
	while (!__atomic_load_n(renaming, __ATOMIC_ACQUIRE))
		relax();
	await_wait(stat_fd);
	OK(fchdir(new_root));
	OK(chroot("."));
	OK(fchdir(work_dir));
	OK(umount2("m", MNT_DETACH));
}

static void open_from_a_root_that_goes(void)
{
	const int stat_fd = open_file(text("/proc/%d/stat", getpid()), O_RDONLY);
	char content[8] = "";
	int fd;
	pid_t pid;

	pin_to(online_cpu(1));
	OK(chroot("m"));
	OK(chdir("/dir"));
	pid = (pid_t)syscall(SYS_clone, CLONE_FS | SIGCHLD, NULL, NULL, NULL, NULL);
	OK(pid);
	if (!pid) {
		take_root_away(stat_fd);
		_exit(0);
	}
	adopt(pid);
	while (!__atomic_load_n(renaming, __ATOMIC_ACQUIRE))
		relax();
	sleep_ms(5);
	fd = open("/dir/l", O_CREAT | O_RDWR, 0600);
	/* It may have come too late, to the new root, which has no such directory. */
	if (fd < 0 && errno == ENOENT) {
		together();
		return;
	}
	OK(fd);
	OK(read(fd, content, sizeof(content) - 1));
	if (strcmp(content, "old") != 0 && strcmp(content, "new") != 0)
		fail("the root's link has led to a file of neither root");
	together();
}

/*
 * While an open with O_CREAT waits for its directory, which a rename has
 * locked that copies a large file up, its root goes, and nothing else holds
 * that. Then an absolute link leads back to it.
 */
static void chroot_and_root_goes(void)
{
	enum { BIG = 24 << 20 };
	char *big = calloc(1, BIG);
	const char *const dirs[] = { "low", "up", "tmp", "new", "m", NULL };

	EXPECT(big);
	for (unsigned i = 0; dirs[i]; i++)
		make_dir("%s", dirs[i]);
	memset(big, 'x', BIG);
	write_file("new/f", "new");
	OK(symlink("/f", "low/l"));
	renaming = shared_memory(sizeof(*renaming));
	work_dir = open_file(".", O_RDONLY | O_DIRECTORY);
	new_root = open_file("new", O_RDONLY | O_DIRECTORY);
	for (unsigned round = 0; round < 2; round++) {
		int fd = open(text("low/%u", round), O_CREAT | O_WRONLY, 0600);

		OK(fd);
		EXPECT(write(fd, big, BIG) == BIG);
		OK(close(fd));
		mount_fs("tmpfs", "m", NULL);
		write_file("m/f", "old");
		make_dir("m/dir");
		mount_fs("overlay", "m/dir", "lowerdir=low,upperdir=up,workdir=tmp");
		fd = open_file("m/dir", O_RDONLY | O_DIRECTORY);
		*renaming = 0;
		beside(open_from_a_root_that_goes);
		let_run(20);
		__atomic_store_n(renaming, 1, __ATOMIC_RELEASE);
		OK(renameat(fd, text("%u", round), fd, "renamed"));
		OK(close(fd));
		together();
	}
	free(big);
}

static void mount_for_ever(void)
{
	while (!time_is_up()) {
		OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
		OK(umount2("m", MNT_DETACH));
		OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
		OK(umount2("m", MNT_DETACH));
	}
}

static void stat_mountpoint(void)
{
	const ino_t root = inode_of(".");

	while (!time_is_up()) {
		struct stat st;

		OK(stat("m", &st));
		OK(stat("m/..", &st));
		if (st.st_ino != root)
			fail("m/.. leads elsewhere");
		int fd = open("m/new", O_CREAT | O_RDWR, 0600);

		OK(fd);
		close(fd);
	}
}

static void umount_and_walk(void)
{
	make_dir("m");
	beside(mount_for_ever);
	beside(stat_mountpoint);
	beside(stat_mountpoint);
	let_run(MOMENT_MS);
	together();
	MOUNTS();
}

static void come_and_go(void)
{
	for (unsigned i = 0; !time_is_up(); i++) {
		const char *at = text("go%u", i % 8);

		OK(mount("stay0", at, NULL, MS_BIND, NULL));
		OK(umount2(at, i % 2 ? MNT_DETACH : 0));
	}
}

/* Mounts that stay must be on every pass, once, whatever comes and goes. */
static void read_for_ever(void)
{
	static char content[1 << 16];
	int fd = open_file("/proc/self/mountinfo", O_RDONLY);
	const size_t chunk = (size_t)getpid() % 2 ? 50 : 4096;
	unsigned passes = 0;

	while (!time_is_up() || passes < 3) {
		unsigned seen[20] = { 0 };
		size_t used = 0;
		ssize_t n;
		char *at, *end;

		OK(lseek(fd, 0, SEEK_SET));
		while ((n = read(fd, content + used, chunk)) > 0)
			used += (size_t)n;
		OK(n);
		content[used] = '\0';
		for (at = content; (end = strchr(at, '\n')); at = end + 1) {
			struct mountinfo m;
			unsigned number;

			if (!mounts_parse(at, (size_t)(end - at), &m))
				fail("a torn line: %.*s", (int)(end - at), at);
			if (sscanf(m.at, WORK "/stay%u", &number) == 1)
				seen[number]++;
		}
		if (*at)
			fail("the last line is torn: %s", at);
		for (unsigned i = 0; i < ARRAY_SIZE(seen); i++)
			if (seen[i] != 1)
				fail("mount %u was seen %u times in a pass", i,
				     seen[i]);
		passes++;
	}
}

static void mountinfo_and_mounts(void)
{
	for (int i = 0; i < 20; i++) {
		make_dir("stay%d", i);
		mount_fs("tmpfs", text("stay%d", i), NULL);
		if (i < 8)
			make_dir("go%d", i);
	}
	beside(come_and_go);
	beside(read_for_ever);
	beside(read_for_ever);
	let_run(MOMENT_MS);
	together();
	EXPECT(mounts_prefixed(WORK "/stay") == 20);
	EXPECT(mounts_prefixed(WORK "/go") == 0);
}

static void propagate_for_ever(void)
{
	/* Each of them has a mount point of its own. */
	const char *at = text("a/x%d", (int)getpid() % 97);

	if (mkdir(at, 0700) && errno != EEXIST)
		fail_errno("mkdir %s", at);
	while (!time_is_up()) {
		OK(mount("tmpfs", at, "tmpfs", 0, NULL));
		OK(umount2(at, MNT_DETACH));
	}
}

static void propagation_at_once(void)
{
	make_dir("a");
	mount_fs("tmpfs", "a", NULL);
	propagation("a", MS_SHARED);
	for (int i = 0; i < 5; i++) {
		make_dir("peer%d", i);
		bind("a", text("peer%d", i));
		if (i % 2)
			propagation(text("peer%d", i), MS_SLAVE);
	}
	beside(propagate_for_ever);
	beside(propagate_for_ever);
	let_run(MOMENT_MS);
	together();
	MOUNTS("a", "peer0", "peer1", "peer2", "peer3", "peer4");
}

static void namespaces_for_ever(void)
{
	for (int i = 0; i < 10; i++) {
		OK(unshare(CLONE_NEWNS));
		OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
		OK(close(open("m/f", O_CREAT | O_RDWR, 0600)));
	}
}

static void namespaces_at_once(void)
{
	make_dir("m");
	for (int i = 0; i < 3; i++)
		beside(namespaces_for_ever);
	together();
	MOUNTS();
}

static void access_for_ever(void)
{
	OK(setresgid(1000, 1000, 1000));
	OK(setresuid(1000, 1000, 1000));
	while (!time_is_up()) {
		struct stat st;

		OK(faccessat(AT_FDCWD, "o/f", R_OK, 0));
		FAILS(faccessat(AT_FDCWD, "o/f", W_OK, 0), EACCES);
		OK(close(open("o/f", O_RDONLY)));
		int fd = open("o/both", O_CREAT | O_RDWR, 0666);

		OK(fd);
		EXPECT(write(fd, "x", 1) == 1);
		OK(fstat(fd, &st));
		EXPECT(st.st_uid == 1000);
		OK(close(fd));
		EXPECT(geteuid() == 1000);
	}
}

static void overlay_at_once(void)
{
	make_dir("low");
	make_dir("up");
	make_dir("wrk");
	make_dir("o");
	write_file("low/f", "low");
	mount_fs("overlay", "o", "lowerdir=low,upperdir=up,workdir=wrk");
	OK(chmod("o", 0777));
	for (int i = 0; i < 3; i++)
		beside(access_for_ever);
	let_run(MOMENT_MS);
	together();
	OK(umount2("o", 0));
}

const struct check smoke_races[] = {
	{ "race-companions-apart", companions_apart },
	{ "race-rename-stat", rename_and_stat },
	{ "race-rmdir-dotdot", rmdir_and_dotdot },
	{ "race-rename-dotdot", rename_and_dotdot },
	{ "race-create-exclusive", one_winner },
	{ "race-link-open", link_and_open },
	{ "race-symlink-creat", symlink_and_creat },
	{ "race-chroot-creat", chroot_and_creat },
	{ "race-chroot-root-goes", chroot_and_root_goes },
	{ "race-umount-walk", umount_and_walk },
	{ "race-mountinfo-mounts", mountinfo_and_mounts },
	{ "race-propagation", propagation_at_once },
	{ "race-namespaces", namespaces_at_once },
	{ "race-overlay-access", overlay_at_once },
	{ 0 },
};
