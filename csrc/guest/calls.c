/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * calls.c - counting calls with the kernel's function profiler.
 *
 * The profiler counts whatever ftrace's filter lets through, for each CPU
 * apart. It counts exactly, unlike a sampling profiler, and costs time: what
 * is measured with it on is counts, not nanoseconds. Few functions should be
 * asked for at a time: each one's code is patched when a region begins. Not one
 * that interrupts call, such as _raw_spin_lock: an emulated processor that runs
 * it while it is patched may see half of the change, and panic.
 *
 * gcc renames a static function that it specialises (f.constprop.0,
 * f.isra.0): where f itself is gone, these are counted as f.
 */
#include "calls.h"

#include <fnmatch.h>

#include "sys.h"

#define TRACING "/sys/kernel/tracing"
#define SHOWN 30 /* characters of a name that trace_stat shows */
#define LIST_BYTES (8u << 20)

static struct {
	const char *asked;
	unsigned found;
} wanted[MAX_CALLS];
static unsigned n_wanted;

/* Functions of the kernel that are counted, and for which of the above. */
static struct {
	char *name;
	unsigned wanted;
} functions[512];
static unsigned n_functions;

static char *list; /* of all traceable functions, a line each */
static int enable_fd = -1;

static void take(unsigned w, const char *name)
{
	for (unsigned i = 0; i < n_functions; i++) {
		if (strncmp(functions[i].name, name, SHOWN) != 0)
			continue;
		if (!strcmp(functions[i].name, name) && functions[i].wanted == w)
			return; /* static functions of one name */
		fail("calls: the profiler cannot tell %s from %s; ask for one of them",
		     name, functions[i].name);
	}
	if (n_functions == ARRAY_SIZE(functions))
		fail("calls: %s matches too many functions", wanted[w].asked);
	functions[n_functions].name = strdup(name);
	functions[n_functions++].wanted = w;
	wanted[w].found++;
}

static void look_up(unsigned w, const char *pattern)
{
	char name[256];

	for (const char *at = list, *end; *at; at = end + !!*end) {
		size_t length;

		end = strchrnul(at, '\n');
		/* A function of a module has the module behind it. */
		length = strcspn(at, " \n");
		if (length >= sizeof(name))
			continue;
		memcpy(name, at, length);
		name[length] = '\0';
		if (!fnmatch(pattern, name, 0))
			take(w, name);
	}
}

static bool want(const char *name)
{
	char variant[256];

	if (n_wanted == MAX_CALLS)
		fail("calls: more than %d functions", MAX_CALLS);
	wanted[n_wanted].asked = name;
	wanted[n_wanted].found = 0;
	look_up(n_wanted, name);
	if (!wanted[n_wanted].found) {
		snprintf(variant, sizeof(variant), "%s.*", name);
		look_up(n_wanted, variant);
	}
	if (!wanted[n_wanted].found)
		return false;
	n_wanted++;
	return true;
}

/*
 * Without the graph tracer the profiler does not heed the filter: it would
 * patch and count every function of the kernel.
 */
static bool filters(void)
{
	char tracers[256];

	read_file(TRACING "/available_tracers", tracers, sizeof(tracers));
	return strstr(tracers, "function_graph");
}

/* False where there is no profiler. */
static bool read_list(void)
{
	const char *enabled = TRACING "/function_profile_enabled";

	/* Under a shell nobody may have mounted it yet. */
	if (access(enabled, W_OK))
		mount("tracefs", TRACING, "tracefs", 0, NULL);
	if (access(enabled, W_OK))
		return false;
	if (!filters())
		fail("calls: this kernel would count all functions at once; it needs CONFIG_FUNCTION_GRAPH_TRACER");
	list = malloc(LIST_BYTES);
	if (!list)
		fail("no memory for the list of functions");
	read_file(TRACING "/available_filter_functions", list, LIST_BYTES);
	return true;
}

static void set_filter(void)
{
	int fd = open_file(TRACING "/set_ftrace_filter", O_WRONLY | O_TRUNC);

	free(list);
	list = NULL;
	for (unsigned i = 0; i < n_functions; i++) {
		const char *line = text("%s\n", functions[i].name);

		if (write(fd, line, strlen(line)) != (ssize_t)strlen(line))
			fail_errno("calls: filter for %s", functions[i].name);
	}
	if (close(fd))
		fail_errno("calls: set the filter");
	enable_fd = open_file(TRACING "/function_profile_enabled", O_WRONLY);
}

void calls_setup(const char *names)
{
	char *rest = NULL;

	if (!in_lab())
		fail("calls are counted in lab kernels only (ct.lab=1 on the kernel's command line)");
	if (!read_list())
		fail("calls: this kernel has no function profiler (CONFIG_FUNCTION_PROFILER)");
	for (char *name = strtok_r(strdup(names), ",", &rest); name;
	     name = strtok_r(NULL, ",", &rest))
		if (!want(name))
			fail("calls: this kernel has no traceable function %s (gcc may have inlined it)",
			     name);
	if (!n_wanted)
		fail("calls: no function is named");
	set_filter();
}

bool calls_preset(const char *const *names)
{
	if (calls_wanted())
		return true;
	if (!in_lab() || !read_list())
		return false;
	for (; *names; names++)
		want(*names);
	if (n_wanted)
		set_filter();
	return n_wanted;
}

bool calls_wanted(void)
{
	return n_wanted;
}

static void enable(const char *value)
{
	if (enable_fd >= 0 && pwrite(enable_fd, value, 1, 0) != 1)
		fail_errno("calls: write %s to function_profile_enabled", value);
}

void calls_on(void)
{
	enable("1");
}

void calls_off(void)
{
	enable("0");
}

static struct tally *tally_of(struct result *r, const char *name)
{
	for (unsigned i = 0; i < r->n_calls; i++)
		if (!strcmp(r->calls[i].name, name))
			return &r->calls[i];
	r->calls[r->n_calls] = (struct tally){ name, 0 };
	return &r->calls[r->n_calls++];
}

static void collect_cpu(struct result *result, int cpu)
{
	const char *path = text(TRACING "/trace_stat/function%d", cpu);
	char line[512], name[256];
	unsigned long hits;
	FILE *f = fopen(path, "r");

	if (!f)
		fail_errno("open %s", path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %255s %lu", name, &hits) != 2)
			continue; /* the heading */
		for (unsigned i = 0; i < n_functions; i++)
			if (!strncmp(functions[i].name, name, SHOWN))
				tally_of(result, wanted[functions[i].wanted].asked)
					->value += hits;
	}
	fclose(f);
}

void calls_collect(struct result *result, unsigned first_cpu)
{
	/* A function that was not called has no line: it is zero. */
	for (unsigned w = 0; w < n_wanted; w++)
		tally_of(result, wanted[w].asked);
	if (n_wanted)
		for (unsigned i = first_cpu; i < online_cpus(); i++)
			collect_cpu(result, online_cpu(i));
}

void calls_done(void)
{
	if (enable_fd < 0)
		return;
	calls_off();
	close(enable_fd);
	enable_fd = -1;
	close(open_file(TRACING "/set_ftrace_filter", O_WRONLY | O_TRUNC));
}
