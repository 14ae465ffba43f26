/* SPDX-License-Identifier: MIT */
/*
 * sim.c - other CPUs that act exactly when they are told to.
 *
 *   sim script get|put COUNT LOOKS TURNS [WHEN:WHAT]...
 *
 * One call, and others who act just before the access number WHEN (looks and
 * swaps are accesses, counted from 1) or, if WHEN is "line", while the call
 * stands in line for the lock; 0 is before the call:
 *
 *   hold   somebody takes the lock        pass   the holder leaves, another comes
 *   drop   the holder leaves              dead   the object dies
 *   +N -N  somebody changes the count, by swap or under the lock
 *   @N     N tickets have been drawn, and given back, before
 *
 *   sim cpus CPUS OPS LOOKS TURNS EVERY HOLD SEED
 *
 * As many CPUs, of which one drawn by lot makes one access at a time. Each
 * gets and puts OPS references in each of three phases: calm; perturbed, where
 * each also takes the lock for HOLD steps once in EVERY operations; and after,
 * unperturbed again. There is no time here and no chance, so the same
 * arguments give the same counts on every machine.
 *
 *   sim batch
 *
 * Each line of the standard input is a call of one of the two kinds above,
 * made in a process of its own; one line is printed for each.
 *
 * The lockref that lockref.c is given is a handle: there is no memory behind
 * it, and our own variables are where no address of its code or ours leads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "lockref.h"

#define HIDDEN static _Thread_local
#define MAX_CPUS 64
#define STACK 65536
#define PHASES 3
#define LINE 4096
#define MAX_WORDS 200
#define ENDLESS 20000000 /* accesses */

HIDDEN struct lockref *handle;
HIDDEN uint64_t word; /* the lockref */
HIDDEN uint64_t accesses, looks, failed, swaps, locks, before_lock;
HIDDEN char fault[200];

static void wrong(const char *what)
{
	if (!fault[0])
		snprintf(fault, sizeof(fault), "%s", what);
}

/* --- A script --------------------------------------------------------------- */

HIDDEN char **events;
HIDDEN int n_events;
HIDDEN bool scripted;

static void draw_ticket(void)
{
	const uint64_t next = (word >> 16 & 0xffff) + 1;

	word = (word & ~0xffff0000ull) | (next & 0xffff) << 16;
}

static void next_turn(void)
{
	word = (word & ~0xffffull) | (uint16_t)(word + 1);
}

static void act(const char *what)
{
	if (!strcmp(what, "hold") || !strcmp(what, "pass"))
		draw_ticket();
	if (!strcmp(what, "drop") || !strcmp(what, "pass"))
		next_turn();
	if (what[0] == '@')
		word = with_count((uint16_t)atoi(what + 1) * 0x10001ull, count_of(word));
	if (!strcmp(what, "dead"))
		word = with_count(word, -128);
	if (what[0] == '+' || what[0] == '-')
		word = with_count(word,
					 count_of(word) + atoi(what));
}

static void others_act(const char *when)
{
	for (int i = 0; i < n_events; i++) {
		const char *colon = strchr(events[i], ':');
		const size_t length = (size_t)(colon - events[i]);

		if (strlen(when) == length && !strncmp(events[i], when, length))
			act(colon + 1);
	}
}

/* --- CPUs ------------------------------------------------------------------- */

struct cpu {
	ucontext_t context;
	char *stack;
	uint16_t ticket;
	bool holds, finished;
	int phase;
};

HIDDEN struct cpu cpus[MAX_CPUS], *now;
HIDDEN ucontext_t scheduler;
HIDDEN int n_cpus, ops, every, hold;
HIDDEN struct patience patience;
HIDDEN uint64_t random_state;
HIDDEN uint64_t phase_locks[PHASES], phase_refs[PHASES], strangers;

