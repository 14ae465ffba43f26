/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * args.c - the parameters of a run.
 *
 * A misspelt parameter that is silently ignored makes a wrong measurement
 * that looks right, so everything given must be known, and in its range.
 */
#include "args.h"

#include "report.h"
#include "sys.h"

#define MAX_ARGS 32

static struct {
	char *name, *value;
} given[MAX_ARGS];
static unsigned n_given;
static const struct workload *chosen;

/* What every workload understands. */
static const char *const common[] = {
	"run", "procs", "spare", "fifo", "calls", "dmesg", "hold", "lab",
};

void args_add(const char *name, const char *value)
{
	if (args_given(name))
		fail("%s is given twice", name);
	if (n_given == MAX_ARGS)
		fail("more than %d parameters", MAX_ARGS);
	given[n_given].name = strdup(name);
	given[n_given++].value = strdup(value);
}

void args_add_cmdline(const char *cmdline)
{
	char *copy = strdup(cmdline), *rest = NULL;

	for (char *word = strtok_r(copy, " \t\n", &rest); word;
	     word = strtok_r(NULL, " \t\n", &rest)) {
		char *equals = strchr(word, '=');

		if (strncmp(word, "ct.", 3) != 0)
			continue;
		if (!equals)
			fail("%s: there is no value; write %s=VALUE", word, word);
		*equals = '\0';
		args_add(word + 3, equals + 1);
	}
	free(copy);
}

const char *args_given(const char *name)
{
	for (unsigned i = 0; i < n_given; i++)
		if (!strcmp(given[i].name, name))
			return given[i].value;
	return NULL;
}

void args_each(void (*each)(const char *name, const char *value))
{
	for (unsigned i = 0; i < n_given; i++)
		each(given[i].name, given[i].value);
}

static bool parse_number(const char *text, const char **end, uint64_t *value)
{
	char *stop;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &stop, 10);
	*end = stop;
	return !errno;
}

static bool is_word(const char *words, const char *word)
{
	const size_t length = strlen(word);

	while (length) {
		const char *end = strchrnul(words, '|');

		if ((size_t)(end - words) == length &&
		    !strncmp(words, word, length))
			return true;
		if (!*end)
			break;
		words = end + 1;
	}
	return false;
}

static const struct param *find_param(const char *name)
{
	for (const struct param *p = chosen->params; p && p->name; p++)
		if (!strcmp(p->name, name))
			return p;
	return NULL;
}

static void check_value(const struct param *p, const char *value)
{
	const char *at = value;
	unsigned count = 0;
	uint64_t number;

	if (p->kind == PARAM_WORD) {
		if (!is_word(p->words, value))
			fail("%s=%s: %s must be one of %s", p->name, value,
			     p->name, p->words);
		return;
	}
	for (;;) {
		if (!parse_number(at, &at, &number) || number < p->min ||
		    number > p->max)
			break;
		count++;
		if (!*at && count <= MAX_SIZES)
			return;
		if (*at++ != '+' || p->kind != PARAM_SIZES)
			break;
	}
	if (p->kind == PARAM_SIZES)
		fail("%s=%s: %s must be up to %d numbers from %" PRIu64
		     " to %" PRIu64 " with + between them",
		     p->name, value, p->name, MAX_SIZES, p->min, p->max);
	fail("%s=%s: %s must be a number from %" PRIu64 " to %" PRIu64, p->name,
	     value, p->name, p->min, p->max);
}

/* " a, b, c" of the names that there are, for an error line. */
static void append_name(char *text, size_t size, const char *name)
{
	const size_t used = strlen(text);

	snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
}

static void unknown_param(const char *name)
{
	char names[512] = "";

	for (const struct param *p = chosen->params; p && p->name; p++)
		append_name(names, sizeof(names), p->name);
	for (size_t i = 1; i < ARRAY_SIZE(common); i++)
		append_name(names, sizeof(names), common[i]);
	fail("%s has no parameter %s; it has: %s", chosen->name, name, names);
}

const struct workload *args_check(void)
{
	static const struct param procs = {
		"procs", PARAM_NUMBER, "", 1, 8192, NULL, "",
	}, flag = { "dmesg", PARAM_NUMBER, "0", 0, 1, NULL, "" };
	const char *run = args_given("run");
	char names[1024] = "";

	if (!run)
		fail("no workload is named; give run=WORKLOAD, or run=list to see them");
	for (const struct workload *const *w = workloads; *w; w++) {
		append_name(names, sizeof(names), (*w)->name);
		if (!strcmp((*w)->name, run))
			chosen = *w;
	}
	if (!chosen)
		fail("there is no workload %s; there are: %s", run, names);
	for (unsigned i = 0; i < n_given; i++) {
		const struct param *p = find_param(given[i].name);
		bool known = false;

		for (size_t k = 0; k < ARRAY_SIZE(common); k++)
			known |= !strcmp(given[i].name, common[k]);
		if (!p && !known)
			unknown_param(given[i].name);
		if (p)
			check_value(p, given[i].value);
		else if (!strcmp(given[i].name, "procs"))
			check_value(&procs, given[i].value);
		else if (!strcmp(given[i].name, "dmesg") ||
			 !strcmp(given[i].name, "hold") ||
			 !strcmp(given[i].name, "fifo") ||
			 !strcmp(given[i].name, "spare"))
			check_value(&flag, given[i].value);
	}
	if (chosen->single && args_given("procs") &&
	    strcmp(args_given("procs"), "1") != 0)
		fail("%s is run by one process; leave procs out", chosen->name);
	return chosen;
}

static const char *value_of(const char *name, enum param_kind kind)
{
	const char *value = args_given(name);
	const struct param *p = find_param(name);

	if (!p || p->kind != kind)
		fail("%s asks for a parameter %s that its table lacks",
		     chosen->name, name);
	return value ? value : p->preset;
}

uint64_t arg_number(const char *name)
{
	return strtoull(value_of(name, PARAM_NUMBER), NULL, 10);
}

const char *arg_word(const char *name)
{
	return value_of(name, PARAM_WORD);
}

void arg_each_size(const char *name, void (*f)(void *size))
{
	const char *at = value_of(name, PARAM_SIZES);
	uint64_t parsed;

	for (unsigned n = 0; n < MAX_SIZES && parse_number(at, &at, &parsed); n++) {
		uint32_t size = (uint32_t)parsed;

		in_child(f, &size);
		if (*at++ != '+')
			break;
	}
}

bool arg_is_among(const char *name, uint64_t number)
{
	const char *at = value_of(name, PARAM_SIZES);
	uint64_t parsed = 0;

	while (parse_number(at, &at, &parsed) && parsed != number && *at == '+')
		at++;
	return parsed == number;
}

unsigned arg_procs(unsigned preset)
{
	const char *value = args_given("procs");

	return value ? (unsigned)strtoul(value, NULL, 10) : preset;
}

unsigned arg_spare(void)
{
	const char *value = args_given("spare");

	return value && !strcmp(value, "1") && online_cpus() > 1;
}

unsigned worker_cpus(void)
{
	return online_cpus() - arg_spare();
}
