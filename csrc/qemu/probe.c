/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * probe.c - a plugin that no QEMU takes.
 *
 * It asks for a version of the plugin interface that does not exist; QEMU
 * refuses, and says up to which version it goes. That is the only way to learn
 * the version without a plugin of that very version.
 */
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 1 << 20;

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)id, (void)info, (void)argc, (void)argv;
	return -1;
}
