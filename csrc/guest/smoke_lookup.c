/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke_lookup.c - symbolic links, other roots, and openat2's scopes.
 *
 * Of special interest is open(O_CREAT) by way of an absolute symbolic link:
 * it needs the root of the walk again, which a walk may have dropped.
 */
#include "smoke.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

static int openat2_in(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = flags,
		.mode = flags & O_CREAT ? 0600 : 0,
		.resolve = resolve,
	};
	int fd = -1;

	/* EAGAIN may also say that a mount or a rename came in between, anybody's anywhere. */
	for (int tries = 0; tries < 100; tries++) {
		fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	return fd;
}

static ino_t inode_of_fd(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		fail_errno("fstat");
	close(fd);
	return st.st_ino;
}

static ino_t inode_of(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		fail_errno("stat %s", path);
	return st.st_ino;
}

static int creat_at(const char *path)
{
	return open(path, O_CREAT | O_RDWR, 0600);
}

static void relative_link(void)
{
	make_dir("d");
	write_file("d/f", "text");
	OK(symlink("d/f", "l"));
	OK(symlink("../d/f", "d/up"));
	OK(symlink("d", "dl"));
	expect_content("l", "text");
	expect_content("d/up", "text");
	expect_content("dl/f", "text");
	expect_content("dl/../l", "text");
}

static void absolute_link(void)
{
	make_dir("d");
	write_file("d/f", "text");
	OK(symlink(WORK "/d/f", "l"));
	OK(symlink(WORK "/d", "dl"));
	expect_content("l", "text");
	expect_content("dl/f", "text");
	expect_content("dl/../dl/f", "text");
	EXPECT(inode_of("dl/..") == inode_of(WORK));
}

/*
 * A walk without locks that meets a mount or a rename, anybody's anywhere,
 * starts anew, and the links that it has followed stay counted, of 40 that are
 * allowed. So these are few enough for three walks, the most that there are.
 */
static void nested_links(void)
{
	make_dir("d");
	write_file("d/f", "text");
	OK(symlink(WORK "/d", "l0"));
	/* Absolute and relative by turns, each within the one before. */
	for (int i = 1; i < 12; i++)
		OK(symlink(i % 2 ? text("l%d", i - 1) : text(WORK "/l%d", i - 1),
			   text("l%d", i)));
	expect_content("l11/f", "text");
	OK(symlink("l11/../d/f", "end"));
	expect_content("end", "text");
}

/* With as many links as are allowed a walk that starts anew fails; not each does. */
static int open_longest(void)
{
	int fd = -1;

	for (int tries = 0; fd < 0 && tries < 100; tries++)
		fd = open("l40", O_RDONLY);
	return fd;
}

static void too_many_links(void)
{
	make_file("l0");
	for (int i = 1; i <= 41; i++)
		OK(symlink(text("l%d", i - 1), text("l%d", i)));
	OK(open_longest());
	FAILS(open("l41", O_RDONLY), ELOOP);
	FAILS(creat_at("l41"), ELOOP);
	OK(symlink("self", "self"));
	FAILS(open("self", O_RDONLY), ELOOP);
	FAILS(creat_at("self"), ELOOP);
}

static void creat_existing(void)
{
	int fd;

	write_file("f", "text");
	OK(symlink(WORK "/f", "abs"));
	OK(symlink("f", "rel"));
	for (int i = 0; i < 20; i++) {
		fd = creat_at(WORK "/abs");
		EXPECT(inode_of_fd(fd) == inode_of("f"));
		fd = creat_at("rel");
		EXPECT(inode_of_fd(fd) == inode_of("f"));
		fd = creat_at("abs");
		EXPECT(inode_of_fd(fd) == inode_of("f"));
	}
	expect_content("f", "text");
}

static void creat_new_absolute(void)
{
	make_dir("d");
	OK(symlink(WORK "/d/new", "abs"));
	OK(close(creat_at("abs")));
	EXPECT(there("d/new"));
	OK(unlink("d/new"));
	OK(close(creat_at(WORK "/abs")));
	EXPECT(there("d/new"));
	EXPECT(inode_of("abs") == inode_of("d/new"));
}

static void creat_new_chain(void)
{
	make_dir("d");
	make_dir("e");
	OK(symlink(WORK "/e/2", "1"));
	OK(symlink("../d/3", "e/2"));
	OK(symlink(WORK "/d/new", "d/3"));
	OK(close(creat_at("1")));
	EXPECT(there("d/new"));
	OK(symlink(WORK "/1", "0"));
	OK(close(creat_at(WORK "/0")));
	EXPECT(inode_of("0") == inode_of("d/new"));
}

