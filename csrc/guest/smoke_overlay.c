/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke_overlay.c - overlays: copies, whiteouts, and whose credentials.
 *
 * An overlay works below with its mounter's credentials and must give the
 * caller's back after each operation, successful or not. Every check ends by
 * looking whether the process is still who it was.
 */
#include "smoke.h"

#include <dirent.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define OPTIONS "lowerdir=low,upperdir=up,workdir=wrk"

static char before[1024];

/* The lines of our status that credentials are made of. */
static void who_are_we(char *who, size_t size)
{
	static const char *const lines[] = {
		"\nUid:", "\nGid:", "\nGroups:", "\nCapInh:", "\nCapPrm:",
		"\nCapEff:", "\nCapBnd:",
	};
	char status[8192];

	read_file("/proc/thread-self/status", status, sizeof(status));
	who[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		const char *line = strstr(status, lines[i]);
		const size_t used = strlen(who);

		if (line)
			snprintf(who + used, size - used, "%.*s",
				 (int)(strchrnul(line + 1, '\n') - line), line);
	}
}

static void remember(void)
{
	who_are_we(before, sizeof(before));
}

/* And by what the kernel does with them, outside of the overlay. */
static void same_as_before(void)
{
	char now[1024];
	struct stat st;

	who_are_we(now, sizeof(now));
	if (strcmp(now, before) != 0)
		fail("other credentials than before: %s instead of %s", now, before);
	make_file(WORK "/mine");
	OK(stat(WORK "/mine", &st));
	EXPECT(st.st_uid == (uid_t)geteuid() && st.st_gid == (gid_t)getegid());
	OK(unlink(WORK "/mine"));
	if (geteuid() != 0)
		FAILS(open(WORK "/root-only", O_RDONLY), EACCES);
}

static void scene(void)
{
	make_file(WORK "/root-only");
	OK(chmod(WORK "/root-only", 0600));
	OK(chmod(WORK, 01777));
	make_dir("low");
	make_dir("up");
	make_dir("wrk");
	make_dir("o");
	write_file("low/f", "low");
	make_dir("low/d");
	write_file("low/d/1", "one");
	write_file("low/d/2", "two");
	write_file("up/g", "up");
	mount_fs("overlay", "o", OPTIONS);
	remember();
}

static void become(uid_t uid)
{
	OK(setresgid(uid, uid, uid));
	OK(setresuid(uid, uid, uid));
	remember();
}

static bool is_whiteout(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISCHR(st.st_mode) && st.st_rdev == 0;
}

static void merged(void)
{
	scene();
	expect_content("o/f", "low");
	expect_content("o/g", "up");
	expect_content("o/d/1", "one");
	FAILS(open("o/missing", O_RDONLY), ENOENT);
	EXPECT(!there("up/f") && !there("up/d"));
	same_as_before();
}

static void copy_up_by_write(void)
{
	scene();
	int fd = open_file("o/f", O_RDWR);

	EXPECT(there("up/f"));
	EXPECT(pwrite(fd, "new", 3, 0) == 3);
	OK(fsync(fd));
	OK(close(fd));
	expect_content("o/f", "new");
	expect_content("up/f", "new");
	expect_content("low/f", "low");
	write_file("o/d/1", "1");
	expect_content("low/d/1", "one");
	expect_content("up/d/1", "1");
	same_as_before();
}

static void copy_up_by_others(void)
{
	struct stat st;

	scene();
	OK(chmod("o/f", 0640));
	OK(stat("low/f", &st));
	EXPECT((st.st_mode & 0777) == 0644);
	OK(stat("up/f", &st));
	EXPECT((st.st_mode & 0777) == 0640);
	expect_content("up/f", "low");
	OK(truncate("o/d/1", 1));
	expect_content("o/d/1", "o");
	expect_content("low/d/1", "one");
	OK(chown("o/d/2", 5, 6));
	OK(stat("o/d/2", &st));
	EXPECT(st.st_uid == 5 && st.st_gid == 6);
	OK(utimensat(AT_FDCWD, "o/d", NULL, 0));
	same_as_before();
}

static void copy_up_by_link(void)
{
	scene();
	OK(link("o/f", "o/h"));
	EXPECT(there("up/f") && there("up/h"));
	expect_content("o/h", "low");
	write_file("o/h", "both");
	expect_content("o/f", "both");
	expect_content("low/f", "low");
	same_as_before();
}