/* Everybody's accesses are in one order, and here somebody else may be next. */
static void step(void)
{
	accesses++;
	if (scripted) {
		char when[24];

		snprintf(when, sizeof(when), "%llu", (unsigned long long)accesses);
		others_act(when);
	} else {
		swapcontext(&now->context, &scheduler);
	}
}

static uint64_t draw(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % below;
}

/* --- What lockref.h promises ------------------------------------------------ */

static void report(bool result);

static void too_many(void)
{
	if (accesses <= ENDLESS)
		return;
	wrong("the call does not come to an end");
	report(false);
	exit(0);
}

static void known(const struct lockref *ref)
{
	if (ref == handle)
		return;
	wrong("something was taken for the lockref that is not");
	report(false);
	exit(0);
}

uint64_t look(struct lockref *ref)
{
	known(ref);
	step();
	looks++;
	too_many();
	return word;
}

bool swap(struct lockref *ref, uint64_t *seen, uint64_t new)
{
	known(ref);
	step();
	too_many();
	if (is_locked(*seen))
		wrong("a swap changed a word that said: somebody holds the lock");
	if ((uint32_t)*seen != (uint32_t)new)
		wrong("a swap changed the lock's half of the word");
	if (word != *seen) {
		*seen = word;
		failed++;
		return false;
	}
	word = new;
	swaps++;
	return true;
}

void take_lock(struct lockref *ref)
{
	known(ref);
	if (now->holds) {
		wrong("take_lock() by who holds the lock already: it would wait for ever");
		report(false);
		exit(0);
	}
	if (!locks++)
		before_lock = looks + failed;
	if (scripted) {
		now->ticket = (uint16_t)(word >> 16);
		draw_ticket();
		others_act("line");
		word = (word & ~0xffffull) | now->ticket;
	} else {
		phase_locks[now->phase]++;
		step();
		now->ticket = (uint16_t)(word >> 16);
		draw_ticket();
		do {
			step();
			too_many();
		} while (turn_of(word) != now->ticket);
	}
	now->holds = true;
}

void drop_lock(struct lockref *ref)
{
	known(ref);
	if (!now->holds) {
		wrong("drop_lock() by somebody who does not hold the lock");
		return;
	}
	if (!scripted)
		step();
	now->holds = false;
	next_turn();
}

void set_count(struct lockref *ref, int32_t count)
{
	known(ref);
	if (!now->holds)
		wrong("set_count() by somebody who does not hold the lock");
	if (!scripted)
		step();
	word = with_count(word, count);
}

/* --- The two modes ---------------------------------------------------------- */

static void report(bool result)
{
	printf("{\"result\": %s, \"count\": %d, \"held\": %s, \"looks\": %llu, "
	       "\"failed\": %llu, \"swaps\": %llu, \"locks\": %llu, "
	       "\"before_lock\": %llu, \"refs\": [%llu, %llu, %llu], "
	       "\"locked\": [%llu, %llu, %llu], \"strangers\": %llu, "
	       "\"fault\": \"%s\"}\n",
	       result ? "true" : "false", count_of(word),
	       now && now->holds ? "true" : "false", (unsigned long long)looks,
	       (unsigned long long)failed, (unsigned long long)swaps,
	       (unsigned long long)locks, (unsigned long long)before_lock,
	       (unsigned long long)phase_refs[0], (unsigned long long)phase_refs[1],
	       (unsigned long long)phase_refs[2], (unsigned long long)phase_locks[0],
	       (unsigned long long)phase_locks[1], (unsigned long long)phase_locks[2],
	       (unsigned long long)strangers, fault);
	fflush(stdout);
}

static void visit(struct cpu *cpu)
{
	take_lock(handle);
	phase_locks[cpu->phase]--; /* its own wish, not a reference's */
	strangers++;
	for (int i = 0; i < hold; i++)
		step();
	drop_lock(handle);
}

