/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * shell.c - a few commands on the console, where there is no real shell.
 *
 * The initramfs contains this program and nothing else. To run workloads by
 * hand and look around it is enough; if there is a /bin/sh, that is taken.
 */
#include "shell.h"

#include <dirent.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/wait.h>

#include "guest.h"
#include "sys.h"

#define MAX_WORDS 32
#define CONSOLE "/dev/ttyS0"

static const char help[] =
	"  list                       the workloads, as JSON lines\n"
	"  WORKLOAD [NAME=VALUE...]   run one; its results come as JSON lines\n"
	"  cat FILE | ls [DIR] | write FILE TEXT | exit\n";

static void cat(const char *path)
{
	char buffer[4096];
	ssize_t n;
	int fd = open(path, O_RDONLY);

	if (fd < 0) {
		printf("%s: %s\n", path, strerror(errno));
		return;
	}
	while ((n = read(fd, buffer, sizeof(buffer))) > 0)
		fwrite(buffer, 1, (size_t)n, stdout);
	if (n < 0)
		printf("%s: %s\n", path, strerror(errno));
	close(fd);
}

static void ls(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	if (!dir) {
		printf("%s: %s\n", path, strerror(errno));
		return;
	}
	while ((e = readdir(dir)))
		printf("%s\n", e->d_name);
	closedir(dir);
}

static void put(const char *path, const char *content)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0644);

	if (fd < 0 || write(fd, content, strlen(content)) < 0)
		printf("%s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

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

/* Wait for that child; as pid 1 we may get others as well. */
static void start(const char *program, char **argv)
{
	pid_t pid = fork(), ended;

	if (!pid) {
		take_console();
		execv(program, argv);
		printf("%s: %s\n", program, strerror(errno));
		_exit(1);
	}
	do {
		ended = waitpid(-1, NULL, 0);
	} while (ended != pid && (ended > 0 || errno == EINTR));
}

static void run_line(char **words, unsigned n)
{
	/* argv[0] is not "/init": so it is a command, and no second init. */
	char *argv[MAX_WORDS + 2] = { "ct" };

	if (!strcmp(words[0], "help"))
		fputs(help, stdout);
	else if (!strcmp(words[0], "cat") && n == 2)
		cat(words[1]);
	else if (!strcmp(words[0], "ls") && n <= 2)
		ls(n == 2 ? words[1] : "/");
	else if (!strcmp(words[0], "write") && n == 3)
		put(words[1], words[2]);
	else {
		memcpy(argv + 1, words, n * sizeof(*words));
		start("/proc/self/exe", argv);
	}
}

/* What busybox's reboot, halt and poweroff send to init. */
static void end(int signal)
{
	(void)signal;
	reboot(RB_AUTOBOOT);
}

void shell(void)
{
	char line[1024];

	signal(SIGTERM, end);
	signal(SIGUSR1, end);
	signal(SIGUSR2, end);
	setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin", 1);
	if (!access("/bin/sh", X_OK)) {
		start("/bin/sh", (char *[]){ "sh", NULL });
		return;
	}
	printf("\nA lab kernel. \"help\" says what there is.\n");
	for (;;) {
		char *words[MAX_WORDS], *rest = NULL;
		unsigned n = 0;

		printf("# ");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return;
		for (char *word = strtok_r(line, " \t\r\n", &rest);
		     word && n < MAX_WORDS; word = strtok_r(NULL, " \t\r\n", &rest))
			words[n++] = word;
		if (n && !strcmp(words[0], "exit"))
			return;
		if (n)
			run_line(words, n);
	}
}