static void copy_up_by_rename(void)
{
	scene();
	OK(rename("o/f", "o/moved"));
	expect_content("o/moved", "low");
	EXPECT(!there("o/f") && is_whiteout("up/f"));
	expect_content("low/f", "low");
	OK(rename("o/moved", "o/d/1"));
	expect_content("o/d/1", "low");
	expect_content("low/d/1", "one");
	FAILS(rename("o/d", "o/elsewhere"), EXDEV); /* it is of the lower layer */
	same_as_before();
}

static void not_by_reading(void)
{
	char buffer[16];
	int fd;

	scene();
	fd = open_file("o/f", O_RDONLY);
	EXPECT(read(fd, buffer, sizeof(buffer)) == 3);
	EXPECT(pread(fd, buffer, 1, 1) == 1 && buffer[0] == 'o');
	EXPECT(lseek(fd, 0, SEEK_END) == 3);
	OK(close(fd));
	EXPECT(!there("up/f"));
	same_as_before();
}

static void whiteouts(void)
{
	scene();
	OK(unlink("o/f"));
	EXPECT(!there("o/f") && is_whiteout("up/f") && there("low/f"));
	FAILS(open("o/f", O_RDONLY), ENOENT);
	write_file("o/f", "again");
	expect_content("o/f", "again");
	expect_content("low/f", "low");
	OK(unlink("o/g"));
	EXPECT(!there("up/g"));
	same_as_before();
}

static void opaque_directory(void)
{
	scene();
	OK(unlink("o/d/1"));
	FAILS(rmdir("o/d"), ENOTEMPTY);
	OK(unlink("o/d/2"));
	OK(rmdir("o/d"));
	EXPECT(is_whiteout("up/d") && !there("o/d"));
	make_dir("o/d");
	/* What the lower directory contains must not shine through. */
	EXPECT(!there("o/d/1") && !there("o/d/2"));
	make_file("o/d/3");
	EXPECT(there("up/d/3") && there("low/d/1"));
	same_as_before();
}

static void listing(void)
{
	unsigned one = 0, two = 0, three = 0, others = 0;
	struct dirent *e;
	DIR *dir;

	scene();
	make_file("o/d/3");
	OK(unlink("o/d/1"));
	write_file("o/d/2", "changed");
	dir = opendir("o/d");
	EXPECT(dir);
	while ((e = readdir(dir))) {
		one += !strcmp(e->d_name, "1");
		two += !strcmp(e->d_name, "2");
		three += !strcmp(e->d_name, "3");
		others++;
	}
	closedir(dir);
	EXPECT(one == 0 && two == 1 && three == 1 && others == 4);
	same_as_before();
}

static void attributes(void)
{
	char value[16], list[256];
	ssize_t n;

	scene();
	OK(setxattr("o/f", "trusted.note", "here", 4, 0));
	EXPECT(getxattr("o/f", "trusted.note", value, sizeof(value)) == 4);
	EXPECT(getxattr("up/f", "trusted.note", value, sizeof(value)) == 4);
	FAILS(getxattr("low/f", "trusted.note", value, sizeof(value)), ENODATA);
	/* Its own attributes stay hidden. */
	n = listxattr("o/f", list, sizeof(list));
	OK(n);
	EXPECT(memmem(list, (size_t)n, "trusted.note", sizeof("trusted.note")));
	EXPECT(!memmem(list, (size_t)n, "overlay", 7));
	FAILS(getxattr("o/f", "trusted.overlay.origin", value, sizeof(value)),
	      EOPNOTSUPP);
	OK(removexattr("o/f", "trusted.note"));
	FAILS(getxattr("o/f", "trusted.note", value, sizeof(value)), ENODATA);
	same_as_before();
}

static void read_only_overlay(void)
{
	make_dir("l1");
	make_dir("l2");
	make_dir("o");
	write_file("l1/f", "first");
	write_file("l2/f", "second");
	write_file("l2/g", "second");
	make_file(WORK "/root-only");
	mount_fs("overlay", "o", "lowerdir=l1:l2");
	remember();
	expect_content("o/f", "first");
	expect_content("o/g", "second");
	FAILS(open("o/f", O_RDWR), EROFS);
	FAILS(unlink("o/f"), EROFS);
	FAILS(mkdir("o/d", 0700), EROFS);
	same_as_before();
}

