/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * report.c - JSON lines to the host.
 *
 * A line is put together in memory and written at once, so that lines of
 * different processes do not mix.
 */
#include "report.h"

#include <sys/klog.h>
#include <sys/reboot.h>
#include <sys/utsname.h>
#include <termios.h>

#include "args.h"
#include "sys.h"

#define CLOCKSOURCE \
	"/sys/devices/system/clocksource/clocksource0/current_clocksource"

static int out = STDOUT_FILENO;
static pid_t init; /* our pid, if we are init */

struct line {
	char *text;
	size_t used, size;
	bool comma; /* something stands before in this object */
};

static void put_bytes(struct line *l, const char *bytes, size_t n)
{
	if (l->used + n + 1 > l->size) {
		l->size = (l->used + n + 1) * 2;
		l->text = realloc(l->text, l->size);
		if (!l->text)
			abort();
	}
	memcpy(l->text + l->used, bytes, n);
	l->used += n;
	l->text[l->used] = '\0';
}

static void put(struct line *l, const char *s)
{
	put_bytes(l, s, strlen(s));
}

/*
 * Any bytes as a JSON string in ASCII. Bytes from 128 up become the character
 * of that number (Latin-1), so that a line is valid whatever it carries.
 */
static void put_string(struct line *l, const char *s)
{
	put(l, "\"");
	for (; *s; s++) {
		const unsigned char c = (unsigned char)*s;
		char escape[8];

		if (c == '"' || c == '\\')
			snprintf(escape, sizeof(escape), "\\%c", c);
		else if (c == '\n')
			snprintf(escape, sizeof(escape), "\\n");
		else if (c < 32 || c >= 127)
			snprintf(escape, sizeof(escape), "\\u%04x", c);
		else
			snprintf(escape, sizeof(escape), "%c", c);
		put(l, escape);
	}
	put(l, "\"");
}

static void put_key(struct line *l, const char *key)
{
	put(l, l->comma ? "," : "");
	put_string(l, key);
	put(l, ":");
	l->comma = true;
}

static void put_text(struct line *l, const char *key, const char *value)
{
	put_key(l, key);
	put_string(l, value);
}

static void put_number(struct line *l, const char *key, uint64_t value)
{
	char digits[24];

	put_key(l, key);
	snprintf(digits, sizeof(digits), "%" PRIu64, value);
	put(l, digits);
}

static void put_begin(struct line *l, const char *key)
{
	if (key)
		put_key(l, key);
	put(l, "{");
	l->comma = false;
}

static void put_end(struct line *l)
{
	put(l, "}");
	l->comma = true;
}

static void begin(struct line *l, const char *type)
{
	memset(l, 0, sizeof(*l));
	put_begin(l, NULL);
	put_text(l, "type", type);
}

static void send_line(struct line *l)
{
	size_t sent = 0;

	put(l, "}\n");
	while (sent < l->used) {
		ssize_t n = write(out, l->text + sent, l->used - sent);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break; /* nobody is left to tell */
		sent += (size_t)n;
	}
	free(l->text);
}

void report_to(int fd)
{
	struct termios t;

	out = fd;
	if (tcgetattr(fd, &t))
		return;
	/* Neither echo what the host sends nor turn \n into \r\n. */
	cfmakeraw(&t);
	t.c_cflag |= CLOCAL;
	cfsetspeed(&t, B115200);
	if (tcsetattr(fd, TCSANOW, &t))
		fail_errno("set up the serial port");
}

/* The GNU build id among the ELF notes of the running kernel, in hex. */
static void find_build_id(char *hex, size_t size)
{
	uint32_t note[4096 / 4];
	const char *path = "/sys/kernel/notes";
	size_t used, at = 0;

	hex[0] = '\0';
	ssize_t got = try_read_file(path, (char *)note, sizeof(note));

	if (got < 0)
		return;
	used = (size_t)got / 4;
	while (at + 3 <= used) {
		const uint32_t name = note[at], bytes = note[at + 1];
		const size_t desc = at + 3 + (name + 3) / 4;
		const size_t next = desc + (bytes + 3) / 4;

		if (name > 64 || bytes > sizeof(note) || next > used)
			return;
		if (note[at + 2] == 3 && name == 4 &&
		    !memcmp(&note[at + 3], "GNU", 4)) {
			const unsigned char *id = (unsigned char *)&note[desc];

			for (uint32_t i = 0; i < bytes && 2 * i + 2 < size; i++)
				snprintf(hex + (size_t)i * 2, 3, "%02x", id[i]);
			return;
		}
		at = next;
	}
}

static struct line *hello_line;

static void put_arg(const char *name, const char *value)
{
	put_text(hello_line, name, value);
}

