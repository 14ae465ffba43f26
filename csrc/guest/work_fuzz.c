/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * work_fuzz.c - random operations from a seed, and a digest of what came of them.
 *
 * A hundred operations share a world: a process, a mount namespace and a tmpfs
 * of their own, which is the process's root. So worlds stay small, and one in
 * which two kernels differ is run again by itself, in words and with fewer and
 * fewer operations. What is compared: each operation's result and data, and
 * every twenty operations all names, types, modes, links, contents and mounts.
 */
#include "fuzz.h"

#include <dirent.h>
#include <sys/wait.h>

#include "args.h"
#include "mounts.h"
#include "report.h"
#include "sys.h"
#include "work.h"

#define WORLD_OPS 100
#define LOOK_EVERY 20
#define MAX_DEPTH 5
#define MAX_ENTRIES 1000
#define NOBODY 1000
#define NUMBERS 4096 /* mounts and peer groups that are renumbered */

static const struct param params[] = {
	{ "seed", PARAM_NUMBER, "1", 0, UINT32_MAX, NULL, "what all is drawn from" },
	{ "first", PARAM_NUMBER, "0", 0, 1000000, NULL, "the first world" },
	{ "worlds", PARAM_NUMBER, "100", 1, 1000000, NULL, "worlds of 100 operations" },
	{ "keep", PARAM_SIZES, "0", 0, WORLD_OPS - 1, NULL, "just these of a world's operations" },
	{ "log", PARAM_NUMBER, "0", 0, 1, NULL, "say what is done and what comes of it" },
	{ 0 },
};

static uint64_t digest;
static bool in_words;
static bool others; /* a namespace of somebody's own has one user only */

/* FNV-1a */
static void add(const char *s)
{
	do
		digest = (digest ^ (unsigned char)*s) * 0x100000001b3ull;
	while (*s++);
}

