/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * smoke_access.c - access() asks with the real ids, whatever a task acts with.
 *
 * And with the capabilities that a process with these ids alone would have.
 * Each check asks for a file by itself, and for one behind an overlay.
 */
#include "smoke.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void scene(uid_t owner, gid_t group, mode_t mode)
{
	make_dir("low");
	make_dir("up");
	make_dir("wrk");
	make_dir("o");
	write_file("low/f", "x");
	OK(chown("low/f", owner, group));
	OK(chmod("low/f", mode));
	mount_fs("overlay", "o", "lowerdir=low,upperdir=up,workdir=wrk");
	OK(chmod(WORK, 0755));
}

static void expect_one(const char *what, const char *path, bool may, int result)
{
	if (may ? result < 0 : result >= 0 || errno != EACCES)
		fail("%s %s: %s; %s was expected", what, path,
		     result < 0 ? strerror(errno) : "it may",
		     may ? "that it may" : strerror(EACCES));
}

/* May this process read the file, by its real ids, and by those it acts with? */
static void expect(bool real, bool effective)
{
	static const char *const files[] = { "low/f", "o/f" };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const char *file = files[i];

		expect_one("access", file, real, access(file, R_OK));
		expect_one("faccessat", file, real,
			   faccessat(AT_FDCWD, file, R_OK, 0));
		expect_one("faccessat with AT_EACCESS", file, effective,
			   faccessat(AT_FDCWD, file, R_OK, AT_EACCESS));
		/* It is who it was. */
		expect_one("open", file, effective, open(file, O_RDONLY));
	}
}

static void set_capabilities(uint32_t effective, uint32_t permitted)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = effective, .permitted = permitted },
	};

	OK(syscall(SYS_capset, &head, data));
}

static void be(uid_t uid)
{
	OK(setresgid(uid, uid, uid));
	OK(setresuid(uid, uid, uid));
}

static void by_its_one_id(void)
{
	scene(1000, 1000, 0400);
	expect(true, true);
	be(1000);
	expect(true, true);
}

static void by_another_id(void)
{
	scene(1000, 1000, 0400);
	be(1001);
	expect(false, false);
}

static void for_a_user_by_root(void)
{
	scene(0, 0, 0400);
	OK(setresuid(1000, 0, 0));
	expect(false, true);
}

static void for_root_by_a_user(void)
{
	scene(0, 0, 0400);
	OK(setresuid(0, 1000, 0));
	expect(true, false);
}

static void by_the_real_group(void)
{
	scene(0, 50, 0040);
	OK(setgroups(0, NULL));
	OK(setresgid(1000, 50, 50));
	OK(setresuid(1000, 1000, 1000));
	expect(false, true);
}

static void without_a_users_capabilities(void)
{
	scene(0, 0, 0400);
	OK(prctl(PR_SET_KEEPCAPS, 1));
	be(1000);
	set_capabilities(1U << CAP_DAC_OVERRIDE, 1U << CAP_DAC_OVERRIDE);
	expect(false, true);
}

static void with_all_that_root_may_have(void)
{
	scene(1000, 1000, 0400);
	set_capabilities(0, 1U << CAP_DAC_OVERRIDE);
	expect(true, false);
}

static void with_no_more_than_root_may_have(void)
{
	scene(1000, 1000, 0400);
	set_capabilities(0, 0);
	expect(false, false);
}

/* Where ids do not decide on capabilities, a user's stay. */
static void with_capabilities_for_good(void)
{
	scene(0, 0, 0400);
	OK(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP));
	be(1000);
	set_capabilities(1U << CAP_DAC_OVERRIDE, 1U << CAP_DAC_OVERRIDE);
	expect(true, true);
}

/* Its root is a user outside, and root all the same. */
static void in_a_user_namespace(void)
{
	if (!there("/proc/self/uid_map"))
		return; /* this kernel has none */
	scene(1000, 1000, 0000);
	be(1000);
	OK(unshare(CLONE_NEWUSER));
	OK(prctl(PR_SET_DUMPABLE, 1)); /* who has changed ids may not write these */
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/uid_map", "0 1000 1");
	write_file("/proc/self/gid_map", "0 1000 1");
	EXPECT(getuid() == 0);
	expect(true, true);
	set_capabilities(0, 1U << CAP_DAC_OVERRIDE);
	expect(true, false);
}

const struct check smoke_access[] = {
	{ "access-own-file", by_its_one_id },
	{ "access-others-file", by_another_id },
	{ "access-real-user", for_a_user_by_root },
	{ "access-real-root", for_root_by_a_user },
	{ "access-real-group", by_the_real_group },
	{ "access-users-capabilities", without_a_users_capabilities },
	{ "access-roots-capabilities", with_all_that_root_may_have },
	{ "access-root-without", with_no_more_than_root_may_have },
	{ "access-no-setuid-fixup", with_capabilities_for_good },
	{ "access-user-namespace", in_a_user_namespace },
	{ 0 },
};
