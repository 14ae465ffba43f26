/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_mountinfo.c - reading mountinfo end to end, a little at a time.
 *
 * With a buffer that is smaller than a line, each read() makes the kernel
 * find its place in the list again, about once for each mount. What was read
 * is checked after the region: each mount must be there once. Some that were
 * read already may go halfway; of those the check does not speak. With moves=1
 * there is an event before each read that leaves the list as it is.
 */
#include "args.h"
#include "gate.h"
#include "mounts.h"
#include "sys.h"
#include "work.h"

#define PREFIX WORK "/t/"

enum { READS, RECORDS, BYTES, MISSING, DUPLICATE };

static const struct param params[] = {
	{ "sizes", PARAM_SIZES, "250+500+1000+2000", 1, 100000, NULL,
	  "how many mounts, each in a namespace of its own" },
	{ "chunk", PARAM_NUMBER, "32", 1, 1048576, NULL,
	  "bytes of a read; a line has about 60" },
	{ "ops", PARAM_NUMBER, "1", 1, 1000, NULL, "passes over the file" },
	{ "go", PARAM_NUMBER, "0", 0, 100000, NULL,
	  "mounts, of the first that were read, that go halfway through a pass" },
	{ "moves", PARAM_NUMBER, "0", 0, 1, NULL,
	  "1: a mount moves elsewhere before each read" },
	{ 0 },
};

static uint32_t size, gone;
static const char *const between[] = { WORK "/here", WORK "/there" };
static size_t chunk, space;
static int file;
static bool moving;

static void prepare(struct worker *w)
{
	space = (size_t)(size + 64) * 128 + chunk;
	w->pointer = malloc(space);
	if (!w->pointer)
		fail("no memory for what is read");
	memset(w->pointer, 0, space);
	file = open_file("/proc/self/mountinfo", O_RDONLY);
}

static void op(struct worker *w, uint64_t i)
{
	char *content = w->pointer;
	size_t used = 0;
	ssize_t n;

	if (i && lseek(file, 0, SEEK_SET))
		fail_errno("rewind mountinfo");
	do {
		if (used + chunk > space)
			fail("mountinfo is longer than %zu bytes", space);
		if (moving &&
		    mount(between[w->count[READS] % 2],
			  between[(w->count[READS] + 1) % 2], NULL, MS_MOVE, NULL))
			fail_errno("move a mount");
		n = read(file, content + used, chunk);
		if (n < 0)
			fail_errno("read mountinfo");
		used += (size_t)n;
		w->count[READS]++;
		for (; gone < arg_number("go") && used > size * 30; gone++)
			if (umount2(text(PREFIX "%u", gone), 0))
				fail_errno("umount %u", gone);
	} while (n);
	w->count[BYTES] += used;
	w->local[0] = used;
}

/* Look at the last pass. */
static void finish(struct worker *w)
{
	const char *at = w->pointer, *stop = at + w->local[0], *end;
	unsigned char *seen = calloc(size, 1);

	if (!seen)
		fail("no memory for the check");
	for (; at < stop; at = end + 1) {
		struct mountinfo m;
		unsigned long i;

		end = memchr(at, '\n', (size_t)(stop - at));
		if (!end || !mounts_parse(at, (size_t)(end - at), &m))
			fail("a line of mountinfo is torn");
		if (strncmp(m.at, PREFIX, strlen(PREFIX)) != 0)
			continue;
		i = strtoul(m.at + strlen(PREFIX), NULL, 10);
		w->count[RECORDS]++;
		if (i >= size || seen[i]++)
			w->count[DUPLICATE]++;
	}
	for (uint32_t i = gone; i < size; i++)
		w->count[MISSING] += !seen[i];
	free(seen);
}

static void run_size(void *arg)
{
	const struct gate gate = {
		.procs = 1,
		.ops = arg_number("ops"),
		.prepare = prepare,
		.op = op,
		.finish = finish,
		.counts = { "reads", "records", "bytes", "missing", "duplicate" },
	};
	struct result result = { 0 };

	size = *(uint32_t *)arg;
	result.size = size;
	result.label = strdup(text("%u", size));
	chunk = arg_number("chunk");
	own_namespace();
	mounts_make_dirs(size);
	for (uint32_t i = 0; i < size; i++)
		mounts_make_one(i);
	moving = arg_number("moves");
	if (moving) {
		make_dir("%s", between[0]);
		make_dir("%s", between[1]);
		bind(WORK "/what", between[0]);
	}
	gate_run(&gate, &result);
	report_result(&result);
}

static void run(void)
{
	arg_each_size("sizes", run_size);
}

const struct workload work_mountinfo = {
	"mountinfo", "reading mountinfo end to end with short reads", params, run,
	true,
};
