/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * loop.h - a file as a block device.
 */
#pragma once
#include "guest.h"

#define LOOP_CONTROL "/dev/loop-control"
#define DISK_IMAGE "/disk.img"

/* A free device's number; control is LOOP_CONTROL, opened. */
int loop_free(int control);
/* The image, an open file, becomes what is on the device, to be written with O_RDWR. */
void loop_attach(const char *device, int flags, int image);
/* Mount the ext4 of DISK_IMAGE, if the initramfs has one. */
void mount_disk(const char *at);
