/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_panic.c - machines that do not end well, for tests of the host's side.
 */
#include "guest.h"

#include <sys/reboot.h>

#include "args.h"
#include "panic.h"
#include "report.h"
#include "sys.h"
#include "work.h"

#define TRIGGER "/proc/sysrq-trigger"

static const struct param params[] = {
	{ "how", PARAM_WORD, "panic", 0, 0, "panic|oops|hang|exit|reset",
	  "init crashes; the kernel follows a null pointer; nothing happens any more; "
	  "init ends; the machine resets" },
	{ 0 },
};

void panic_before_fork(void)
{
	const char *how = args_given("how");

	if (how && !strcmp(how, "exit"))
		_exit(0);
	/* A fault cannot be ignored, unlike a signal that is sent to pid 1. */
	if (!how || !strcmp(how, "panic"))
		__builtin_trap();
}

static void run(void)
{
	const char *how = arg_word("how");

	if (!in_lab())
		fail("panic is for lab kernels only (ct.lab=1 on the kernel's command line)");
	if (!strcmp(how, "hang"))
		for (;;)
			pause();
	if (!strcmp(how, "exit") || !strcmp(how, "panic"))
		fail("how=%s has to be done by /init: put ct.run=panic on the kernel's command line", how);
	if (!strcmp(how, "reset")) {
		reboot(RB_AUTOBOOT);
		fail_errno("reboot");
	}
	if (access(TRIGGER, W_OK))
		fail("how=oops needs a kernel with CONFIG_MAGIC_SYSRQ");
	write_file(TRIGGER, "c");
	fail("the kernel has outlived an oops");
}

const struct workload work_panic = {
	"panic", "ends that the host must cope with", params, run, true,
};