static void note(const char *what, const char *result)
{
	add(what);
	add(result);
	if (in_words)
		report_check(what, true, "%s", result);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void note_entry(const char *at, const struct stat *st)
{
	char content[64] = "";
	int fd;

	if (S_ISLNK(st->st_mode) && readlink(at, content, sizeof(content) - 1) < 0)
		fail_errno("readlink %s", at);
	if (S_ISREG(st->st_mode)) {
		fd = open(at, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || read(fd, content, sizeof(content) - 1) < 0)
			snprintf(content, sizeof(content), "%s", strerrorname_np(errno));
		if (fd >= 0)
			close(fd);
	}
	note(text("has %s", at), text("%o %lu %u %s", st->st_mode, (unsigned long)st->st_nlink,
				      st->st_uid, content));
}

static void note_tree(const char *at, unsigned depth, unsigned *left)
{
	char folder[256];
	struct dirent **found;
	int n;

	snprintf(folder, sizeof(folder), "%s", at);
	n = scandir(folder, &found, NULL, by_name);
	if (n < 0)
		note(text("list %s", folder), strerrorname_np(errno));
	for (int i = 0; i < n; i++) {
		const char *name = found[i]->d_name, *place = text("%s/%s", folder, name);
		struct stat st;

		if (*left && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
			--*left;
			if (lstat(place, &st)) {
				note(text("has %s", place), strerrorname_np(errno));
			} else {
				note_entry(place, &st);
				if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
					note_tree(text("%s/%s", folder, name), depth + 1, left);
			}
		}
		free(found[i]);
	}
	if (n >= 0)
		free(found);
}

/* Numbers that the kernel gives out, as they come up. */
struct numbers {
	unsigned n, seen[NUMBERS];
};

static unsigned renumbered(struct numbers *all, unsigned number)
{
	for (unsigned i = 0; i < all->n; i++)
		if (all->seen[i] == number)
			return i;
	if (all->n == NUMBERS)
		fail("more than %d mounts", NUMBERS);
	all->seen[all->n] = number;
	return all->n++;
}

static void note_mounts(void)
{
	static struct numbers mounts, peers;
	struct mountinfo *all;
	size_t n;

	fuzz_leave();
	all = mounts_read(&n);
	fuzz_enter();
	mounts.n = peers.n = 0;
	for (size_t i = 0; i < n; i++) {
		const struct mountinfo *m = &all[i];
		const char *on = text("mount %u on %u", renumbered(&mounts, (unsigned)m->id),
				      renumbered(&mounts, (unsigned)m->parent));
		char optional[128] = "", *rest = NULL;

		for (char *word = strtok_r(all[i].optional, " ", &rest); word;
		     word = strtok_r(NULL, " ", &rest)) {
			char *colon = strchr(word, ':');
			const size_t used = strlen(optional);

			if (colon)
				*colon = '\0';
			snprintf(optional + used, sizeof(optional) - used, " %s:%u", word,
				 colon ? renumbered(&peers, (unsigned)atoi(colon + 1)) : 0);
		}
		note(on, text("%s of %s at %s%s", m->root, m->type, m->at, optional));
	}
	free(all);
}

static bool kept(unsigned i)
{
	return !args_given("keep") || arg_is_among("keep", i);
}

static const struct fuzz_op *choose(void)
{
	unsigned all = 0, drawn;
	const struct fuzz_op *op;

	for (op = fuzz_ops; op->family; op++)
		all += op->weight;
	drawn = fuzz_below(all);
	for (op = fuzz_ops; drawn >= op->weight; op++)
		drawn -= op->weight;
	return op;
}

/* Somebody else, but for who really runs this; that is what access(2) asks for. */
static void become(uid_t who)
{
	if (seteuid(0) || setegid(who) || seteuid(who))
		fail_errno("become user %u", who);
}

static const char *operate(uint64_t number)
{
	const struct fuzz_op *op = choose();
	const bool other = !fuzz_below(6) && others;
	long result;
	int error;

	fuzz_did[0] = fuzz_got[0] = '\0';
	if (other)
		become(NOBODY);
	result = op->run();
	error = errno;
	if (other)
		become(0);
	note(text("%" PRIu64 " %s%s", number, other ? "user: " : "", fuzz_did),
	     result < 0 ? strerrorname_np(error) : text("%ld %s", result, fuzz_got));
	return result < 0 ? NULL : op->family;
}

static void world(uint64_t number, uint64_t seed)
{
	struct result result = { .label = "world", .size = number, .procs = 1 };

	own_namespace();
	umask(0);
	fuzz_open_world(WORK);
	fuzz_enter();
	fuzz_draw(seed, number * WORLD_OPS + (1ull << 40));
	fuzz_make_scene();
	digest = 0xcbf29ce484222325ull;
	for (unsigned i = 0; i < WORLD_OPS; i++) {
		const uint64_t op = number * WORLD_OPS + i;
		unsigned left = MAX_ENTRIES;

		if (kept(i)) {
			const char *done;

			fuzz_draw(seed, op);
			done = operate(op);
			result.ops++;
			if (done)
				count(&result, done, 1);
		}
		if ((i + 1) % LOOK_EVERY)
			continue;
		note_tree(".", 0, &left);
		note_mounts();
	}
	/* JSON's numbers are good for 53 bits in many readers. */
	count(&result, "digest", digest >> 11);
	report_result(&result);
}

static void run(void)
{
	const uint64_t first = arg_number("first"), end = first + arg_number("worlds");

	in_words = arg_number("log");
	others = in_lab();
	for (uint64_t number = first; number < end; number++) {
		int status;
		pid_t pid = fork();

		if (pid < 0)
			fail_errno("fork");
		if (!pid) {
			world(number, arg_number("seed"));
			_exit(0);
		}
		if (waitpid(pid, &status, 0) < 0)
			fail_errno("wait for a world");
		if (status)
			child_failed("a world", status);
	}
}

const struct workload work_fuzz = {
	"fuzz", "random operations from a seed, and what came of them", params, run, true,
};
