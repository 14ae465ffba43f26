/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * romfs.h - the smallest file system that needs a block device.
 */
#pragma once
#include "guest.h"

#define ROMFS_BYTES 1024
#define ROMFS_FILE "hello"
#define ROMFS_TEXT "hello from a block device\n"

/* An image with one file, ROMFS_FILE, that contains ROMFS_TEXT. */
void romfs_image(unsigned char image[ROMFS_BYTES]);
