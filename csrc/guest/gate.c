/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * gate.c - the measured region.
 *
 * Why processes: threads of one share the table of descriptors, and its lock
 * would hide what is to be seen. Why the first worker and not the parent
 * opens the gate: the parent would have to run on some worker's CPU, and its
 * sleeping and waking would be counted. So it sleeps from the fork to the end.
 */
#include "gate.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "args.h"
#include "calls.h"
#include "sys.h"

/* Each word on lines of its own: some are spun on. */
struct shared {
	_Alignas(4096) unsigned prepared; /* a futex: all are */
	_Alignas(256) unsigned ready;
	_Alignas(256) unsigned go; /* a futex if there are more workers than CPUs */
	_Alignas(256) unsigned through; /* those who did their operations */
	_Alignas(256) unsigned done;
	_Alignas(4096) struct worker workers[];
};

static unsigned load(const unsigned *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Returns the new value. */
static unsigned increment(unsigned *word)
{
	return __atomic_add_fetch(word, 1, __ATOMIC_ACQ_REL);
}

/* A worker that spins would keep another one from coming. */
static bool is_crowded(const struct gate *g)
{
	return g->procs > online_cpus();
}

/* Returns how many slept until it opened. */
static unsigned open_gate(struct shared *s, const struct gate *g)
{
	while (load(&s->ready) < g->procs - 1)
		sleep_ms(1);
	/* Let what the forks have left behind settle down. */
	sleep_ms(20);
	calls_on();
	if (g->companion)
		__atomic_store_n(&g->companion->running, 1, __ATOMIC_RELEASE);
	MARK_BEGIN();
	if (is_crowded(g))
		return set_and_wake(&s->go);
	__atomic_store_n(&s->go, 1, __ATOMIC_RELEASE);
	return 0;
}

static void wait_at_gate(struct shared *s, const struct gate *g, unsigned *go)
{
	increment(&s->ready);
	if (is_crowded(g)) {
		/* A crowd that only yields takes minutes to let each other by. */
		wait_until_set(go);
		return;
	}
	/* In user space, since system calls would be counted. */
	while (!load(go))
		relax();
}

/*
 * A crowd that one worker wakes comes one by one, and CPUs run out of workers
 * meanwhile. So as many lead as there are CPUs, and each wakes as many.
 */
static unsigned leaders(const struct gate *g)
{
	return is_crowded(g) ? online_cpus() : g->procs;
}

static void pass_the_gate(struct shared *s, const struct gate *g, unsigned id)
{
	struct worker *w = &s->workers[id];
	const bool leads = id < leaders(g);
	unsigned *called = &s->workers[id % leaders(g)].called;

	if (id == 0)
		w->woke = open_gate(s, g);
	else
		wait_at_gate(s, g, leads ? &s->go : called);
	if (is_crowded(g) && leads)
		w->woke += set_and_wake(called);
}

static void operate(struct worker *w, const struct gate *g, uint64_t *latency)
{
	uint64_t before = now_ns();

	w->begin_ns = before;
	if (!latency) {
		for (uint64_t i = 0; i < g->ops; i++) {
			g->op(w, i);
			MARK_OP();
		}
	} else {
		for (uint64_t i = 0; i < g->ops; i++) {
			w->latency_ns = 0;
			before = now_ns();
			g->op(w, i);
			latency[i] = now_ns() - before;
			if (w->latency_ns)
				latency[i] = w->latency_ns;
			MARK_OP();
		}
	}
	w->ops = g->ops;
	w->end_ns = now_ns();
}

/* Who has luck would be through before the others have begun to meet. */
static void operate_on(struct worker *w, const struct gate *g, unsigned *through)
{
	uint64_t i = 0;

	w->begin_ns = now_ns();
	while (load(through) < g->procs / 2 + 1) {
		g->op(w, i);
		MARK_OP();
		if (++i == g->ops)
			increment(through);
	}
	w->ops = i;
	w->end_ns = now_ns();
}

/*
 * fifo=1: as real-time processes. For each CPU with an ordinary one the
 * scheduler keeps a deadline server from 6.12 on, whose timer follows the
 * host's clock and needs the tick.
 */
static void take_the_cpu(void)
{
	const struct sched_param first = { .sched_priority = 1 };
	const char *given = args_given("fifo");

	if (given && !strcmp(given, "1") && sched_setscheduler(0, SCHED_FIFO, &first))
		fail_errno("SCHED_FIFO");
}

static void work(struct shared *s, unsigned id, const struct gate *g,
		 uint64_t *latency)
{
	struct worker *w = &s->workers[id];

	if (!g->loose)
		pin_to(w->cpu);
	/* One after the other: many CPUs on a host of few are slow to pass on a lock. */
	wait_until_set(&w->turn);
	if (g->prepare)
		g->prepare(w);
	for (unsigned i = 0; i < g->warm_ups; i++)
		g->op(w, i);
	set_and_wake(id + 1 < g->procs ? &s->workers[id + 1].turn : &s->prepared);
	memset(w->count, 0, sizeof(w->count));
	take_the_cpu();
	/* Any page that the loop will write to, or ask the time of, exists before the gate. */
	w->ops = 0;
	w->begin_ns = w->end_ns = now_ns();
	/* Who spins at the gate takes the host's CPUs from those who still prepare. */
	wait_until_set(&s->prepared);

	pass_the_gate(s, g, id);
	if (g->on)
		operate_on(w, g, &s->through);
	else
		operate(w, g, latency);
	if (increment(&s->done) == g->procs) {
		MARK_END();
		if (g->companion) {
			__atomic_store_n(&g->companion->running, 0, __ATOMIC_RELEASE);
			while (!load(&g->companion->resting))
				relax();
		}
		calls_off();
		for (unsigned i = 0; i < leaders(g); i++)
			set_and_wake(&s->workers[i].leave);
	}
	/* Nobody ends while others still work: ending is not the workload. */
	wait_until_set(&s->workers[id % leaders(g)].leave);
	if (g->finish)
		g->finish(w);
}

static void kill_all(const pid_t *pids, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

/* Wait for the workers; if anything fails, none is left behind. */
static void reap(pid_t *pids, unsigned n)
{
	for (unsigned left = n; left;) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);
		unsigned i = 0;

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			fail_errno("wait for the workers");
		while (i < n && pids[i] != pid)
			i++;
		if (i < n)
			pids[i] = 0;
		if (status || i == n) {
			kill_all(pids, n);
			child_failed(i < n ? "a worker" : "a helper process", status);
		}
		left--;
	}
}