static void creat_to_the_root(void)
{
	OK(symlink("/", "root"));
	FAILS(creat_at("root"), EISDIR);
	FAILS(creat_at("/"), EISDIR);
	FAILS(creat_at("root/.."), EISDIR);
	OK(symlink("/missing-directory/f", "far"));
	FAILS(creat_at("far"), ENOENT);
	make_file("f");
	OK(symlink(WORK "/f/", "slash"));
	FAILS(creat_at("slash"), EISDIR);
	FAILS(open("slash", O_RDONLY), ENOTDIR);
}

static void creat_exclusive_link(void)
{
	make_dir("d");
	OK(symlink(WORK "/d/new", "abs"));
	FAILS(open("abs", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
	EXPECT(!there("d/new"));
	FAILS(open("abs", O_CREAT | O_NOFOLLOW | O_RDWR, 0600), ELOOP);
	EXPECT(!there("d/new"));
	FAILS(open("abs", O_NOFOLLOW | O_RDONLY), ELOOP);
	OK(open("abs", O_NOFOLLOW | O_PATH));
}

static void creat_dangling(void)
{
	OK(symlink("missing/f", "rel"));
	OK(symlink(WORK "/missing/f", "abs"));
	FAILS(creat_at("rel"), ENOENT);
	FAILS(creat_at("abs"), ENOENT);
	make_dir("missing");
	OK(close(creat_at("rel")));
	EXPECT(there("missing/f"));
	OK(unlink("missing/f"));
	OK(close(creat_at("abs")));
	EXPECT(there("missing/f"));
}

static void creat_across_mounts(void)
{
	make_dir("a");
	make_dir("b");
	mount_fs("tmpfs", "a", NULL);
	mount_fs("tmpfs", "b", NULL);
	OK(symlink(WORK "/b/f", "a/l"));
	OK(symlink("../a/l", "b/back"));
	OK(close(creat_at("a/l")));
	EXPECT(there("b/f"));
	OK(close(creat_at("b/back")));
	EXPECT(inode_of("b/back") == inode_of("b/f"));
}

/* A reference that such an open forgets to drop would keep the mount busy. */
static void creat_leaks_nothing(void)
{
	make_dir("m");
	mount_fs("tmpfs", "m", NULL);
	OK(symlink(WORK "/m/f", "m/l"));
	OK(symlink(WORK "/m/missing/f", "m/dangling"));
	for (int i = 0; i < 200; i++) {
		OK(close(creat_at("m/l")));
		OK(close(creat_at(WORK "/m/l")));
		FAILS(creat_at("m/dangling"), ENOENT);
		FAILS(open("m/l", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
	}
	OK(umount2("m", 0));
}

static void creat_from_a_descriptor(void)
{
	int dir;

	make_dir("d");
	make_dir("e");
	OK(symlink(WORK "/e/new", "d/abs"));
	OK(symlink("../e/rel", "d/rel"));
	dir = open_file("d", O_RDONLY | O_DIRECTORY);
	OK(close(openat(dir, "abs", O_CREAT | O_RDWR, 0600)));
	OK(close(openat(dir, "rel", O_CREAT | O_RDWR, 0600)));
	EXPECT(there("e/new") && there("e/rel"));
}

static void in_other_root(const char *dir)
{
	OK(chroot(dir));
	OK(chdir("/"));
}

static void chroot_confines(void)
{
	make_dir("r");
	make_dir("r/in");
	write_file("out", "outside");
	write_file("r/in/f", "inside");
	OK(symlink("/in/f", "r/l"));
	OK(symlink("/../../in/f", "r/up"));
	OK(symlink(WORK "/out", "r/escape"));
	in_other_root("r");
	expect_content("/l", "inside");
	expect_content("l", "inside");
	expect_content("/up", "inside");
	expect_content("/in/../../../../l", "inside");
	FAILS(open("/escape", O_RDONLY), ENOENT);
	FAILS(open("/../out", O_RDONLY), ENOENT);
}

static void chroot_creat(void)
{
	make_dir("r");
	make_dir("r/in");
	OK(symlink("/in/new", "r/l"));
	OK(symlink("/in/chain", "r/in/c1"));
	OK(symlink("../in/c1", "r/in/c2"));
	int before = open_file(WORK, O_RDONLY | O_DIRECTORY);

	in_other_root("r");
	for (int i = 0; i < 50; i++) {
		OK(close(creat_at("/l")));
		OK(close(creat_at("in/../l")));
		OK(close(creat_at("/in/c2")));
	}
	EXPECT(inode_of("/in/new") == inode_of("/l"));
	EXPECT(there("/in/chain"));
	/* From outside, the same absolute link leads into our root. */
	OK(close(openat(before, "r/l", O_CREAT | O_RDWR, 0600)));
	OK(fchdir(before));
	EXPECT(there("r/in/new") && !there("in"));
}

static void chroot_lets_go(void)
{
	int before = open_file("/", O_RDONLY | O_DIRECTORY);

	make_dir("m");
	mount_fs("tmpfs", "m", NULL);
	OK(symlink("/f", "m/l"));
	in_other_root("m");
	for (int i = 0; i < 100; i++)
		OK(close(creat_at("/l")));
	OK(fchdir(before));
	OK(chroot("."));
	OK(umount2(WORK "/m", 0));
}

static void magic_links(void)
{
	int fd, again;

	write_file("f", "text");
	fd = open_file("f", O_RDWR);
	OK(unlink("f"));
	again = open(text("/proc/self/fd/%d", fd), O_RDWR);
	OK(again);
	EXPECT(inode_of_fd(dup(again)) == inode_of_fd(dup(fd)));
	again = open(text("/proc/self/fd/%d", fd), O_CREAT | O_RDWR, 0600);
	EXPECT(inode_of_fd(again) == inode_of_fd(dup(fd)));
	EXPECT(inode_of("/proc/self/cwd") == inode_of(WORK));
	OK(symlink("/proc/self/cwd/new", "l"));
	OK(close(creat_at("l")));
	EXPECT(there("new"));
	EXPECT(inode_of("/proc/self/root/") == inode_of("/"));
}

static int scene(void)
{
	make_dir("r");
	make_dir("r/in");
	make_dir("r/m");
	mount_fs("tmpfs", "r/m", NULL);
	write_file("out", "outside");
	write_file("r/f", "inside");
	make_file("r/m/f");
	OK(symlink("f", "r/rel"));
	OK(symlink("/f", "r/abs"));
	OK(symlink("../out", "r/up"));
	OK(symlink("/in/new", "r/new"));
	OK(symlink("in/new2", "r/newrel"));
	return open_file("r", O_RDONLY | O_DIRECTORY);
}

static void scope_beneath(void)
{
	int r = scene();

	EXPECT(inode_of_fd(openat2_in(r, "rel", O_RDONLY, RESOLVE_BENEATH)) ==
	       inode_of("r/f"));
	EXPECT(inode_of_fd(openat2_in(r, "in/../f", O_RDONLY, RESOLVE_BENEATH)) ==
	       inode_of("r/f"));
	FAILS(openat2_in(r, "abs", O_RDONLY, RESOLVE_BENEATH), EXDEV);
	FAILS(openat2_in(r, "up", O_RDONLY, RESOLVE_BENEATH), EXDEV);
	FAILS(openat2_in(r, "..", O_RDONLY, RESOLVE_BENEATH), EXDEV);
	FAILS(openat2_in(r, "/", O_RDONLY, RESOLVE_BENEATH), EXDEV);
}

static void scope_beneath_creat(void)
{
	int r = scene();

	FAILS(openat2_in(r, "new", O_CREAT | O_RDWR, RESOLVE_BENEATH), EXDEV);
	EXPECT(!there("r/in/new"));
	OK(openat2_in(r, "newrel", O_CREAT | O_RDWR, RESOLVE_BENEATH));
	EXPECT(there("r/in/new2"));
	OK(openat2_in(r, "in/new3", O_CREAT | O_RDWR, RESOLVE_BENEATH));
	EXPECT(there("r/in/new3"));
	FAILS(openat2_in(r, "../new4", O_CREAT | O_RDWR, RESOLVE_BENEATH), EXDEV);
	EXPECT(!there("new4"));
}

static void scope_in_root(void)
{
	int r = scene();

	EXPECT(inode_of_fd(openat2_in(r, "abs", O_RDONLY, RESOLVE_IN_ROOT)) ==
	       inode_of("r/f"));
	EXPECT(inode_of_fd(openat2_in(r, "/in/../../f", O_RDONLY, RESOLVE_IN_ROOT)) ==
	       inode_of("r/f"));
	FAILS(openat2_in(r, "up", O_RDONLY, RESOLVE_IN_ROOT), ENOENT);
	EXPECT(inode_of_fd(openat2_in(r, "..", O_RDONLY, RESOLVE_IN_ROOT)) ==
	       inode_of("r"));
}

static void scope_in_root_creat(void)
{
	int r = scene();

	for (int i = 0; i < 50; i++)
		OK(close(openat2_in(r, "new", O_CREAT | O_RDWR, RESOLVE_IN_ROOT)));
	EXPECT(there("r/in/new") && !there("/in"));
	OK(openat2_in(r, "/../in/new4", O_CREAT | O_RDWR, RESOLVE_IN_ROOT));
	EXPECT(there("r/in/new4"));
	/* The scope's root must not stay referenced. */
	OK(umount2("r/m", 0));
}

static void scope_no_xdev(void)
{
	int r = scene(), work = open_file(WORK, O_RDONLY | O_DIRECTORY);

	FAILS(openat2_in(r, "m/f", O_RDONLY, RESOLVE_NO_XDEV), EXDEV);
	FAILS(openat2_in(r, "m/new", O_CREAT | O_RDWR, RESOLVE_NO_XDEV), EXDEV);
	OK(openat2_in(r, "rel", O_RDONLY, RESOLVE_NO_XDEV));
	FAILS(openat2_in(work, "r/abs", O_CREAT | O_RDWR, RESOLVE_NO_XDEV), EXDEV);
	FAILS(openat2_in(work, "..", O_RDONLY, RESOLVE_NO_XDEV), EXDEV);
}

/*
 * Who asks for a path that begins at the root may follow an absolute link as
 * long as that root is on the mount it is on. A walk that has dropped the root
 * must not compare with nothing.
 */
static void scope_no_xdev_creat(void)
{
	make_dir("d");
	make_dir("m");
	mount_fs("tmpfs", "m", NULL);
	OK(symlink("/d/new", "abs"));
	OK(symlink("/m/new", "other"));
	OK(chroot("."));
	for (int i = 0; i < 20; i++)
		OK(close(openat2_in(AT_FDCWD, "/abs", O_CREAT | O_RDWR, RESOLVE_NO_XDEV)));
	EXPECT(there("d/new"));
	FAILS(openat2_in(AT_FDCWD, "/other", O_CREAT | O_RDWR, RESOLVE_NO_XDEV), EXDEV);
	EXPECT(!there("m/new"));
}

static void scope_no_links(void)
{
	int r = scene();

	FAILS(openat2_in(r, "rel", O_RDONLY, RESOLVE_NO_SYMLINKS), ELOOP);
	FAILS(openat2_in(r, "newrel", O_CREAT | O_RDWR, RESOLVE_NO_SYMLINKS), ELOOP);
	OK(openat2_in(r, "f", O_RDONLY, RESOLVE_NO_SYMLINKS));
	OK(openat2_in(r, "in/new", O_CREAT | O_RDWR, RESOLVE_NO_SYMLINKS));
	FAILS(openat2_in(r, "/proc/self/cwd/out", O_RDONLY, RESOLVE_NO_MAGICLINKS),
	      ELOOP);
	OK(openat2_in(r, "rel", O_RDONLY, RESOLVE_NO_MAGICLINKS));
}

static void scope_cached(void)
{
	int r = scene();
	char target[8];

	/*
	 * The first use of a link in a later tick than its creation notes the
	 * time (relatime), and whoever notes must be able to wait. So use it.
	 */
	sleep_ms(20);
	OK(readlink("r/rel", target, sizeof(target)));
	OK(openat2_in(r, "f", O_RDONLY, RESOLVE_CACHED));
	OK(openat2_in(r, "rel", O_RDONLY, RESOLVE_CACHED));
	FAILS(openat2_in(r, "in/new", O_CREAT | O_RDWR, RESOLVE_CACHED), EAGAIN);
	EXPECT(!there("r/in/new"));
}

static void scope_refused(void)
{
	int r = scene();

	FAILS(openat2_in(r, "f", O_RDONLY, RESOLVE_IN_ROOT | RESOLVE_BENEATH), EINVAL);
	FAILS(openat2_in(r, "f", O_RDONLY, 1ull << 40), EINVAL);
}

const struct check smoke_lookup[] = {
	{ "symlink-relative", relative_link },
	{ "symlink-absolute", absolute_link },
	{ "symlink-nested", nested_links },
	{ "symlink-too-many", too_many_links },
	{ "creat-symlink-existing", creat_existing },
	{ "creat-symlink-absolute", creat_new_absolute },
	{ "creat-symlink-chain", creat_new_chain },
	{ "creat-symlink-to-root", creat_to_the_root },
	{ "creat-symlink-exclusive", creat_exclusive_link },
	{ "creat-symlink-dangling", creat_dangling },
	{ "creat-symlink-across-mounts", creat_across_mounts },
	{ "creat-symlink-leaks-nothing", creat_leaks_nothing },
	{ "creat-symlink-from-descriptor", creat_from_a_descriptor },
	{ "chroot-confines", chroot_confines },
	{ "chroot-creat", chroot_creat },
	{ "chroot-lets-go", chroot_lets_go },
	{ "magic-links", magic_links },
	{ "openat2-beneath", scope_beneath },
	{ "openat2-beneath-creat", scope_beneath_creat },
	{ "openat2-in-root", scope_in_root },
	{ "openat2-in-root-creat", scope_in_root_creat },
	{ "openat2-no-xdev", scope_no_xdev },
	{ "openat2-no-xdev-creat", scope_no_xdev_creat },
	{ "openat2-no-symlinks", scope_no_links },
	{ "openat2-cached", scope_cached },
	{ "openat2-refused", scope_refused },
	{ 0 },
};
