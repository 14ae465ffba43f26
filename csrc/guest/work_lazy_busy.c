/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_lazy_busy.c - is the device free when umount returns?
 *
 * A file system on a loop device is unmounted that nobody uses. Scripts rely
 * on the device being free from then on, lazy or not: mkfs opens it for
 * itself alone. So this does what mkfs does, at once, and counts how often
 * the device is still busy and how long it stays so.
 *
 * With lookers=N, N processes look at a file of it from other CPUs all the
 * time. Then a device may be busy for a moment with good reason, and one that
 * stays so is no error but a finding: "never_released" counts those that are
 * busy after all lookers have gone. Each unmount has a device of its own. What
 * calls are counted is told once more for their CPUs alone, as "lookers".
 */
#include "guest.h"

#include <linux/loop.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "args.h"
#include "calls.h"
#include "gate.h"
#include "loop.h"
#include "mounts.h"
#include "romfs.h"
#include "sys.h"
#include "work.h"

#define IMAGE WORK "/image"
#define PLACE WORK "/place"
#define PATIENCE_NS 60000000000ull
#define PATIENCE_LOOKED_AT_NS 300000000ull
#define MAX_DEVICES 1024

enum { EBUSY_SEEN, RELEASED_LATER, CLR_BUSY };

static const struct param params[] = {
	{ "ops", PARAM_NUMBER, "20", 1, 100000, NULL, "unmounts of each kind" },
	{ "lookers", PARAM_NUMBER, "0", 0, 64, NULL,
	  "processes that look at the mounted file, on the other CPUs" },
	{ 0 },
};

static char device[64];
static int image, flags;
static uint64_t lookers, patience_ns;
static bool used[MAX_DEVICES];

static void check_content(void)
{
	char content[256];

	read_file(PLACE "/" ROMFS_FILE, content, sizeof(content));
	if (strcmp(content, ROMFS_TEXT) != 0)
		fail("the file on %s is not what was written there", device);
}

/* Open the device for us alone, as soon as that is possible. */
static int take_device(struct worker *w)
{
	const uint64_t begin = now_ns();
	int fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);

	if (fd < 0 && errno == EBUSY) {
		w->count[EBUSY_SEEN]++;
		do {
			sleep_ms(1);
			fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);
		} while (fd < 0 && errno == EBUSY &&
			 now_ns() - begin < patience_ns);
		w->count[RELEASED_LATER] += fd >= 0;
	}
	if (fd < 0 && (errno != EBUSY || !lookers))
		fail_errno("open %s for us alone, after the unmount", device);
	w->latency_ns = now_ns() - begin;
	return fd;
}

static void op(struct worker *w, uint64_t i)
{
	int fd;

	(void)i;
	loop_attach(device, O_RDONLY, image);
	if (mount(device, PLACE, "romfs", MS_RDONLY, NULL))
		fail_errno("mount the romfs on %s", device);
	check_content();
	unmount(PLACE, flags);
	fd = take_device(w);
	if (fd < 0)
		return; /* what has become of it is seen at the end */
	if (ioctl(fd, LOOP_CLR_FD, 0)) {
		if (errno != EBUSY)
			fail_errno("detach the image from %s", device);
		w->count[CLR_BUSY]++;
	}
	close(fd);
}

static void turn(struct result *result, int how)
{
	const struct gate gate = {
		.procs = 1,
		.ops = 1,
		.warm_ups = !lookers,
		.latency = true,
		.op = op,
		.counts = { "ebusy", "released_later", "clr_busy" },
	};

	flags = how;
	gate_run(&gate, result);
}

/* A device that was lost is not free, so the next one is another. */
static void choose_device(int control)
{
	const int number = loop_free(control);

	if (number >= MAX_DEVICES)
		fail("lazy-busy: more than %d devices were lost", MAX_DEVICES);
	snprintf(device, sizeof(device), "/dev/loop%d", number);
	used[number] = true;
}

static void look(unsigned i)
{
	struct stat st;

	pin_to(online_cpu(1 + i % (online_cpus() - 1)));
	for (;;)
		(void)!stat(PLACE "/" ROMFS_FILE, &st);
}

static uint64_t lost_devices(void)
{
	uint64_t lost = 0;

	for (unsigned i = 0; i < MAX_DEVICES; i++) {
		int fd = used[i] ? open(text("/dev/loop%u", i),
					O_RDONLY | O_EXCL | O_CLOEXEC) : -1;

		lost += used[i] && fd < 0 && errno == EBUSY;
		if (fd >= 0)
			close(fd);
	}
	return lost;
}

static void run(void)
{
	struct result lazy = { .label = "lazy" }, plain = { .label = "plain" };
	struct result others = { .label = "lookers", .ops = arg_number("ops") };
	unsigned char content[ROMFS_BYTES];
	int control = open_file(LOOP_CONTROL, O_RDWR);
	pid_t pids[64];

	lookers = arg_number("lookers");
	patience_ns = lookers ? PATIENCE_LOOKED_AT_NS : PATIENCE_NS;
	if (lookers && online_cpus() < 2)
		fail("lookers need a second CPU");
	make_dir(PLACE);
	romfs_image(content);
	image = open(IMAGE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (image < 0 || write(image, content, sizeof(content)) != sizeof(content))
		fail_errno("write " IMAGE);
	for (unsigned i = 0; i < lookers; i++) {
		pids[i] = fork_bound();
		if (pids[i] < 0)
			fail_errno("fork");
		if (!pids[i])
			look(i);
	}
	for (uint64_t i = 0; i < arg_number("ops"); i++) {
		choose_device(control);
		turn(&lazy, MNT_DETACH);
		if (lookers)
			calls_collect(&others, 1);
		else /* what is in use is not unmounted plainly */
			turn(&plain, 0);
	}
	for (unsigned i = 0; i < lookers; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	if (lookers) {
		sleep_ms(500);
		count(&lazy, "never_released", lost_devices());
	}
	report_result(&lazy);
	if (!lookers)
		report_result(&plain);
	else if (calls_wanted())
		report_result(&others);
	mounts_report_watch();
}

const struct workload work_lazy_busy = {
	"lazy-busy", "whether a loop device is free when umount returns, lazy and plain",
	params, run, true,
};