static void add_up(const struct shared *s, const struct gate *g,
		   const uint64_t *latency, struct result *r)
{
	uint64_t first = UINT64_MAX, last = 0, woke = 0;

	r->procs = g->procs;
	for (unsigned i = 0; i < g->procs; i++) {
		const struct worker *w = &s->workers[i];

		if (!g->on && w->ops != g->ops)
			fail("worker %u did %" PRIu64 " of %" PRIu64 " operations",
			     i, w->ops, g->ops);
		r->ops += w->ops;
		first = w->begin_ns < first ? w->begin_ns : first;
		last = w->end_ns > last ? w->end_ns : last;
		woke = w->woke > woke ? w->woke : woke;
		for (unsigned c = 0; c < MAX_COUNTS && g->counts[c]; c++)
			count(r, g->counts[c], w->count[c]);
	}
	r->ns += last - first;
	if (is_crowded(g))
		count(r, "woken_by_one", woke);
	calls_collect(r, g->only_workers ? g->first_cpu : 0);
	if (!latency)
		return;

	const size_t more = g->procs * g->ops;

	r->latency = realloc(r->latency, (r->n_latency + more) * sizeof(uint64_t));
	if (!r->latency)
		fail("no memory for the latencies");
	memcpy(r->latency + r->n_latency, latency, more * sizeof(uint64_t));
	r->n_latency += more;
}

void gate_run(const struct gate *g, struct result *result)
{
	const unsigned first_cpu = g->first_cpu ? g->first_cpu : arg_spare();
	const size_t bytes = sizeof(struct shared) + g->procs * sizeof(struct worker);
	const size_t latency_bytes = g->procs * g->ops * sizeof(uint64_t);
	struct shared *s = shared_memory(bytes);
	uint64_t *latency = g->latency && g->ops ? shared_memory(latency_bytes) : NULL;
	pid_t *pids = calloc(g->procs, sizeof(*pids));

	if (!pids)
		fail("no memory for %u workers", g->procs);
	/* The others' turn is theirs who come before them, maybe before they are forked. */
	s->workers[0].turn = 1;
	for (unsigned i = 0; i < g->procs; i++) {
		s->workers[i].id = i;
		s->workers[i].cpu = online_cpu(first_cpu + i);
		pids[i] = fork_bound();
		if (pids[i] < 0) {
			kill_all(pids, i);
			fail_errno("fork worker %u", i);
		}
		if (!pids[i]) {
			work(s, i, g, latency ? latency + i * g->ops : NULL);
			_exit(0);
		}
	}
	reap(pids, g->procs);
	add_up(s, g, latency, result);
	free(pids);
	munmap(s, bytes);
	if (latency)
		munmap(latency, latency_bytes);
}
