/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fuzz_ops.c - the operations: names, opens, mounts, propagation, overlays.
 */
#include "fuzz.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "report.h"
#include "sys.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#define RENAME_WHITEOUT 4
#endif
/* Not in all C libraries' headers; the numbers are those of every architecture. */
#define NR_OPEN_TREE 428
#define NR_MOVE_MOUNT 429
#define NR_MOUNT_SETATTR 442
#define TREE_CLONE 1
#define TREE_RECURSIVE 0x8000
#define FROM_EMPTY_PATH 4
#define ATTR_RDONLY 1

#define SLOTS 3
/* A bind of a shared tree into itself doubles it. */
#define CROWD 48

char fuzz_did[1024], fuzz_got[1024];

static uint64_t state;
static int slots[SLOTS], world_fd, outside_fd, proc_fd, mounts_fd;
static off_t mounts_top; /* behind the mounts outside of the world */

void fuzz_draw(uint64_t seed, uint64_t number)
{
	state = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (number + 1) * 0xd1342543de82ef95ull;
}

/* splitmix64: Steele, Lea and Flood, OOPSLA 2014 */
unsigned fuzz_below(unsigned n)
{
	uint64_t z = state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (unsigned)((z ^ z >> 31) >> 32) % n;
}

#define ONE_OF(...)                                            \
	((const unsigned[]){ __VA_ARGS__ })[fuzz_below(        \
		ARRAY_SIZE(((const unsigned[]){ __VA_ARGS__ })))]

#define did(...) snprintf(fuzz_did, sizeof(fuzz_did), __VA_ARGS__)
#define got(...) snprintf(fuzz_got, sizeof(fuzz_got), __VA_ARGS__)

void fuzz_open_world(const char *world)
{
	ssize_t n;

	outside_fd = open_file("/", O_PATH | O_DIRECTORY);
	world_fd = open_file(world, O_PATH | O_DIRECTORY);
	proc_fd = open_file("/proc", O_PATH | O_DIRECTORY);
	mounts_fd = open_file("/proc/self/mounts", O_RDONLY);
	/* Those of the root file system say how much memory the kernel left. */
	while ((n = read(mounts_fd, fuzz_got, sizeof(fuzz_got))) > 0)
		mounts_top += n;
	for (unsigned i = 0; i < SLOTS; i++)
		slots[i] = -1;
}

static void stand_on(int root)
{
	if (fchdir(root) || chroot("."))
		fail_errno("change the root");
}

void fuzz_enter(void)
{
	stand_on(world_fd);
}

void fuzz_leave(void)
{
	stand_on(outside_fd);
}

void fuzz_make_scene(void)
{
	static const char *const dirs[] = {
		"a", "b", "a/a", "a/b", "b/a", "o", "l", "l/a", "u", "u/b", "w",
	};
	static const char *const files[] = {
		"a/c", "b/c", "d", "l/c", "l/a/d", "u/d",
	};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		make_dir("%s", dirs[i]);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		write_file(files[i], files[i]);
	if (symlink("a", "c") || symlink("/a", "b/b") || symlink("../a/c", "b/d") ||
	    symlink("a", "l/b"))
		fail_errno("make a symbolic link");
	if (!fuzz_below(2))
		propagation("/", MS_SHARED);
}

static const char *name(void)
{
	static const char *const names[] = { "a", "a", "b", "b", "c", "d" };

	return names[fuzz_below(ARRAY_SIZE(names))];
}

static const char *path(void)
{
	const char *root = fuzz_below(6) ? "" : "/";
	const char *first = fuzz_below(6) ? name() : "o";
	const char *second = name(), *third = name();

	switch (fuzz_below(12)) {
	case 0 ... 4:
		return text("%s%s", root, first);
	case 5 ... 8:
		return text("%s%s/%s", root, first, second);
	case 9:
		return text("%s%s/../%s", root, first, second);
	case 10:
		return text("%s%s/", root, first);
	default:
		return text("%s%s/%s/%s", root, first, second, third);
	}
}

static mode_t mode(void)
{
	return ONE_OF(0644, 0755, 0700, 01777, 0);
}

static int slot(void)
{
	return slots[fuzz_below(SLOTS)];
}