static void symlinks(void)
{
	scene();
	OK(symlink("f", "o/rel"));
	OK(symlink(WORK "/o/d/new", "o/abs"));
	expect_content("o/rel", "low");
	OK(close(open("o/abs", O_CREAT | O_RDWR, 0600)));
	EXPECT(there("up/d/new"));
	OK(close(open(WORK "/o/abs", O_CREAT | O_RDWR, 0600)));
	same_as_before();
}

static void as_another_user(void)
{
	struct stat st;

	scene();
	write_file("o/theirs", "x");
	OK(chmod("o/theirs", 0666));
	OK(umount2("o", 0));
	write_file("low/secret", "x");
	OK(chmod("low/secret", 0600));
	mount_fs("overlay", "o", OPTIONS);
	OK(chmod("o", 0777));
	become(1000);
	expect_content("o/f", "low");
	OK(faccessat(AT_FDCWD, "o/f", R_OK, 0));
	same_as_before();
	FAILS(faccessat(AT_FDCWD, "o/f", W_OK, 0), EACCES);
	FAILS(faccessat(AT_FDCWD, "o/secret", R_OK, 0), EACCES);
	FAILS(open("o/f", O_RDWR), EACCES);
	FAILS(open("o/secret", O_RDONLY), EACCES);
	FAILS(chmod("o/f", 0666), EPERM);
	FAILS(unlink("o/d/1"), EACCES);
	FAILS(mkdir("o/d/x", 0700), EACCES);
	same_as_before();
	EXPECT(!there("up/f"));
	write_file("o/theirs", "mine");
	write_file("o/new", "mine");
	make_dir("o/newdir");
	OK(stat("o/new", &st));
	EXPECT(st.st_uid == 1000 && st.st_gid == 1000);
	OK(stat("o/newdir", &st));
	EXPECT(st.st_uid == 1000);
	OK(rename("o/new", "o/newdir/n"));
	OK(link("o/newdir/n", "o/l"));
	OK(symlink("f", "o/s"));
	OK(unlink("o/l"));
	same_as_before();
}

static void copy_up_keeps_owner(void)
{
	struct stat st;

	scene();
	OK(umount2("o", 0)); /* layers are changed behind no overlay's back */
	OK(chown("low/f", 2000, 2000));
	OK(chmod("low/f", 0666));
	mount_fs("overlay", "o", OPTIONS);
	become(1000);
	write_file("o/f", "new");
	OK(stat("o/f", &st));
	EXPECT(st.st_uid == 2000 && st.st_gid == 2000);
	expect_content("o/f", "new");
	same_as_before();
}

static void by_fsuid(void)
{
	struct stat st;

	scene();
	OK(chmod("o", 0777));
	OK(chmod("o/d", 0700));
	setfsgid(1000);
	setfsuid(1000);
	EXPECT(setfsuid((uid_t)-1) == 1000);
	remember();
	FAILS(open("o/d/1", O_RDONLY), EACCES);
	make_file("o/new");
	OK(stat("o/new", &st));
	EXPECT(st.st_uid == 1000);
	EXPECT(setfsuid((uid_t)-1) == 1000);
	char now[1024];

	who_are_we(now, sizeof(now));
	EXPECT(!strcmp(now, before));
}

