/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mounts.c - reading mountinfo, making many mounts, and the watch on them.
 */
#include "mounts.h"

#include "report.h"
#include "sys.h"

/* 36 25 0:20 ROOT AT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER_OPTIONS */
bool mounts_parse(const char *text, size_t length, struct mountinfo *m)
{
	char line[1024], *dash, *optional;
	int used = 0;

	if (!length || length >= sizeof(line))
		return false;
	memcpy(line, text, length);
	line[length] = '\0';
	memset(m, 0, sizeof(*m));
	if (sscanf(line, "%d %d %*d:%*d %127s %127s %*s%n", &m->id, &m->parent,
		   m->root, m->at, &used) != 4 || !used)
		return false;
	optional = line + used;
	dash = strstr(optional, " - ");
	if (!dash || sscanf(dash, " - %31s %*s %*s%n", m->type, &used) != 1)
		return false;
	*dash = '\0';
	snprintf(m->optional, sizeof(m->optional), "%s",
		 *optional == ' ' ? optional + 1 : optional);
	return true;
}

struct mountinfo *mounts_read(size_t *n)
{
	static const size_t size = 4 << 20;
	char *content = malloc(size), *at, *end;
	struct mountinfo *all = NULL;
	size_t space = 0;

	if (!content)
		fail("no memory for mountinfo");
	read_file("/proc/self/mountinfo", content, size);
	*n = 0;
	for (at = content; (end = strchr(at, '\n')); at = end + 1) {
		if (*n == space) {
			space = space ? space * 2 : 64;
			all = realloc(all, space * sizeof(*all));
			if (!all)
				fail("no memory for mountinfo");
		}
		if (!mounts_parse(at, (size_t)(end - at), &all[(*n)++]))
			fail("mountinfo has a line that is none: %.*s",
			     (int)(end - at), at);
	}
	if (*at)
		fail("mountinfo ends within a line: %s", at);
	free(content);
	return all;
}

const struct mountinfo *mounts_find(const struct mountinfo *all, size_t n,
				    const char *at)
{
	while (n--)
		if (!strcmp(all[n].at, at))
			return &all[n];
	return NULL;
}

static size_t count_mounts(const char *at, bool below, bool prefix)
{
	const size_t length = strlen(at);
	size_t n, found = 0;
	struct mountinfo *all = mounts_read(&n);

	for (size_t i = 0; i < n; i++) {
		if (prefix)
			found += !strncmp(all[i].at, at, length);
		else if (below)
			found += !strncmp(all[i].at, at, length) &&
				 all[i].at[length] == '/';
		else
			found += !strcmp(all[i].at, at);
	}
	free(all);
	return found;
}

size_t mounts_count(const char *at)
{
	return count_mounts(at, false, false);
}

size_t mounts_below(const char *at)
{
	return count_mounts(at, true, false);
}

size_t mounts_prefixed(const char *prefix)
{
	return count_mounts(prefix, false, true);
}

void mounts_make_dirs(uint32_t n)
{
	make_dir(WORK "/t");
	make_dir(WORK "/what");
	for (uint32_t i = 0; i < n; i++)
		make_dir(WORK "/t/%u", i);
}

void mounts_make_one(uint32_t i)
{
	char path[64];

	snprintf(path, sizeof(path), WORK "/t/%u", i);
	bind(WORK "/what", path);
}

#define WATCH "/sys/module/rcupdate/parameters/mounts_%s"

long mounts_watched(const char *what)
{
	char content[32];

	if (try_read_file(text(WATCH, what), content, sizeof(content)) < 0)
		return -1;
	return atol(content);
}

void mounts_have_watch(const char *what, long value)
{
	write_file(text(WATCH, what), text("%ld", value));
}

void mounts_report_watch(void)
{
	static const char *const wrong[] = { "not_put", "put_early", "put_in_softirq" };
	struct result result = { .label = "watch", .procs = 1, .ops = 1 };
	long left = 0;

	if (mounts_watched("unhooked") < 0)
		return;
	for (unsigned i = 0; i < 30; i++) {
		sleep_ms(100);
		left = mounts_watched("unhooked") - mounts_watched("put");
		if (!left)
			break;
	}
	count(&result, "unhooked", (uint64_t)mounts_watched("unhooked"));
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		const uint64_t n = i ? (uint64_t)mounts_watched(wrong[i]) :
				   left > 0 ? (uint64_t)left : 0;

		count(&result, wrong[i], n);
		count(&result, "wrong", n);
	}
	report_result(&result);
}
