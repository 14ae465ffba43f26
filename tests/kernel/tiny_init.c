/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tiny_init.c - a guest that behaves, or misbehaves, as ct.how says.
 *
 * It speaks the lab's protocol and needs nothing else of the lab, so that the
 * host's side is tested by itself.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static char how[64] = "fine";
static int out, smoke;

static int is(const char *what)
{
	return !strcmp(how, what);
}

static void read_how(void)
{
	char line[4096] = "", *at;
	FILE *file;

	mkdir("/proc", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	file = fopen("/proc/cmdline", "r");
	if (file && fgets(line, sizeof(line), file)) {
		at = strstr(line, "ct.how=");
		if (at)
			sscanf(at, "ct.how=%63s", how);
		smoke = !!strstr(line, "ct.run=smoke");
	}
}

static void say_on_console(const char *text)
{
	int log = open("/dev/kmsg", O_WRONLY);
	char line[256];

	/* Not dprintf(): it seeks first, which this file refuses. */
	snprintf(line, sizeof(line), "<1>%s\n", text);
	if (write(log, line, strlen(line)) < 0)
		dprintf(out, "cannot write to the console\n");
	close(log);
}

static void open_results(void)
{
	struct termios t;

	out = open("/dev/ttyS1", O_RDWR | O_NOCTTY);
	tcgetattr(out, &t);
	cfmakeraw(&t);
	tcsetattr(out, TCSANOW, &t);
}

static void end(void)
{
	tcdrain(out);
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

/* glibc counts by /sys, which is not mounted. */
static int count_cpus(void)
{
	char line[256];
	int found = 0;
	FILE *file = fopen("/proc/cpuinfo", "r");

	while (file && fgets(line, sizeof(line), file))
		found += !strncmp(line, "processor", 9);
	return found;
}

static void count_loop(void)
{
	struct timespec a, b;
	volatile int sink = 0;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 1000000; i++)
		sink += i;
	clock_gettime(CLOCK_MONOTONIC, &b);
	dprintf(out,
		"{\"type\":\"result\",\"label\":\"\",\"size\":0,\"procs\":1,\"ops\":1000000,"
		"\"ns\":%lld}\n",
		(b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec);
}

int main(void)
{
	char byte = 0;

	mkdir("/dev", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	read_how();
	open_results();
	say_on_console("tiny_init is here");
	if (is("mute"))
		for (;;)
			pause();
	if (is("early-reset"))
		end();
	if (is("nonsense"))
		dprintf(out, "what?\n");
	if (is("no-hello"))
		dprintf(out, "{\"type\":\"bye\",\"status\":0}\n");
	dprintf(out, "{\"type\":\"hello\",\"abi\":%d,\"kernel\":\"test\",\"cpus\":%d}\n",
		is("old") ? 0 : 1, count_cpus());
	if (is("exit"))
		return 0;
	if (is("hang"))
		for (;;)
			pause();
	if (is("late-reset"))
		end();
	if (is("error"))
		dprintf(out, "{\"type\":\"error\",\"what\":\"no such workload\"}\n");
	if (is("flood"))
		for (int i = 0; i < 12000; i++)
			say_on_console("0123456789012345678901234567890123456789"
				       "0123456789012345678901234567890123456789");
	if (is("count"))
		count_loop();
	if (smoke)
		dprintf(out, "{\"type\":\"check\",\"name\":\"link\",\"ok\":true,\"detail\":\"\"}\n");
	if (is("splat"))
		say_on_console("WARNING: something is wrong");
	if (is("hold")) {
		dprintf(out, "{\"type\":\"hold\"}\n");
		if (read(out, &byte, 1) == 1)
			dprintf(out, "{\"type\":\"heard\",\"byte\":%d}\n", byte);
	}
	dprintf(out, "{\"type\":\"bye\",\"status\":%d}\n", is("error") || is("status"));
	end();
	return 0;
}