/* An open file into a slot; what was there is closed. */
static long keep(long fd)
{
	const unsigned n = fuzz_below(SLOTS);

	if (fd < 0)
		return fd;
	if (slots[n] >= 0)
		close(slots[n]);
	slots[n] = (int)fd;
	return 0;
}

static long got_stat(const struct stat *st)
{
	/* The size of a directory is its file system's own business. */
	got("%o %lu %ld", st->st_mode, (unsigned long)st->st_nlink,
	    S_ISDIR(st->st_mode) ? 0 : (long)st->st_size);
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static long do_mkdir(void)
{
	const char *at = path();
	const mode_t how = mode() | 0700;

	did("mkdir %s %o", at, how);
	return mkdir(at, how);
}

static long do_rmdir(void)
{
	const char *at = path();

	did("rmdir %s", at);
	return rmdir(at);
}

static long do_unlink(void)
{
	const char *at = path();

	did("unlink %s", at);
	return unlink(at);
}

static long do_rename(void)
{
	const char *from = path(), *to = path();
	const unsigned flags = ONE_OF(0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE,
				      RENAME_WHITEOUT);

	did("rename %s %s flags=%u", from, to, flags);
	return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

static long do_link(void)
{
	const char *from = path(), *to = path();
	const int flags = fuzz_below(2) ? AT_SYMLINK_FOLLOW : 0;

	did("link %s %s%s", from, to, flags ? " follow" : "");
	return linkat(AT_FDCWD, from, AT_FDCWD, to, flags);
}

static long do_symlink(void)
{
	const char *target = fuzz_below(8) ? path() : "../..", *at = path();

	did("symlink %s %s", target, at);
	return symlink(target, at);
}

static long do_readlink(void)
{
	const char *at = path();
	char target[256];
	ssize_t n;

	did("readlink %s", at);
	n = readlink(at, target, sizeof(target));
	if (n >= 0)
		got("%.*s", (int)n, target);
	return n;
}

static long do_stat(void)
{
	const char *at = path();
	const int flags = fuzz_below(2) ? AT_SYMLINK_NOFOLLOW : 0;
	struct stat st;

	did("stat %s%s", at, flags ? " nofollow" : "");
	return fstatat(AT_FDCWD, at, &st, flags) ? -1 : got_stat(&st);
}

static long do_chmod(void)
{
	const char *at = path();
	const mode_t how = mode();

	did("chmod %s %o", at, how);
	return chmod(at, how);
}

static long do_truncate(void)
{
	const char *at = path();
	const unsigned size = fuzz_below(64);

	did("truncate %s %u", at, size);
	return truncate(at, size);
}

static long do_access(void)
{
	const char *at = path();
	const unsigned wanted = fuzz_below(8);
	const int flags = fuzz_below(3) ? 0 : AT_EACCESS;

	did("access %s %u%s", at, wanted, flags ? " effective" : "");
	/* Not the C library's, which answers some of it by itself. */
	return syscall(439, AT_FDCWD, at, wanted, flags);
}

static long do_list(void)
{
	const char *at = path();
	struct dirent **found;
	int n;

	did("list %s", at);
	n = scandir(at, &found, NULL, by_name);
	for (int i = 0; i < n; i++) {
		const size_t used = strlen(fuzz_got);

		snprintf(fuzz_got + used, sizeof(fuzz_got) - used, "%s ",
			 found[i]->d_name);
		free(found[i]);
	}
	if (n >= 0)
		free(found);
	return n;
}

/* An open as many ways as there are, that the call itself does not refuse. */
static long open_somehow(const char *at, const char *how)
{
	struct open_how h = { .flags = ONE_OF(O_RDONLY, O_WRONLY, O_RDWR) };
	const int from = fuzz_below(4) ? AT_FDCWD : slot();

	h.flags |= fuzz_below(2) ? O_CREAT : 0;
	h.flags |= ONE_OF(0, 0, 0, 0, O_TRUNC, O_NOFOLLOW, O_DIRECTORY, O_PATH, O_EXCL,
			  O_APPEND);
	if (h.flags & O_PATH)
		h.flags &= O_PATH;
	if (h.flags & O_DIRECTORY)
		h.flags &= ~(uint64_t)O_CREAT;
	h.mode = h.flags & O_CREAT ? mode() : 0;
	if (fuzz_below(2))
		for (unsigned bit = 0; bit < 5; bit++)
			h.resolve |= fuzz_below(4) ? 0 : 1u << bit;
	did("%sopen %s flags=%llo mode=%llo resolve=%llx%s", how, at,
	    (unsigned long long)h.flags, (unsigned long long)h.mode,
	    (unsigned long long)h.resolve, from == AT_FDCWD ? "" : " at an open file");
	h.flags |= O_CLOEXEC;
	return keep(syscall(SYS_openat2, from, at, &h, sizeof(h)));
}

static long do_open(void)
{
	return open_somehow(path(), "");
}

static long do_open_in_root(void)
{
	const char *root = path(), *at = text("/%s", path());
	long result;
	int error;

	if (chroot(root)) {
		did("chroot %s", root);
		return -1;
	}
	result = open_somehow(at, text("in root %s: ", root));
	error = errno;
	fuzz_enter();
	errno = error;
	return result;
}

static long do_close(void)
{
	const unsigned n = fuzz_below(SLOTS);
	const int fd = slots[n];

	did("close %u", n);
	slots[n] = -1;
	return close(fd);
}

static long do_read(void)
{
	char content[17] = "";
	ssize_t n;

	did("read");
	n = pread(slot(), content, sizeof(content) - 1, fuzz_below(8));
	got("%s", content);
	return n;
}

static long do_write(void)
{
	const char *word = name();

	did("write %s", word);
	return pwrite(slot(), word, 1, fuzz_below(8));
}

static long do_fstat(void)
{
	struct stat st;

	did("fstat");
	return fstat(slot(), &st) ? -1 : got_stat(&st);
}

static long do_where(void)
{
	char place[256];
	ssize_t n;

	did("where is an open file");
	n = readlinkat(proc_fd, text("self/fd/%d", slot()), place, sizeof(place));
	if (n >= 0)
		got("%.*s", (int)n, place);
	return n;
}

/* Not one that another would double without end; says so instead. */
static bool crowded(void)
{
	int fd = openat(proc_fd, "self/mounts", O_RDONLY | O_CLOEXEC), lines = 0;
	char part[4096];
	ssize_t n;

	if (fd < 0)
		fail_errno("open mounts");
	while ((n = read(fd, part, sizeof(part))) > 0)
		while (n)
			lines += part[--n] == '\n';
	close(fd);
	if (lines > CROWD)
		got("%d mounts: left out", lines);
	return lines > CROWD;
}

static long do_tmpfs(void)
{
	const char *at = path();
	const unsigned flags = ONE_OF(0, 0, MS_RDONLY, MS_NOSUID | MS_NODEV);

	did("tmpfs %s flags=%u", at, flags);
	return crowded() ? 0 : mount("t", at, "tmpfs", flags, NULL);
}

static long do_bind(void)
{
	const char *from = fuzz_below(8) ? path() : "/", *at = path();
	const unsigned flags = MS_BIND | ONE_OF(0, 0, MS_REC);

	did("bind %s %s%s", from, at, flags & MS_REC ? " recursively" : "");
	return crowded() ? 0 : mount(from, at, NULL, flags, NULL);
}

static long do_move(void)
{
	const char *from = path(), *at = path();

	did("move %s %s", from, at);
	return crowded() ? 0 : mount(from, at, NULL, MS_MOVE, NULL);
}

static long do_remount(void)
{
	const char *at = path();
	const unsigned flags = ONE_OF(0, MS_RDONLY, MS_NOSUID);

	did("remount %s flags=%u", at, flags);
	return mount(NULL, at, NULL, MS_REMOUNT | MS_BIND | flags, NULL);
}

static long do_setattr(void)
{
	uint64_t attr[4] = { fuzz_below(2), 0, 0, 0 }; /* set, clear, propagation, user ns */
	const char *at = path();
	const unsigned flags = fuzz_below(2) ? TREE_RECURSIVE : 0;

	attr[1] = attr[0] ? 0 : ATTR_RDONLY;
	attr[2] = ONE_OF(0, 0, MS_SHARED, MS_PRIVATE, MS_SLAVE);
	did("mount_setattr %s rdonly=%u propagation=%x%s", at, (unsigned)attr[0],
	    (unsigned)attr[2], flags ? " recursively" : "");
	return syscall(NR_MOUNT_SETATTR, AT_FDCWD, at, flags, attr, sizeof(attr));
}

static long do_open_tree(void)
{
	const char *at = path();
	const unsigned flags = O_CLOEXEC | ONE_OF(0, TREE_CLONE, TREE_CLONE | TREE_RECURSIVE);

	did("open_tree %s flags=%x", at, flags);
	return crowded() ? 0 : keep(syscall(NR_OPEN_TREE, AT_FDCWD, at, flags));
}

static long do_move_mount(void)
{
	const char *at = path();

	did("move_mount %s", at);
	return crowded() ? 0 : syscall(NR_MOVE_MOUNT, slot(), "", AT_FDCWD, at,
				       FROM_EMPTY_PATH);
}

static long do_propagation(void)
{
	const char *at = fuzz_below(6) ? path() : "/";
	const unsigned how = ONE_OF(MS_SHARED, MS_SHARED, MS_PRIVATE, MS_SLAVE, MS_UNBINDABLE) |
			     ONE_OF(0, MS_REC);

	did("propagation %s %x", at, how);
	return mount(NULL, at, NULL, how, NULL);
}

static long do_unmount(void)
{
	const char *at = path();
	const int flags = (int)ONE_OF(0, 0, MNT_DETACH, MNT_DETACH, UMOUNT_NOFOLLOW, MNT_EXPIRE);

	did("unmount %s flags=%d", at, flags);
	return umount2(at, flags);
}

static long do_overlay(void)
{
	const char *at = fuzz_below(3) ? "o" : path();
	const char *low = fuzz_below(3) ? "/l" : path();
	const char *up = fuzz_below(3) ? "/u" : path();
	const char *more = (const char *[]){ "", "", ",index=on", ",redirect_dir=on" }[fuzz_below(4)];
	const char *how = fuzz_below(5) ? text("lowerdir=%s,upperdir=%s,workdir=/w%s", low, up, more) :
					  text("lowerdir=%s:%s", low, up);

	did("overlay %s %s", at, how);
	return crowded() ? 0 : mount("ovl", at, "overlay", 0, how);
}

/* An open list of mounts, read on while they come and go. */
static long do_mounts_file(void)
{
	const unsigned again = !fuzz_below(4), bytes = 100 + fuzz_below(600);
	ssize_t n;

	did("read %u of mounts%s", bytes, again ? " from the top" : "");
	if (again)
		lseek(mounts_fd, mounts_top, SEEK_SET);
	n = read(mounts_fd, fuzz_got, bytes);
	fuzz_got[n > 0 ? n : 0] = '\0';
	return n;
}

const struct fuzz_op fuzz_ops[] = {
	{ "names", 5, do_mkdir },	    { "names", 3, do_rmdir },
	{ "names", 4, do_unlink },	    { "names", 7, do_rename },
	{ "names", 4, do_link },	    { "names", 3, do_symlink },
	{ "names", 2, do_readlink },	    { "names", 4, do_stat },
	{ "names", 2, do_chmod },	    { "names", 2, do_truncate },
	{ "names", 4, do_access },	    { "names", 3, do_list },
	{ "opens", 12, do_open },	    { "opens", 6, do_open_in_root },
	{ "opens", 3, do_close },	    { "opens", 3, do_read },
	{ "opens", 3, do_write },	    { "opens", 2, do_fstat },
	{ "opens", 3, do_where },	    { "mounts", 5, do_tmpfs },
	{ "mounts", 7, do_bind },	    { "mounts", 3, do_move },
	{ "mounts", 2, do_remount },	    { "mounts", 2, do_setattr },
	{ "mounts", 3, do_open_tree },	    { "mounts", 3, do_move_mount },
	{ "mounts", 3, do_mounts_file },    { "propagation", 5, do_propagation },
	{ "unmounts", 8, do_unmount },	    { "overlays", 6, do_overlay },
	{ NULL, 0, NULL },
};
