/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sys.c - system calls that must succeed.
 */
#include "sys.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "report.h"

#define MAX_CPUS 1024

static const char *format_text(const char *format, va_list args)
{
	static char ring[8][PATH_MAX];
	static unsigned next;
	char *buffer = ring[next++ % ARRAY_SIZE(ring)];

	vsnprintf(buffer, sizeof(ring[0]), format, args);
	return buffer;
}

#define FORMATTED(path, format)                    \
	do {                                       \
		va_list args_;                     \
		va_start(args_, format);           \
		path = format_text(format, args_); \
		va_end(args_);                     \
	} while (0)

const char *text(const char *format, ...)
{
	const char *result;

	FORMATTED(result, format);
	return result;
}

void make_dir(const char *format, ...)
{
	const char *path;

	FORMATTED(path, format);
	if (mkdir(path, 0755))
		fail_errno("mkdir %s", path);
}

void make_file(const char *format, ...)
{
	const char *path;
	int fd;

	FORMATTED(path, format);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
	if (fd < 0)
		fail_errno("create %s", path);
	close(fd);
}

int open_file(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0)
		fail_errno("open %s", path);
	return fd;
}

void write_file(const char *path, const char *content)
{
	const size_t length = strlen(content);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		fail_errno("open %s for writing", path);
	if (write(fd, content, length) != (ssize_t)length)
		fail_errno("write to %s", path);
	close(fd);
}

ssize_t try_read_file(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;

	if (fd < 0)
		return -1;
	while (used < size - 1) {
		ssize_t n = read(fd, buffer + used, size - 1 - used);

		if (n < 0)
			fail_errno("read %s", path);
		if (!n)
			break;
		used += (size_t)n;
	}
	buffer[used] = '\0';
	close(fd);
	return (ssize_t)used;
}

size_t read_file(const char *path, char *buffer, size_t size)
{
	ssize_t n = try_read_file(path, buffer, size);

	if (n < 0)
		fail_errno("open %s", path);
	return (size_t)n;
}

void mount_fs(const char *type, const char *at, const char *options)
{
	if (mount(type, at, type, 0, options))
		fail_errno("mount a %s at %s", type, at);
}

void bind(const char *what, const char *at)
{
	if (mount(what, at, NULL, MS_BIND, NULL))
		fail_errno("bind %s to %s", what, at);
}

void propagation(const char *at, unsigned long how)
{
	if (mount(NULL, at, NULL, how, NULL))
		fail_errno("change the propagation of %s", at);
}

void unmount(const char *at, int flags)
{
	if (umount2(at, flags))
		fail_errno("unmount %s", at);
}

void own_namespace(void)
{
	if (unshare(CLONE_NEWNS))
		fail_errno("a mount namespace of our own (root is needed)");
	propagation("/", MS_REC | MS_PRIVATE);
	if (in_lab())
		mkdir(WORK, 0755);
	mount_fs("tmpfs", WORK, NULL);
}

void *shared_memory(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail_errno("%zu bytes of shared memory", bytes);
	/* Not in the measured region: the pages are there from now on. */
	memset(p, 0, bytes);
	return p;
}

void child_failed(const char *who, int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SAID)
		_exit(EXIT_SAID);
	if (WIFSIGNALED(status))
		fail("%s was killed by signal %d (%s)", who, WTERMSIG(status),
		     strsignal(WTERMSIG(status)));
	fail("%s ended with status %d", who, WEXITSTATUS(status));
}

pid_t fork_bound(void)
{
	const pid_t parent = getpid(), pid = fork();

	if (!pid && prctl(PR_SET_PDEATHSIG, SIGKILL))
		fail_errno("PR_SET_PDEATHSIG");
	if (!pid && getppid() != parent)
		_exit(1); /* it ended before that */
	return pid;
}

void in_child(void (*f)(void *arg), void *arg)
{
	int status;
	pid_t pid = fork_bound();

	if (pid < 0)
		fail_errno("fork");
	if (!pid) {
		f(arg);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail_errno("wait for a child");
	if (status)
		child_failed("a child process", status);
	/* What it leaves behind is freed after a grace period. */
	sleep_ms(100);
}

static int cpus[MAX_CPUS];
static unsigned n_cpus;

/*
 * Not sched_getaffinity(): CPUs that are isolated from the scheduler's
 * domains are not in init's mask, though a process may be pinned there.
 */
static void find_cpus(void)
{
	char list[512], *at = list;

	if (n_cpus)
		return;
	if (try_read_file("/sys/devices/system/cpu/online", list,
			  sizeof(list)) < 0) {
		cpus[n_cpus++] = 0; /* a uniprocessor kernel may lack the file */
		return;
	}
	while (*at >= '0' && *at <= '9') {
		long first = strtol(at, &at, 10), last = first;

		if (*at == '-')
			last = strtol(at + 1, &at, 10);
		for (long cpu = first; cpu <= last && n_cpus < MAX_CPUS; cpu++)
			cpus[n_cpus++] = (int)cpu;
		if (*at == ',')
			at++;
	}
	if (!n_cpus)
		fail("cannot read the list of online CPUs: %s", list);
}

unsigned online_cpus(void)
{
	find_cpus();
	return n_cpus;
}

int online_cpu(unsigned i)
{
	find_cpus();
	return cpus[i % n_cpus];
}

void pin_to(int cpu)
{
	cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
	const size_t size = CPU_ALLOC_SIZE(MAX_CPUS);

	CPU_ZERO_S(size, set);
	CPU_SET_S(cpu, size, set);
	if (sched_setaffinity(0, size, set))
		fail_errno("pin a process to CPU %d", cpu);
	CPU_FREE(set);
	if (sched_getcpu() != cpu)
		fail("a process that is pinned to CPU %d runs on CPU %d", cpu,
		     sched_getcpu());
}

uint64_t by_chance(uint64_t x)
{
	x = (x + 1) * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	return x >> 32;
}

void sleep_ms(unsigned ms)
{
	sleep_us(1000ull * ms);
}

void sleep_us(uint64_t us)
{
	struct timespec t = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static long futex(unsigned *word, int op, unsigned value)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

unsigned set_and_wake(unsigned *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	return (unsigned)futex(word, FUTEX_WAKE, INT_MAX);
}

void wait_until_set(unsigned *word)
{
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		futex(word, FUTEX_WAIT, 0);
}

uint64_t voluntary_waits(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		fail_errno("getrusage");
	return (uint64_t)usage.ru_nvcsw;
}

bool in_lab(void)
{
	char cmdline[4096];

	return try_read_file("/proc/cmdline", cmdline, sizeof(cmdline)) > 0 &&
	       (strstr(cmdline, " ct.") || !strncmp(cmdline, "ct.", 3));
}