static void life(void)
{
	struct cpu *cpu = now;

	for (cpu->phase = 0; cpu->phase < PHASES; cpu->phase++)
		for (int i = 1; i <= ops; i++) {
			if (!ref_get(handle, patience))
				wrong("ref_get() refused a live object");
			if (!ref_put(handle, patience)) {
				wrong("ref_put() took a reference for the last one");
				if (cpu->holds)
					drop_lock(handle);
			}
			if (cpu->holds) {
				wrong("a call returned with the lock held");
				drop_lock(handle);
			}
			phase_refs[cpu->phase] += 2;
			if (cpu->phase == 1 && i % every == 0)
				visit(cpu);
		}
	cpu->finished = true;
	for (;;)
		swapcontext(&cpu->context, &scheduler);
}

/* Apart, since getcontext() returns twice as far as the compiler knows. */
static int start(struct cpu *cpu)
{
	cpu->stack = malloc(STACK);
	if (!cpu->stack || getcontext(&cpu->context))
		return -1;
	cpu->context.uc_stack.ss_sp = cpu->stack;
	cpu->context.uc_stack.ss_size = STACK;
	makecontext(&cpu->context, life, 0);
	return 0;
}

static int run_cpus(void)
{
	int left = n_cpus;

	word = with_count(0, 1);
	for (int i = 0; i < n_cpus; i++)
		if (start(&cpus[i]))
			return 1;
	while (left) {
		now = &cpus[draw((uint64_t)n_cpus)];
		if (now->finished)
			continue;
		swapcontext(&scheduler, &now->context);
		left -= now->finished;
	}
	if (count_of(word) != 1)
		wrong("references were lost: the count does not come back to 1");
	if (is_locked(word))
		wrong("the lock was never given back");
	now = NULL;
	report(true);
	return 0;
}

static int run_script(const char *call, int count)
{
	static struct cpu caller;

	now = &caller;
	word = with_count(0, count);
	others_act("0");
	report(!strcmp(call, "get") ? ref_get(handle, patience) :
				      ref_put(handle, patience));
	return 0;
}

static int run_one(int argc, char **argv)
{
	handle = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (handle == MAP_FAILED)
		return 1;
	if (argc >= 5 && !strcmp(argv[0], "script")) {
		scripted = true;
		patience = (struct patience){ atoi(argv[3]), atoi(argv[4]) };
		events = argv + 5;
		n_events = argc - 5;
		return run_script(argv[1], atoi(argv[2]));
	}
	if (argc == 8 && !strcmp(argv[0], "cpus")) {
		n_cpus = atoi(argv[1]);
		ops = atoi(argv[2]);
		patience = (struct patience){ atoi(argv[3]), atoi(argv[4]) };
		every = atoi(argv[5]);
		hold = atoi(argv[6]);
		random_state = strtoull(argv[7], NULL, 10) | 1;
		if (n_cpus >= 1 && n_cpus <= MAX_CPUS && ops > 0 && every > 0)
			return run_cpus();
	}
	fprintf(stderr, "see the comment at the top of sim.c for what can be asked\n");
	return 2;
}

static int run_line(char *line)
{
	char *words[MAX_WORDS];
	int n = 0, status;
	pid_t pid;

	for (char *word = strtok(line, " \n"); word && n < MAX_WORDS; word = strtok(NULL, " \n"))
		words[n++] = word;
	pid = fork();
	if (pid == 0)
		exit(run_one(n, words));
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 1;
	if (!WIFEXITED(status)) {
		printf("{\"fault\": \"the call crashed, signal %d\"}\n", WTERMSIG(status));
		fflush(stdout);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(int argc, char **argv)
{
	static char line[LINE];
	int failed_lines = 0;

	if (argc != 2 || strcmp(argv[1], "batch") != 0)
		return run_one(argc - 1, argv + 1);
	while (!failed_lines && fgets(line, sizeof(line), stdin))
		failed_lines = run_line(line);
	return failed_lines;
}
