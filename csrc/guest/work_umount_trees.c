/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_umount_trees.c - what is left of mounts when they are gone?
 *
 * Mounts of several kinds are unmounted, alone and with others below them.
 * After a pause nothing may be left: a mount and a superblock without a device
 * have numbers, of which the lowest free ones are taken next, so new mounts
 * get the same as before. Where a device was below, it must be free at once.
 *
 * A kernel with the lab's watch on mounts counts which were unhooked, and
 * whose last reference was put; what it counted is told here, too. Every name
 * is drawn, and so is what the process is called.
 */
#include "guest.h"

#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "args.h"
#include "draw.h"
#include "loop.h"
#include "mounts.h"
#include "report.h"
#include "romfs.h"
#include "sys.h"
#include "work.h"

#define PROBES 24
#define PATIENCE 20 /* turns of 100 ms */
#define PROBINGS 4
#define READER_MS 1500

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "6", 1, 1000, NULL, "unmounts of each kind" },
	{ "kinds", PARAM_WORD, "all", 0, 0, "all|devices|memory", "which kinds" },
	{ 0 },
};

struct seen {
	unsigned mounts, supers;
};

static char base[64], probes[96], device[64];
static int control, image;
static bool busy;

static const char *memory(void)
{
	return drawn_below(2) ? "ramfs" : "tmpfs";
}

/* A new directory, of a name that was drawn. */
static const char *place_in(const char *where)
{
	const char *place = text("%s/%s", where, drawn_word());

	make_dir("%s", place);
	return place;
}

static const char *mounted(const char *type, const char *where)
{
	const char *place = place_in(where);

	mount_fs(type, place, NULL);
	return place;
}

/* The highest numbers that so many new mounts get. */
static struct seen probe(void)
{
	struct seen seen = { 0 };

	for (unsigned i = 0; i < PROBES; i++) {
		const char *at = text("%s/%u", probes, i);
		struct statx st;

		mount_fs("tmpfs", at, NULL);
		if (statx(AT_FDCWD, at, 0, STATX_MNT_ID, &st))
			fail_errno("statx %s", at);
		if (st.stx_mnt_id > seen.mounts)
			seen.mounts = (unsigned)st.stx_mnt_id;
		if (st.stx_dev_minor > seen.supers)
			seen.supers = st.stx_dev_minor;
	}
	for (unsigned i = 0; i < PROBES; i++)
		unmount(text("%s/%u", probes, i), 0);
	return seen;
}

/* Objects of a slab cache that are in use; exact if all caches are checked. */
static long objects(const char *cache)
{
	static char content[65536];
	const char *line;

	read_file("/proc/slabinfo", content, sizeof(content));
	line = strstr(content, text("\n%s ", cache));
	return line ? strtol(line + 1 + strlen(cache), NULL, 10) : 0;
}

static const char *attached_device(const char *where)
{
	const char *at = place_in(where);

	snprintf(device, sizeof(device), "/dev/loop%d", loop_free(control));
	loop_attach(device, O_RDONLY, image);
	if (mount(device, at, "romfs", MS_RDONLY, NULL))
		fail_errno("mount the romfs on %s", device);
	return at;
}

/* As mkfs does, at once. */
static void take_device(void)
{
	int fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);

	busy = fd < 0 && errno == EBUSY;
	for (unsigned i = 0; fd < 0 && errno == EBUSY && i < 200; i++) {
		sleep_ms(10);
		fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);
	}
	if (fd < 0 && errno != EBUSY)
		fail_errno("open %s for us alone, after the unmount", device);
	if (fd < 0)
		return; /* it is lost, and the next is another */
	if (ioctl(fd, LOOP_CLR_FD, 0) && errno != EBUSY)
		fail_errno("detach the image from %s", device);
	close(fd);
}

static void lazy(void)
{
	unmount(mounted(memory(), base), MNT_DETACH);
}

