/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * user_main.c - a C model as a program for qemu-user and the profiler.
 *
 * The same model file as ever, without the harness's clocks: what is counted
 * here are cache lines, so every thread does a fixed number of operations,
 * and the region and each operation are marked for coherence.c.
 *
 *   cc -DMODEL='"models/x.c"' user_main.c && a.out VARIANT THREADS OPS [name=value ...]
 *
 * It says, as JSON lines: every allocation of the model with the expression
 * for its size, which tells what it is for; a result for each phase; an error.
 * Threads are not pinned: the profiler keeps them in step, on any machine.
 */
#include "../harness.h"

/* Harmless everywhere, and seen by the profiler. */
#define BEGIN() __asm__ volatile("xchg %%bx,%%bx" ::: "memory")
#define DONE()  __asm__ volatile("xchg %%cx,%%cx" ::: "memory")
#define END()   __asm__ volatile("xchg %%dx,%%dx" ::: "memory")

static void *traced_alloc(size_t bytes, const char *expression)
{
	void *p = ct_alloc(bytes);

	printf("{\"type\":\"object\",\"address\":%" PRIuPTR ",\"size\":%zu,"
	       "\"expression\":\"%s\"}\n", (uintptr_t)p, bytes, expression);
	return p;
}

#define ct_alloc(bytes) traced_alloc(bytes, #bytes)
#include MODEL
#undef ct_alloc

#define MAX_THREADS 128
#define WARM_UP 3 /* operations of each thread before the region */
#define NAP_NS 1000000

/* Each phase has a gate: workers arrive, are let go, are done, and wait for its end. */
static _Alignas(CT_LINE) _Atomic uint32_t arrived;
static _Alignas(CT_LINE) _Atomic uint32_t open_gates;
static _Alignas(CT_LINE) _Atomic uint32_t awake;
static _Alignas(CT_LINE) _Atomic uint32_t done;
static _Alignas(CT_LINE) _Atomic uint32_t ended;

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

static void *worker(void *arg)
{
	struct ct_worker *w = arg;
	const struct ct_run *run = w->run;

	run->variant->loop(w, WARM_UP);
	w->ops += WARM_UP;
	for (uint32_t p = 0; p < run->model->n_phases; p++) {
		w->phase = p;
		atomic_fetch_add(&arrived, 1);
		while (atomic_load(&open_gates) <= p)
			nap();
		/*
		 * The profiler keeps in step whoever runs, so all must run by now: a
		 * thread that the host wakes later would meet nobody. The price is
		 * that the loads and instructions of this loop count in the region.
		 */
		atomic_fetch_add(&awake, 1);
		while (atomic_load(&awake) < run->threads * (p + 1))
			ct_relax();
		for (uint64_t i = 0; i < run->config->ops; i++) {
			run->variant->loop(w, 1);
			DONE();
		}
		w->ops += run->config->ops;
		atomic_fetch_add(&done, 1);
		/* Nobody's end is to disturb the others. */
		while (atomic_load(&ended) <= p)
			nap();
	}
	return NULL;
}

static void run_phases(struct ct_run *run)
{
	const uint32_t phases = run->model->n_phases;

	for (uint32_t p = 0; p < phases; p++) {
		while (atomic_load(&arrived) < run->threads * (p + 1))
			nap();
		BEGIN();
		atomic_store(&open_gates, p + 1);
		while (atomic_load(&done) < run->threads * (p + 1))
			nap();
		END();
		atomic_store(&ended, p + 1);
		printf("{\"type\":\"result\",\"label\":\"%s\",\"ops\":%" PRIu64 "}\n",
		       phases > 1 ? run->model->phases[p] : "", run->threads * run->config->ops);
	}
}

static int execute(struct ct_run *run)
{
	const struct ct_variant *variant = run->variant;
	uint32_t started = 0;

	if (variant->setup && variant->setup(run))
		return ct_fail(run, "setup failed");
	for (; started < run->threads; started++) {
		struct ct_worker *w = &run->workers[started];

		w->run = run;
		w->shared = run->shared;
		w->param = run->param;
		w->id = started;
		w->iters_per_ns = 1; /* ct_delay(): as many steps as nanoseconds */
		if (pthread_create(&w->thread, NULL, worker, w))
			break;
	}
	if (started < run->threads) {
		printf("{\"type\":\"error\",\"what\":\"only %u threads can be started\"}\n", started);
		fflush(stdout);
		_exit(1); /* the others wait for ever */
	}
	run_phases(run);
	while (started)
		pthread_join(run->workers[--started].thread, NULL);
	if (variant->check && variant->check(run))
		ct_fail(run, "the invariant does not hold");
	if (variant->teardown)
		variant->teardown(run);
	return 0;
}

int main(int argc, char **argv)
{
	static struct ct_run run;
	const struct ct_model *model = ct_model();
	int64_t params[64];
	struct ct_config config = { .slices = 1, .sched = CT_SCHED_OTHER, .params = params };

	if (argc < 4 || model->n_params > ct_array_size(params))
		return 2;
	while (config.variant < model->n_variants &&
	       strcmp(model->variants[config.variant].name, argv[1]))
		config.variant++;
	config.threads = (uint32_t)atoi(argv[2]);
	config.ops = (uint64_t)atoll(argv[3]);
	for (uint32_t i = 0; i < model->n_params; i++) {
		const size_t len = strlen(model->params[i].name);

		params[i] = model->params[i].initial;
		for (int a = 4; a < argc; a++)
			if (!strncmp(argv[a], model->params[i].name, len) && argv[a][len] == '=')
				params[i] = atoll(argv[a] + len + 1);
	}
	run.config = &config;
	run.model = model;
	run.param = params;
	run.threads = config.threads;
	if (config.threads > MAX_THREADS || !config.ops)
		ct_fail(&run, "1 to %d threads, and at least one operation", MAX_THREADS);
	else if (!ct_bad_config(&run)) {
		run.variant = &model->variants[config.variant];
		run.workers = ct_alloc(sizeof(*run.workers) * run.threads);
		if (run.workers)
			execute(&run);
		else
			ct_fail(&run, "out of memory");
		free(run.workers);
	}
	if (atomic_load(&run.has_failed))
		printf("{\"type\":\"error\",\"what\":\"%s\"}\n", run.error);
	return atomic_load(&run.has_failed);
}