void report_hello(void)
{
	struct utsname u;
	struct line l;
	char id[128], clock[64];

	if (uname(&u))
		fail_errno("uname");
	find_build_id(id, sizeof(id));
	begin(&l, "hello");
	put_number(&l, "abi", GUEST_ABI);
	put_text(&l, "kernel", u.release);
	put_text(&l, "build_id", id);
	put_number(&l, "cpus", online_cpus());
	/* With another one than the TSC, nanoseconds are coarse here. */
	if (try_read_file(CLOCKSOURCE, clock, sizeof(clock)) < 0)
		clock[0] = '\0';
	clock[strcspn(clock, "\n")] = '\0';
	put_text(&l, "clocksource", clock);
	put_begin(&l, "args");
	hello_line = &l;
	args_each(put_arg);
	put_end(&l);
	send_line(&l);
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest latency that p percent of all do not exceed. */
static uint64_t percentile(const uint64_t *sorted, size_t n, unsigned p)
{
	const size_t rank = (n * p + 99) / 100;

	return sorted[rank ? rank - 1 : 0];
}

static void put_tallies(struct line *l, const char *key,
			const struct tally *tallies, unsigned n)
{
	put_begin(l, key);
	for (unsigned i = 0; i < n; i++)
		put_number(l, tallies[i].name, tallies[i].value);
	put_end(l);
}

void report_result(struct result *r)
{
	struct line l;

	begin(&l, "result");
	put_text(&l, "label", r->label ? r->label : "");
	put_number(&l, "size", r->size);
	put_number(&l, "procs", r->procs);
	put_number(&l, "ops", r->ops);
	put_number(&l, "ns", r->ns);
	put_tallies(&l, "calls", r->calls, r->n_calls);
	put_tallies(&l, "counts", r->counts, r->n_counts);
	if (r->n_latency) {
		const uint64_t *sorted = r->latency;
		const size_t n = r->n_latency;

		uint64_t sum = 0;

		qsort(r->latency, n, sizeof(*r->latency), compare);
		for (size_t i = 0; i < n; i++)
			sum += sorted[i];
		put_begin(&l, "latency_ns");
		put_number(&l, "mean", sum / n);
		put_number(&l, "p50", percentile(sorted, n, 50));
		put_number(&l, "p90", percentile(sorted, n, 90));
		put_number(&l, "p99", percentile(sorted, n, 99));
		put_number(&l, "max", sorted[n - 1]);
		put_end(&l);
	}
	send_line(&l);
	free(r->latency);
	r->latency = NULL;
	r->n_latency = 0;
}

void report_check(const char *name, bool ok, const char *format, ...)
{
	char detail[1024];
	struct line l;
	va_list args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	begin(&l, "check");
	put_text(&l, "name", name);
	put_key(&l, "ok");
	put(&l, ok ? "true" : "false");
	put_text(&l, "detail", detail);
	send_line(&l);
}

void report_about(const char *name, const char *help, const char *params)
{
	struct line l;

	begin(&l, "workload");
	put_text(&l, "name", name);
	put_text(&l, "help", help);
	put_text(&l, "params", params);
	send_line(&l);
}

void report_dmesg(void)
{
	enum { READ_ALL = 3, SIZE = 10 };
	int size = klogctl(SIZE, NULL, 0), n;
	struct line l;
	char *log;

	if (size < 0)
		fail_errno("ask for the size of the kernel log");
	log = malloc((size_t)size + 1);
	if (!log)
		fail("no memory for the kernel log");
	n = klogctl(READ_ALL, log, size);
	if (n < 0)
		fail_errno("read the kernel log");
	log[n] = '\0';
	begin(&l, "dmesg");
	put_text(&l, "text", log);
	send_line(&l);
	free(log);
}

/* Wait until everything has left the machine. */
static void drain(void)
{
	if (isatty(out))
		tcdrain(out);
}

void report_hold(void)
{
	struct line l;
	char byte;

	begin(&l, "hold");
	send_line(&l);
	drain();
	while (read(out, &byte, 1) < 0 && errno == EINTR)
		;
}

void report_is_init(void)
{
	init = getpid();
}

void report_end(int status)
{
	struct line l;

	begin(&l, "bye");
	put_number(&l, "status", (uint64_t)status);
	send_line(&l);
	drain();
	sync();
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

void count(struct result *r, const char *name, uint64_t value)
{
	for (unsigned i = 0; i < r->n_counts; i++)
		if (!strcmp(r->counts[i].name, name)) {
			r->counts[i].value += value;
			return;
		}
	if (r->n_counts == MAX_COUNTS)
		fail("more than %d counts in one result", MAX_COUNTS);
	r->counts[r->n_counts++] = (struct tally){ name, value };
}

static void (*tell_failure)(const char *what);

void report_failures_to(void (*tell)(const char *what))
{
	tell_failure = tell;
}

static void send_error(const char *format, va_list args, const char *reason)
{
	char what[2048];
	struct line l;
	int n = vsnprintf(what, sizeof(what), format, args);

	if (reason && n >= 0 && (size_t)n < sizeof(what))
		snprintf(what + n, sizeof(what) - (size_t)n, ": %s", reason);
	/* Whatever was quoted in it, it is one line. */
	for (char *c = what; *c; c++)
		if (*c == '\n')
			*c = ' ';
	if (tell_failure) {
		tell_failure(what);
		return;
	}
	begin(&l, "error");
	put_text(&l, "what", what);
	send_line(&l);
}

_Noreturn static void leave(void)
{
	if (init == getpid())
		report_end(1);
	_exit(EXIT_SAID);
}

void report_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	send_error(format, args, NULL);
	va_end(args);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	send_error(format, args, NULL);
	va_end(args);
	leave();
}

void fail_errno(const char *format, ...)
{
	const char *reason = strerror(errno);
	va_list args;

	va_start(args, format);
	send_error(format, args, reason);
	va_end(args);
	leave();
}