static void plain(void)
{
	unmount(mounted(memory(), base), 0);
}

static void open_file_of_it(void)
{
	const char *at = mounted(memory(), base);
	int fd = open(text("%s/%s", at, drawn_word()), O_CREAT | O_RDWR, 0600);

	if (fd < 0)
		fail_errno("create a file in %s", at);
	unmount(at, MNT_DETACH);
	close(fd);
}

static void tree(void)
{
	const char *top = mounted(memory(), base);

	mounted(memory(), mounted(memory(), top));
	bind(top, place_in(top));
	unmount(top, MNT_DETACH);
}

static void shared(void)
{
	const char *one = mounted("tmpfs", base), *other = place_in(base), *below;

	propagation(one, MS_SHARED);
	bind(one, other);
	below = mounted(memory(), one);
	unmount(below, MNT_DETACH);
	unmount(other, MNT_DETACH);
	unmount(one, 0);
}

static void namespace_ends(void)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		fail_errno("fork");
	if (!pid) {
		if (unshare(CLONE_NEWNS))
			fail_errno("a mount namespace");
		mounted(memory(), mounted(memory(), base));
		_exit(0);
	}
	if (waitpid(pid, &status, 0) < 0 || status)
		child_failed("a process in a namespace of its own", status);
}

static void device_alone(void)
{
	unmount(attached_device(base), MNT_DETACH);
	take_device();
}

static void device_below(void)
{
	const char *top = mounted(memory(), base);

	attached_device(mounted(memory(), top));
	unmount(top, MNT_DETACH);
	take_device();
}

/* It has no device itself, and holds the file system of one. */
static void device_in_overlay(void)
{
	const char *low = attached_device(base), *empty = place_in(base);
	const char *at = place_in(base);

	if (mount("overlay", at, "overlay", 0, text("lowerdir=%s:%s", low, empty)))
		fail_errno("mount an overlay over %s", low);
	unmount(at, MNT_DETACH);
	unmount(low, 0);
	take_device();
}

/* Whoever unmounts gets no memory from the kernel as soon as it is done. */
static void without_memory(void)
{
	const char *at = mounted(memory(), base);
	int status;
	pid_t pid = fork();

	if (pid < 0)
		fail_errno("fork");
	if (!pid) {
		mounts_have_watch("starve", getpid());
		unmount(at, MNT_DETACH);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) < 0 || status)
		child_failed("a process without memory", status);
	mounts_have_watch("starve", 0);
}

/* No time is long enough but a grace period: a reader takes that long. */
static void beside_a_reader(void)
{
	if (online_cpus() > 1) {
		mounts_have_watch("reader_ms", READER_MS);
		sleep_ms(20);
	}
	lazy();
	if (online_cpus() > 1)
		sleep_ms(READER_MS);
}

static const struct kind {
	const char *label;
	void (*op)(void);
	bool device;
	bool watched; /* what the watch does, and once is enough */
} kinds[] = {
	{ "lazy", lazy, false, false },
	{ "plain", plain, false, false },
	{ "open", open_file_of_it, false, false },
	{ "tree", tree, false, false },
	{ "shared", shared, false, false },
	{ "namespace", namespace_ends, false, false },
	{ "without-memory", without_memory, false, true },
	{ "beside-a-reader", beside_a_reader, false, true },
	{ "device", device_alone, true, false },
	{ "device-below", device_below, true, false },
	{ "device-in-overlay", device_in_overlay, true, false },
};

/* Mounts that were unhooked and are not put yet, as the watch has it. */
static long pending(void)
{
	return mounts_watched("unhooked") - mounts_watched("put");
}

/* Wait until there are no more of them, for a while, and their last work is done. */
static void settle(long lost)
{
	for (unsigned i = 0; i < PATIENCE && pending() > lost; i++)
		sleep_ms(100);
	sleep_ms(100);
}

