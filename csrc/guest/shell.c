/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * shell.c - busybox's shell on the console; it is in the initramfs if a reader
 * asked for a shell, and runs a script if there is one beside it.
 */
#include "shell.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <termios.h>

#include "guest.h"
#include "sys.h"

#define CONSOLE "/dev/ttyS0"
#define SHELL "/bin/sh"
#define SCRIPT "/script"

/* In a session of its own with the console, so that Ctrl-C is for it. */
static void take_console(void)
{
	int fd;

	setsid();
	fd = open(CONSOLE, O_RDWR);
	if (fd < 0)
		return;
	ioctl(fd, TIOCSCTTY, 1);
	for (int i = 0; i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
}

/* What busybox's reboot, halt and poweroff send to init. */
static void end(int signal)
{
	(void)signal;
	reboot(RB_AUTOBOOT);
}

void shell(void)
{
	pid_t pid, ended;
	int fd;

	signal(SIGTERM, end);
	signal(SIGUSR1, end);
	signal(SIGUSR2, end);
	setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin", 1);
	pid = fork();
	if (!pid) {
		take_console();
		execl(SHELL, "sh", access(SCRIPT, R_OK) ? NULL : SCRIPT, NULL);
		printf("%s: %s\n", SHELL, strerror(errno));
		_exit(1);
	}
	/* Wait for that child; as pid 1 we may get others as well. */
	do {
		ended = waitpid(-1, NULL, 0);
	} while (ended != pid && (ended > 0 || errno == EINTR));
	/* What it has said last is heard before the machine ends. */
	fd = open(CONSOLE, O_RDWR | O_NOCTTY);
	if (fd >= 0) {
		tcdrain(fd);
		close(fd);
	}
}
