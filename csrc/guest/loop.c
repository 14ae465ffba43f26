/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * loop.c - a file as a block device.
 *
 * Somebody who is to take the place of a disk needs no driver of one: a file
 * of the initramfs is as good as long as nothing is read or written.
 */
#include "loop.h"

#include <linux/loop.h>
#include <sys/ioctl.h>

#include "report.h"
#include "sys.h"

int loop_free(int control)
{
	const int number = ioctl(control, LOOP_CTL_GET_FREE);

	if (number < 0)
		fail_errno("find a free loop device");
	return number;
}

void loop_attach(const char *device, int flags, int image)
{
	const int fd = open_file(device, flags);

	if (ioctl(fd, LOOP_SET_FD, image))
		fail_errno("attach an image to %s", device);
	close(fd);
}

void mount_disk(const char *at)
{
	const int control = open_file(LOOP_CONTROL, O_RDWR);
	const char *device = text("/dev/loop%d", loop_free(control));
	const int image = open_file(DISK_IMAGE, O_RDWR);

	loop_attach(device, O_RDWR, image);
	close(image);
	close(control);
	if (mount(device, at, "ext4", MS_RELATIME, NULL))
		fail_errno("mount the ext4 on %s", device);
}