static void measure(const struct kind *kind, uint64_t ops, struct result *all)
{
	struct result result = { .label = kind->label, .procs = 1, .ops = ops };
	uint64_t begin, ebusy = 0, waits;
	struct seen before, after;
	static long lost;
	long gone;

	/* Whoever puts later does so with those of a probe, too. */
	settle(lost);
	lost = pending();
	before = probe();
	settle(lost);
	gone = mounts_watched("unhooked");
	waits = voluntary_waits();
	begin = now_ns();
	for (uint64_t i = 0; i < ops; i++) {
		busy = false;
		kind->op();
		ebusy += busy;
	}
	result.ns = now_ns() - begin;
	waits = voluntary_waits() - waits;
	gone = mounts_watched("unhooked") - gone;
	for (unsigned i = 0; i < PROBINGS; i++) {
		settle(lost);
		after = probe();
		if (after.mounts <= before.mounts && after.supers <= before.supers)
			break;
	}
	count(&result, "ebusy", ebusy);
	count(&result, "waits", waits);
	count(&result, "unhooked", (uint64_t)gone);
	count(&result, "mounts_left", after.mounts > before.mounts ?
					      after.mounts - before.mounts : 0);
	count(&result, "supers_left", after.supers > before.supers ?
					      after.supers - before.supers : 0);
	for (unsigned i = 0; i < result.n_counts; i++)
		count(all, result.counts[i].name, result.counts[i].value);
	all->ops += ops;
	all->ns += result.ns;
	report_result(&result);
}

/* What has no number is an object still; and is lockdep awake? */
static void measure_memory(void)
{
	static const char *const caches[] = { "mnt_cache", "shmem_inode_cache" };
	struct result result = { .label = "memory", .procs = 1, .ops = 40 };
	long before[ARRAY_SIZE(caches)], left = 0;
	char stats[8192];
	const char *at;

	for (unsigned i = 0; i < ARRAY_SIZE(caches); i++)
		before[i] = objects(caches[i]);
	for (uint64_t i = 0; i < result.ops; i++)
		lazy();
	sleep_ms(1000);
	for (unsigned i = 0; i < ARRAY_SIZE(caches); i++)
		left += objects(caches[i]) - before[i];
	/* Each has left its directory. */
	count(&result, "objects_left", left > (long)result.ops ?
					       (uint64_t)left - result.ops : 0);
	if (try_read_file("/proc/lockdep_stats", stats, sizeof(stats)) > 0) {
		at = strstr(stats, "debug_locks:");
		count(&result, "lockdep_awake", at && atoi(at + strlen("debug_locks:")) == 1);
	}
	report_result(&result);
}

static void run(void)
{
	struct result all = { .label = "sum", .procs = 1 };
	const char *which = arg_word("kinds");
	unsigned char content[ROMFS_BYTES];

	drawn_process_name();
	snprintf(base, sizeof(base), "/%s", drawn_word());
	make_dir("%s", base);
	mount_fs("tmpfs", base, NULL);
	snprintf(probes, sizeof(probes), WORK "/%s", drawn_word());
	make_dir("%s", probes);
	for (unsigned i = 0; i < PROBES; i++)
		make_dir("%s/%u", probes, i);
	control = open_file(LOOP_CONTROL, O_RDWR);
	romfs_image(content);
	image = open(text(WORK "/%s", drawn_word()), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (image < 0 || write(image, content, sizeof(content)) != sizeof(content))
		fail_errno("write the image");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if ((!strcmp(which, "all") || kinds[i].device == !strcmp(which, "devices")) &&
		    (!kinds[i].watched || mounts_watched("unhooked") >= 0))
			measure(&kinds[i], kinds[i].watched ? 1 : arg_number("ops"), &all);
	report_result(&all);
	mounts_report_watch();
	if (strcmp(which, "devices") != 0)
		measure_memory();
}

const struct workload work_umount_trees = {
	"umount-trees", "what is left of mounts that were unmounted, alone and in trees",
	params, run, true,
};