/* Each of these goes to a file of a layer with other credentials. */
static void file_operations(void)
{
	char buffer[64], *map;
	struct statfs fs;
	int fd, in, pipes[2];
	off_t at = 0;

	scene();
	write_file("o/f", "0123456789");
	OK(chmod("o/f", 0666));
	become(1000);
	fd = open_file("o/f", O_RDWR);
	in = open_file("o/d/1", O_RDONLY);
	EXPECT(pread(fd, buffer, 4, 3) == 4 && !memcmp(buffer, "3456", 4));
	same_as_before();
	EXPECT(pwrite(fd, "ab", 2, 0) == 2);
	same_as_before();
	EXPECT(lseek(fd, 0, SEEK_END) == 10);
	same_as_before();
	OK(fsync(fd));
	OK(fdatasync(fd));
	same_as_before();
	if (fallocate(fd, 0, 0, 20))
		EXPECT(errno == EOPNOTSUPP);
	same_as_before();
	OK(ftruncate(fd, 10));
	same_as_before();
	OK(pipe(pipes));
	EXPECT(splice(fd, &at, pipes[1], NULL, 5, 0) == 5);
	same_as_before();
	EXPECT(read(pipes[0], buffer, 5) == 5 && !memcmp(buffer, "ab234", 5));
	EXPECT(write(pipes[1], "xyz", 3) == 3);
	at = 7;
	EXPECT(splice(pipes[0], NULL, fd, &at, 3, 0) == 3);
	same_as_before();
	EXPECT(pread(fd, buffer, 10, 0) == 10 && !memcmp(buffer, "ab23456xyz", 10));
	at = 0;
	if (copy_file_range(in, &at, fd, NULL, 3, 0) < 0)
		EXPECT(errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP);
	same_as_before();
	at = 0;
	OK(lseek(fd, 0, SEEK_SET));
	OK(sendfile(fd, in, &at, 3));
	EXPECT(pread(fd, buffer, 3, 0) == 3 && !memcmp(buffer, "one", 3));
	same_as_before();
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	EXPECT(map != MAP_FAILED && map[0] == 'o');
	OK(munmap(map, 4096));
	same_as_before();
	OK(fstatfs(fd, &fs));
	FAILS(fchown(fd, 0, 0), EPERM);
	OK(fcntl(fd, F_SETFL, O_NONBLOCK));
	same_as_before();
	OK(close(fd));
	same_as_before();
}

static void execute_from_overlay(void)
{
	struct stat st;

	scene();
	OK(chmod("o/f", 04755));
	become(1000);
	OK(stat("o/f", &st));
	EXPECT(st.st_mode & S_ISUID);
	FAILS(faccessat(AT_FDCWD, "o/d/1", X_OK, 0), EACCES);
	OK(faccessat(AT_FDCWD, "o/f", X_OK, 0));
	OK(faccessat(AT_FDCWD, "o/f", X_OK, AT_EACCESS));
	same_as_before();
}

static void unmount_overlay(void)
{
	int fd;

	scene();
	fd = open_file("o/f", O_RDONLY);
	FAILS(umount2("o", 0), EBUSY);
	OK(umount2("o", MNT_DETACH));
	EXPECT(!there("o/f"));
	char byte;

	EXPECT(pread(fd, &byte, 1, 0) == 1 && byte == 'l');
	OK(close(fd));
	/* The layers are free again. */
	mount_fs("overlay", "o", OPTIONS);
	expect_content("o/f", "low");
	OK(umount2("o", 0));
	same_as_before();
}

static void write_one(void)
{
	int fd = open("o/f", O_WRONLY | O_APPEND);

	if (fd < 0 || write(fd, "+", 1) != 1 || close(fd))
		fail_errno("append to a file that is copied up");
}

static void concurrent_copy_up(void)
{
	scene();
	for (int i = 0; i < 4; i++)
		beside(write_one);
	together();
	expect_content("o/f", "low++++");
	expect_content("low/f", "low");
	same_as_before();
}

const struct check smoke_overlay[] = {
	{ "overlay-merged", merged },
	{ "overlay-copy-up-write", copy_up_by_write },
	{ "overlay-copy-up-attributes", copy_up_by_others },
	{ "overlay-copy-up-link", copy_up_by_link },
	{ "overlay-copy-up-rename", copy_up_by_rename },
	{ "overlay-no-copy-up-read", not_by_reading },
	{ "overlay-whiteout", whiteouts },
	{ "overlay-opaque", opaque_directory },
	{ "overlay-listing", listing },
	{ "overlay-xattr", attributes },
	{ "overlay-read-only", read_only_overlay },
	{ "overlay-symlinks", symlinks },
	{ "overlay-as-another-user", as_another_user },
	{ "overlay-copy-up-keeps-owner", copy_up_keeps_owner },
	{ "overlay-fsuid", by_fsuid },
	{ "overlay-file-operations", file_operations },
	{ "overlay-execute-permission", execute_from_overlay },
	{ "overlay-umount", unmount_overlay },
	{ "overlay-concurrent-copy-up", concurrent_copy_up },
	{ 0 },
};
