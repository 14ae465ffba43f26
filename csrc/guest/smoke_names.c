/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke_names.c - creating, linking, renaming, removing.
 *
 * A dentry has short names in itself and long ones elsewhere; where that
 * changes (around 32 and 40 characters, depending on the layout) is a place
 * for mistakes of whoever moves its members about.
 */
#include "smoke.h"

#include <dirent.h>
#include <linux/fs.h>

static ino_t inode_of(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		fail_errno("lstat %s", path);
	return st.st_ino;
}

static nlink_t links_of(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		fail_errno("lstat %s", path);
	return st.st_nlink;
}

static int rename2(const char *from, const char *to, unsigned flags)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

/* A name of this length that starts with this character. */
static const char *name_of(int length, char first)
{
	static char ring[4][512];
	static unsigned next;
	char *name = ring[next++ % ARRAY_SIZE(ring)];

	for (int i = 0; i < length; i++)
		name[i] = (char)('a' + i % 26);
	name[0] = first;
	name[length] = '\0';
	return name;
}

static size_t entries(const char *path)
{
	DIR *dir = opendir(path);
	size_t n = 0;

	if (!dir)
		fail_errno("opendir %s", path);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static void create(void)
{
	EXPECT(!there("f"));
	write_file("f", "one");
	EXPECT(there("f"));
	expect_content("f", "one");
	OK(unlink("f"));
	FAILS(open("f", O_RDONLY), ENOENT);
	FAILS(unlink("f"), ENOENT);
}

static void create_exclusive(void)
{
	make_file("f");
	FAILS(open("f", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
	make_dir("d");
	FAILS(open("d", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
	FAILS(open("d", O_CREAT | O_RDWR, 0600), EISDIR);
}

static void link_count(void)
{
	write_file("a", "same");
	OK(link("a", "b"));
	EXPECT(links_of("a") == 2 && inode_of("a") == inode_of("b"));
	FAILS(link("a", "b"), EEXIST);
	OK(unlink("a"));
	EXPECT(links_of("b") == 1);
	expect_content("b", "same");
	make_dir("d");
	FAILS(link("d", "e"), EPERM);
}

static void rename_replaces(void)
{
	ino_t a;

	write_file("a", "a");
	write_file("b", "b");
	a = inode_of("a");
	OK(rename("a", "b"));
	EXPECT(!there("a") && inode_of("b") == a);
	expect_content("b", "a");
}

static void rename_noreplace(void)
{
	write_file("a", "a");
	write_file("b", "b");
	FAILS(rename2("a", "b", RENAME_NOREPLACE), EEXIST);
	expect_content("b", "b");
	OK(rename2("a", "c", RENAME_NOREPLACE));
	EXPECT(!there("a"));
	expect_content("c", "a");
}

static void rename_exchange(void)
{
	write_file("a", "a");
	make_dir("d");
	make_file("d/in");
	OK(rename2("a", "d", RENAME_EXCHANGE));
	expect_content("d", "a");
	EXPECT(there("a/in"));
	FAILS(rename2("a", "missing", RENAME_EXCHANGE), ENOENT);
	FAILS(rename2("a", "d", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
}

static void rename_refused(void)
{
	make_dir("d");
	make_dir("d/sub");
	make_dir("full");
	make_file("full/f");
	make_file("f");
	FAILS(rename("d", "d/sub/x"), EINVAL);
	FAILS(rename("d", "full"), ENOTEMPTY);
	FAILS(rename("f", "d"), EISDIR);
	FAILS(rename("d", "f"), ENOTDIR);
	FAILS(rename("d", "d/sub"), EINVAL);
}

static void rename_across_dirs(void)
{
	make_dir("a");
	make_dir("b");
	make_dir("a/x");
	make_file("a/x/f");
	OK(rename("a/x", "b/y"));
	EXPECT(there("b/y/f") && !there("a/x"));
	EXPECT(inode_of("b/y/..") == inode_of("b"));
	EXPECT(links_of("a") == 2 && links_of("b") == 3);
}

static void rename_hard_links(void)
{
	make_file("a");
	OK(link("a", "b"));
	/* Two names of one file: nothing happens. */
	OK(rename("a", "b"));
	EXPECT(there("a") && there("b"));
}

static void unlink_while_open(void)
{
	char byte;
	int fd;

	write_file("f", "x");
	fd = open_file("f", O_RDWR);
	OK(unlink("f"));
	EXPECT(pread(fd, &byte, 1, 0) == 1 && byte == 'x');
	EXPECT(write(fd, "yz", 2) == 2);
	EXPECT(pread(fd, &byte, 1, 1) == 1 && byte == 'z');
	make_file("f");
	EXPECT(links_of("f") == 1);
	OK(close(fd));
}

static void rmdir_full(void)
{
	make_dir("d");
	make_file("d/f");
	FAILS(rmdir("d"), ENOTEMPTY);
	OK(unlink("d/f"));
	OK(rmdir("d"));
	FAILS(rmdir("d"), ENOENT);
	make_file("f");
	FAILS(rmdir("f"), ENOTDIR);
	make_dir("e");
	FAILS(unlink("e"), EISDIR);
}

static void rmdir_where_we_are(void)
{
	char buffer[PATH_MAX];

	make_dir("d");
	OK(chdir("d"));
	OK(rmdir(WORK "/d"));
	FAILS(open("f", O_CREAT | O_RDWR, 0600), ENOENT);
	FAILS(mkdir("sub", 0700), ENOENT);
	EXPECT(!getcwd(buffer, sizeof(buffer)) && errno == ENOENT);
	OK(chdir(".."));
	EXPECT(getcwd(buffer, sizeof(buffer)) && !strcmp(buffer, WORK));
}

static void name_lengths(void)
{
	for (int n = 1; n <= 80; n++) {
		const char *name = name_of(n, 'A');

		write_file(name, name);
		expect_content(name, name);
		EXPECT(!there(name_of(n, 'B')));
		/* One that differs at the end only. */
		char *other = strdup(name);

		other[n - 1] = '_';
		EXPECT(n == 1 || !there(other));
		free(other);
	}
	EXPECT(entries(".") == 80);
	make_file("%s", name_of(254, 'A'));
	make_file("%s", name_of(255, 'A'));
	EXPECT(there(name_of(255, 'A')) && there(name_of(254, 'A')));
	FAILS(open(name_of(256, 'A'), O_CREAT | O_RDWR, 0600), ENAMETOOLONG);
}

static void rename_lengths(void)
{
	for (int from = 28; from <= 44; from += 2)
		for (int to = 29; to <= 45; to += 4) {
			const char *a = name_of(from, 'A'), *b = name_of(to, 'B');

			write_file(a, "a");
			write_file(b, "b");
			OK(rename2(a, b, RENAME_EXCHANGE));
			expect_content(a, "b");
			expect_content(b, "a");
			OK(rename(a, b));
			EXPECT(!there(a));
			expect_content(b, "b");
			OK(unlink(b));
		}
}

static void rename_long_while_open(void)
{
	char target[PATH_MAX];
	const char *name = name_of(100, 'A');
	int fd;
	ssize_t n;

	make_file("%s", name);
	fd = open_file(name, O_RDONLY);
	for (int length = 20; length <= 60; length += 5) {
		const char *next = name_of(length, 'B');

		OK(rename(name, next));
		n = readlink(text("/proc/self/fd/%d", fd), target, sizeof(target) - 1);
		OK(n);
		target[n] = '\0';
		if (strcmp(target, text(WORK "/%s", next)) != 0)
			fail("the open file is called %s, not %s", target, next);
		name = text("%s", next);
	}
	OK(close(fd));
}

static void negative_then_created(void)
{
	for (int i = 0; i < 50; i++) {
		const char *name = text("n%d", i % 5);

		FAILS(open(name, O_RDONLY), ENOENT);
		make_file("%s", name);
		EXPECT(there(name));
		OK(unlink(name));
	}
}

static void path_too_long(void)
{
	char path[PATH_MAX + 16];

	memset(path, '/', sizeof(path));
	path[PATH_MAX - 1] = '\0';
	OK(open(path, O_RDONLY));
	path[PATH_MAX - 1] = '/';
	path[PATH_MAX] = '\0';
	FAILS(open(path, O_RDONLY), ENAMETOOLONG);
	FAILS(open("", O_RDONLY), ENOENT);
}

static void trailing_slash(void)
{
	make_file("f");
	make_dir("d");
	FAILS(open("f/", O_RDONLY), ENOTDIR);
	FAILS(open("new/", O_CREAT | O_RDWR, 0600), EISDIR);
	FAILS(open("f/x", O_RDONLY), ENOTDIR);
	FAILS(open("f/..", O_RDONLY), ENOTDIR);
	OK(mkdir("new/", 0700));
	OK(rename("d/", "e/"));
	EXPECT(there("e") && there("new"));
}

static void dots(void)
{
	EXPECT(inode_of("/..") == inode_of("/"));
	make_dir("a");
	make_dir("a/b");
	EXPECT(inode_of("a/b/../b/./../..") == inode_of("."));
	FAILS(open("a/missing/..", O_RDONLY), ENOENT);
	FAILS(rmdir("a/."), EINVAL);
	FAILS(rmdir("a/.."), ENOTEMPTY);
	FAILS(rename("a/.", "c"), EBUSY);
}

static void tmpfile_gets_a_name(void)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);

	OK(fd);
	EXPECT(write(fd, "t", 1) == 1);
	EXPECT(entries(".") == 0);
	OK(linkat(AT_FDCWD, text("/proc/self/fd/%d", fd), AT_FDCWD, "f",
		  AT_SYMLINK_FOLLOW));
	expect_content("f", "t");
}

static void each_entry_once(void)
{
	enum { N = 300 };
	unsigned char seen[N] = { 0 };
	struct dirent *e;
	DIR *dir;

	for (int i = 0; i < N; i++)
		make_file("%d", i);
	for (int i = 0; i < N; i += 3)
		OK(unlink(text("%d", i)));
	dir = opendir(".");
	EXPECT(dir);
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			seen[atoi(e->d_name)]++;
	closedir(dir);
	for (int i = 0; i < N; i++)
		if (seen[i] != !!(i % 3))
			fail("entry %d was listed %d times", i, seen[i]);
}

static void permissions(void)
{
	make_dir("closed");
	make_file("closed/f");
	make_file("secret");
	OK(chmod("closed", 0600));
	OK(chmod("secret", 0600));
	OK(chmod(".", 01777));
	OK(setresgid(1000, 1000, 1000));
	OK(setresuid(1000, 1000, 1000));
	FAILS(open("closed/f", O_RDONLY), EACCES);
	FAILS(open("closed/new", O_CREAT | O_RDWR, 0600), EACCES);
	FAILS(open("secret", O_RDONLY), EACCES);
	FAILS(access("secret", R_OK), EACCES);
	FAILS(unlink("secret"), EPERM);
	FAILS(chmod("secret", 0666), EPERM);
	make_file("mine");
	OK(unlink("mine"));
}

const struct check smoke_names[] = {
	{ "create", create },
	{ "create-exclusive", create_exclusive },
	{ "link-count", link_count },
	{ "rename-replaces", rename_replaces },
	{ "rename-noreplace", rename_noreplace },
	{ "rename-exchange", rename_exchange },
	{ "rename-refused", rename_refused },
	{ "rename-across-directories", rename_across_dirs },
	{ "rename-hard-links", rename_hard_links },
	{ "unlink-while-open", unlink_while_open },
	{ "rmdir-full", rmdir_full },
	{ "rmdir-current-directory", rmdir_where_we_are },
	{ "name-lengths", name_lengths },
	{ "rename-lengths", rename_lengths },
	{ "rename-long-while-open", rename_long_while_open },
	{ "negative-then-created", negative_then_created },
	{ "path-too-long", path_too_long },
	{ "trailing-slash", trailing_slash },
	{ "dots", dots },
	{ "tmpfile-gets-a-name", tmpfile_gets_a_name },
	{ "each-entry-once", each_entry_once },
	{ "permissions", permissions },
	{ 0 },
};
