/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * romfs.c - a romfs image, made by hand.
 *
 * The format (Documentation/filesystems/romfs.rst in the kernel's source) is
 * big-endian words and names, in units of 16 bytes:
 *
 *   0   "-rom1fs-", the size, a checksum, the volume's name
 *   32  header of ".": next | type, first entry, size, checksum, name
 *   64  header of the file, then its bytes
 *
 * A checksum makes the sum of all words of what it covers zero.
 */
#include "romfs.h"

enum { ROOT = 32, ENTRY = 64, HEADER = 32 };
enum { DIRECTORY = 1, REGULAR = 2, EXECUTABLE = 8 };

static void put(unsigned char *at, uint32_t word)
{
	at[0] = (unsigned char)(word >> 24);
	at[1] = (unsigned char)(word >> 16);
	at[2] = (unsigned char)(word >> 8);
	at[3] = (unsigned char)word;
}

static uint32_t sum(const unsigned char *at, size_t bytes)
{
	uint32_t total = 0;

	for (size_t i = 0; i < bytes; i += 4)
		total += (uint32_t)at[i] << 24 | (uint32_t)at[i + 1] << 16 |
			 (uint32_t)at[i + 2] << 8 | (uint32_t)at[i + 3];
	return total;
}

static void put_header(unsigned char *at, uint32_t next, uint32_t spec,
		       uint32_t size, const char *name)
{
	put(at, next);
	put(at + 4, spec);
	put(at + 8, size);
	put(at + 12, 0);
	memcpy(at + 16, name, strlen(name));
	put(at + 12, -sum(at, HEADER));
}

void romfs_image(unsigned char image[ROMFS_BYTES])
{
	const uint32_t bytes = ENTRY + HEADER + sizeof(ROMFS_TEXT) - 1;

	memset(image, 0, ROMFS_BYTES);
	memcpy(image, "-rom1fs-", 8);
	put(image + 8, (bytes + 15) & ~15u);
	memcpy(image + 16, "ct", 2);
	put_header(image + ROOT, DIRECTORY | EXECUTABLE, ENTRY, 0, ".");
	put_header(image + ENTRY, REGULAR, 0, sizeof(ROMFS_TEXT) - 1, ROMFS_FILE);
	memcpy(image + ENTRY + HEADER, ROMFS_TEXT, sizeof(ROMFS_TEXT) - 1);
	/* Covers the first 512 bytes, or all if there is less. */
	put(image + 12, -sum(image, (bytes + 15) & ~15u));
}
