/* SPDX-License-Identifier: MIT */
/*
 * harness.h - the measuring loop that every model includes.
 *
 * A model holds one idea; everything that makes a number trustworthy is here:
 *
 *  - threads are pinned, one to a CPU, and a thread that is not where it
 *    should be fails the run;
 *  - all threads leave a start gate together, and the skew of their first and
 *    last operation is reported;
 *  - a warm-up faults in the memory; the clock is read once a batch, and a
 *    batch is long enough that reading it costs under half a percent;
 *  - latencies that a model notes with ct_latency() go into a histogram with
 *    buckets of 3%, so that noting one costs nanoseconds and no memory;
 *  - what a thread counts lies on lines of its own (256 bytes, because
 *    adjacent-line prefetchers move lines in pairs or fours);
 *  - SCHED_FIFO where that is allowed and safe, so that nothing else runs in
 *    between; the time that threads waited for a CPU is reported anyway;
 *  - the model's invariant is checked at the end: a fast wrong answer is not
 *    a result.
 *
 * Time is CLOCK_MONOTONIC. Rates are operations per second of all threads
 * together, each thread's operations divided by that thread's own time.
 */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"

#define CT_LINE 256
#define CT_MAX_CPUS 8192 /* as many as Linux knows */
#define CT_PRIVATE 8 /* words of state that a model may keep per worker */
/* The kernel lets real-time tasks have 95% of each second by default. */
#define CT_FIFO_BUDGET_NS 900000000ull

/* 32 buckets for each power of two up to 2^40 ns, about 18 minutes. */
#define CT_BUCKET_BITS 5
#define CT_BUCKETS ((40 - CT_BUCKET_BITS + 1) << CT_BUCKET_BITS)

#define ct_array_size(a) (sizeof(a) / sizeof((a)[0]))

struct ct_slice {
	uint64_t ops;
	uint64_t ns;
};

struct ct_worker {
	/* What the loop touches: this worker's own lines, nobody else's. */
	_Alignas(CT_LINE) struct ct_run *run;
	void *shared;         /* = run->shared */
	const int64_t *param; /* = run->param */
	uint32_t id;
	uint32_t phase;
	uint64_t think; /* iterations of the think loop after each operation */
	uint64_t sink;
	uint64_t count[CT_MAX_COUNTERS];
	uint64_t local[CT_PRIVATE];

	/* What the harness notes between batches. */
	_Alignas(CT_LINE) uint64_t ops; /* with the warm-up */
	uint64_t batch;
	uint64_t first_ns, last_ns;
	uint64_t wait_ns;
	double iters_per_ns, clock_ns, batch_ns;
	int cpu;
	pthread_t thread;
	struct ct_slice slice[CT_MAX_PHASES][CT_MAX_SLICES];
	uint64_t phase_count[CT_MAX_PHASES][CT_MAX_COUNTERS];
	uint64_t cpu_changes[CT_MAX_PHASES];
	uint64_t latency_max[CT_MAX_PHASES];
	uint32_t histogram[CT_MAX_PHASES][CT_BUCKETS];
};

struct ct_run {
	/* For the model: its parameters, and what setup() allocated. */
	const struct ct_config *config;
	const struct ct_model *model;
	const struct ct_variant *variant;
	const int64_t *param;
	uint32_t threads;
	void *shared;
	struct ct_worker *workers;

	/* The start gate; padded, since every thread spins on it. */
	_Alignas(CT_LINE) _Atomic uint64_t go_ns;
	_Alignas(CT_LINE) _Atomic uint32_t arrived;
	_Alignas(CT_LINE) pthread_barrier_t barrier;
	pthread_mutex_t starting; /* held until every thread exists */
	atomic_flag failed;
	char error[CT_TEXT];
	_Atomic bool has_failed;
	bool starved;
	bool fifo;
};

/*
 * Fail the run with a reason; the first one is kept. Any thread may call it.
 */
__attribute__((format(printf, 2, 3), unused)) static int
ct_fail(struct ct_run *run, const char *format, ...)
{
	if (!atomic_flag_test_and_set(&run->failed)) {
		va_list args;

		va_start(args, format);
		vsnprintf(run->error, sizeof(run->error), format, args);
		va_end(args);
		atomic_store(&run->has_failed, true);
	}
	return -1;
}

/*
 * The same for a check, where a busy machine may be to blame: a thread did not
 * get its CPU when it was needed.
 */
#define ct_starved(run, ...) ((run)->starved = true, ct_fail((run), __VA_ARGS__))

static inline uint64_t ct_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void ct_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Private work: a chain of dependent multiplications, so that it takes time
 * but touches no memory, and no compiler can shorten it.
 */
static inline void ct_think(uint64_t iterations)
{
	uint64_t x = iterations | 1;

	for (uint64_t i = 0; i < iterations; i++) {
		x *= 0x5851f42d4c957f2dull;
		__asm__ volatile("" : "+r"(x));
	}
}

/* About ns nanoseconds of private work. */
static inline void ct_delay(const struct ct_worker *w, int64_t ns)
{
	if (ns > 0)
		ct_think((uint64_t)((double)ns * w->iters_per_ns));
}

/* The bucket of a latency: exact up to 31 ns, then 5 bits behind the first. */
static inline uint32_t ct_bucket(uint64_t ns)
{
	uint32_t shift, bucket;

	if (ns < 1u << CT_BUCKET_BITS)
		return (uint32_t)ns;
	shift = 63 - (uint32_t)__builtin_clzll(ns) - CT_BUCKET_BITS;
	bucket = (shift << CT_BUCKET_BITS) + (uint32_t)(ns >> shift);
	return bucket < CT_BUCKETS ? bucket : CT_BUCKETS - 1;
}

/* The middle of a bucket, nanoseconds. */
static inline double ct_bucket_ns(uint32_t bucket)
{
	const uint32_t shift = bucket >> CT_BUCKET_BITS ?
				       (bucket >> CT_BUCKET_BITS) - 1 : 0;
	const uint64_t low = (uint64_t)(bucket - (shift << CT_BUCKET_BITS)) << shift;

	return (double)low + (double)((1ull << shift) - 1) / 2;
}

/* Note how long something took; the phase's percentiles are reported. */
static inline void ct_latency(struct ct_worker *w, uint64_t ns)
{
	w->histogram[w->phase][ct_bucket(ns)]++;
	if (ns > w->latency_max[w->phase])
		w->latency_max[w->phase] = ns;
}

/*
 * CT_LOOP(name, op): a loop function for struct ct_variant out of
 * "static inline void op(struct ct_worker *w)".
 */
#define CT_LOOP(name, op)                                       \
	static void name(struct ct_worker *w, uint64_t n)       \
	{                                                       \
		const uint64_t think = w->think;                \
								\
		if (think) {                                    \
			while (n--) {                           \
				op(w);                          \
				ct_think(think);                \
			}                                       \
		} else {                                        \
			while (n--)                             \
				op(w);                          \
		}                                               \
	}

/*
 * CT_MODEL(.slug = "...", ..., CT_TABLE(variants), CT_TABLE(phases)): the one
 * function that a model exports, out of its description and its tables.
 */
#define CT_TABLE(table) .n_##table = ct_array_size(table), .table = table
#define CT_MODEL(...)                                           \
	const struct ct_model *ct_model(void)                   \
	{                                                       \
		static const struct ct_model model = {          \
			.abi = CT_ABI, __VA_ARGS__              \
		};                                              \
								\
		return &model;                                  \
	}

/* Memory that starts on lines of its own, zeroed; free() releases it. */
__attribute__((unused)) static void *ct_alloc(size_t bytes)
{
	size_t whole = (bytes + CT_LINE - 1) / CT_LINE * CT_LINE;
	void *p = aligned_alloc(CT_LINE, whole);

	if (p)
		memset(p, 0, whole);
	return p;
}

/* A counter, or the operations (-1), summed over workers and phases. */
__attribute__((unused)) static uint64_t ct_total(const struct ct_run *run,
						 int counter)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < run->threads; i++)
		sum += counter < 0 ? run->workers[i].ops
				   : run->workers[i].count[counter];
	return sum;
}

/* Nanoseconds that this thread was runnable but not running. */
static uint64_t ct_runq_wait(void)
{
	unsigned long long ran, waited = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");

	if (!f)
		return 0; /* a kernel without CONFIG_SCHED_INFO */
	if (fscanf(f, "%llu %llu", &ran, &waited) != 2)
		waited = 0;
	fclose(f);
	return waited;
}

/* What the clock and the think loop cost here; the best of a few tries. */
static void ct_calibrate(struct ct_worker *w)
{
	const uint64_t iterations = 20000, readings = 200;

	w->clock_ns = w->iters_per_ns = 0;
	for (int i = 0; i < 5; i++) {
		uint64_t t0 = ct_now();

		ct_think(iterations);

		uint64_t t1 = ct_now();
		double rate = (double)iterations / (double)(t1 - t0 + 1);

		if (rate > w->iters_per_ns)
			w->iters_per_ns = rate;
		for (uint64_t k = 0; k < readings; k++)
			t0 = ct_now();

		double clock = (double)(t0 - t1) / (double)readings;

		if (i == 0 || clock < w->clock_ns)
			w->clock_ns = clock;
	}
	w->think = (uint64_t)((double)w->run->config->think_ns *
			      w->iters_per_ns + 0.5);
}

/*
 * Operations until reading the clock once is under half a percent. A model may
 * get slower by a factor of a hundred in mid-run: the batch follows, so that
 * no thread overruns its deadline by long.
 */
static inline void ct_resize_batch(struct ct_worker *w, uint64_t took_ns)
{
	if ((double)took_ns < w->batch_ns && w->batch < 1u << 20)
		w->batch *= 2;
	else if ((double)took_ns > 4 * w->batch_ns && w->batch > 1)
		w->batch /= 2;
}

static void ct_warm_up(struct ct_worker *w)
{
	const struct ct_config *config = w->run->config;
	uint64_t start = ct_now(), t0 = start, t1;

	w->batch = 1;
	w->batch_ns = w->clock_ns * 200 < 2000 ? 2000 : w->clock_ns * 200;
	if (config->ops) /* fixed work has fixed batches, and no free extra */
		return;
	do {
		w->run->variant->loop(w, w->batch);
		w->ops += w->batch;
		t1 = ct_now();
		ct_resize_batch(w, t1 - t0);
		t0 = t1;
	} while (t1 - start < config->warmup_ns);
}

/*
 * Everybody spins here until the last has come, so that nobody starts on a
 * CPU that is still waking up.
 */
static uint64_t ct_gate(struct ct_run *run)
{
	uint64_t go;

	if (atomic_fetch_add(&run->arrived, 1) + 1 == run->threads)
		atomic_store(&run->go_ns, ct_now() + 20000);
	while (!(go = atomic_load_explicit(&run->go_ns, memory_order_acquire)))
		ct_relax();
	while (ct_now() < go)
		;
	return go;
}

static void ct_phases(struct ct_worker *w, uint64_t go)
{
	const struct ct_run *run = w->run;
	const struct ct_config *config = run->config;
	uint64_t deadline = go, before[CT_MAX_COUNTERS];
	uint64_t t = w->first_ns = ct_now();
	int cpu = sched_getcpu();

	for (uint32_t p = 0; p < run->model->n_phases; p++) {
		memcpy(before, w->count, sizeof(before));
		w->phase = p;
		for (uint32_t s = 0; s < config->slices; s++) {
			const uint64_t begin = t;
			uint64_t ops = 0;

			deadline += config->slice_ns;
			if (config->ops) {
				ops = config->ops;
				run->variant->loop(w, ops);
				t = ct_now();
			} else {
				do {
					const uint64_t t0 = t;

					run->variant->loop(w, w->batch);
					ops += w->batch;
					t = ct_now();
					ct_resize_batch(w, t - t0);
				} while (t < deadline);
			}
			w->ops += ops;
			w->slice[p][s] = (struct ct_slice){ ops, t - begin };

			int here = sched_getcpu();

			w->cpu_changes[p] += here != cpu;
			cpu = here;
		}
		for (int i = 0; i < CT_MAX_COUNTERS; i++)
			w->phase_count[p][i] = w->count[i] - before[i];
	}
	w->last_ns = t;
}

static void *ct_worker_main(void *arg)
{
	struct ct_worker *w = arg;
	struct ct_run *run = w->run;
	const bool pin = run->config->pin;
	struct sched_param fifo = { .sched_priority = 1 };
	int error;

	pthread_mutex_lock(&run->starting);
	pthread_mutex_unlock(&run->starting);
	if (atomic_load(&run->has_failed))
		return NULL; /* not all of us could be started */
	if (pin && sched_getcpu() != w->cpu)
		ct_fail(run, "thread %u was to run on CPU %d but runs on CPU %d",
			w->id, w->cpu, sched_getcpu());
	if (run->fifo) {
		error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &fifo);
		if (error)
			ct_fail(run, "SCHED_FIFO was refused: %s", strerror(error));
	}
	/* Sleep, not spin, until all are in place: a real-time spinner could
	 * keep the others from ever getting there. */
	pthread_barrier_wait(&run->barrier);
	if (atomic_load(&run->has_failed))
		return NULL;
	ct_calibrate(w);
	pthread_barrier_wait(&run->barrier);
	ct_warm_up(w);
	pthread_barrier_wait(&run->barrier);
	/* What the warm-up noted does not count. */
	memset(w->histogram, 0, sizeof(w->histogram));
	memset(w->latency_max, 0, sizeof(w->latency_max));
	w->wait_ns = ct_runq_wait();
	pthread_barrier_wait(&run->barrier);
	ct_phases(w, ct_gate(run));
	w->wait_ns = ct_runq_wait() - w->wait_ns;
	if (pin && sched_getcpu() != w->cpu)
		ct_fail(run, "thread %u was moved from CPU %d to CPU %d",
			w->id, w->cpu, sched_getcpu());
	return NULL;
}

static int ct_compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Percentiles of what all workers noted in a phase. */
static void ct_percentiles(const struct ct_run *run, uint32_t phase,
			   struct ct_phase *out)
{
	struct { double at; double *where; } wanted[] = {
		{ 0.50, &out->latency_p50 },
		{ 0.90, &out->latency_p90 },
		{ 0.99, &out->latency_p99 },
	};
	uint64_t seen = 0;
	size_t next = 0;

	for (uint32_t i = 0; i < run->threads; i++) {
		const struct ct_worker *w = &run->workers[i];

		for (uint32_t b = 0; b < CT_BUCKETS; b++)
			out->latencies += w->histogram[phase][b];
		if ((double)w->latency_max[phase] > out->latency_max)
			out->latency_max = (double)w->latency_max[phase];
	}
	for (uint32_t b = 0; b < CT_BUCKETS && out->latencies; b++) {
		for (uint32_t i = 0; i < run->threads; i++)
			seen += run->workers[i].histogram[phase][b];
		while (next < ct_array_size(wanted) &&
		       (double)seen >= wanted[next].at * (double)out->latencies)
			*wanted[next++].where = ct_bucket_ns(b);
	}
}

/* Fold the workers' notes into the result. */
static void ct_summarise(const struct ct_run *run, struct ct_result *result)
{
	const struct ct_config *config = run->config;
	uint64_t first_min = UINT64_MAX, first_max = 0;
	uint64_t last_min = UINT64_MAX, last_max = 0;

	for (uint32_t i = 0; i < run->threads; i++) {
		const struct ct_worker *w = &run->workers[i];

#define CT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CT_MAX(a, b) ((a) > (b) ? (a) : (b))
		first_min = CT_MIN(first_min, w->first_ns);
		first_max = CT_MAX(first_max, w->first_ns);
		last_min = CT_MIN(last_min, w->last_ns);
		last_max = CT_MAX(last_max, w->last_ns);
		result->clock_ns = CT_MAX(result->clock_ns, w->clock_ns);
#undef CT_MIN
#undef CT_MAX
		result->runq_wait_ns += w->wait_ns;
		result->think_ns += (double)w->think / w->iters_per_ns /
				    run->threads;
	}
	result->start_skew_ns = first_max - first_min;
	result->stop_skew_ns = last_max - last_min;

	for (uint32_t p = 0; p < run->model->n_phases; p++) {
		struct ct_phase *out = &result->phases[p];
		double sorted[CT_MAX_SLICES];
		const uint32_t n = config->slices;

		for (uint32_t i = 0; i < run->threads; i++) {
			const struct ct_worker *w = &run->workers[i];

			for (uint32_t s = 0; s < n; s++) {
				out->ops += w->slice[p][s].ops;
				out->slice_rate[s] +=
					(double)w->slice[p][s].ops * 1e9 /
					(double)(w->slice[p][s].ns + !w->slice[p][s].ns);
			}
			for (int c = 0; c < CT_MAX_COUNTERS; c++)
				out->counts[c] += w->phase_count[p][c];
			out->cpu_changes += w->cpu_changes[p];
		}
		ct_percentiles(run, p, out);
		memcpy(sorted, out->slice_rate, sizeof(sorted));
		qsort(sorted, n, sizeof(sorted[0]), ct_compare);
		out->rate_min = sorted[0];
		out->rate_max = sorted[n - 1];
		out->rate_median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
	}
}

/*
 * Is SCHED_FIFO both allowed and safe? Safe: there is a CPU for every thread,
 * the kernel throttles runaway real-time tasks, and the run fits the budget
 * that the throttle leaves, so that it is not throttled itself.
 */
static const char *ct_fifo_refusal(const struct ct_config *config,
				   uint64_t planned_ns)
{
	struct sched_param now, fifo = { .sched_priority = 1 };
	int policy, error;
	long runtime = -1;
	FILE *f;

	if (!config->pin)
		return "threads are not pinned";
	for (uint32_t i = 0; i < config->threads; i++)
		for (uint32_t k = 0; k < i; k++)
			if (config->cpus[i] == config->cpus[k])
				return "two threads share a CPU";
	if (config->ops)
		return "a run of fixed work has no time limit";
	if (planned_ns > CT_FIFO_BUDGET_NS)
		return "the run is longer than the 0.9 s that is safe";
	f = fopen("/proc/sys/kernel/sched_rt_runtime_us", "r");
	if (f) {
		if (fscanf(f, "%ld", &runtime) != 1)
			runtime = -1;
		fclose(f);
	}
	if (runtime < 0)
		return "this kernel does not limit real-time tasks";
	pthread_getschedparam(pthread_self(), &policy, &now);
	error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &fifo);
	if (error)
		return "not permitted (needs root, CAP_SYS_NICE or an rtprio limit)";
	pthread_setschedparam(pthread_self(), policy, &now);
	return NULL;
}

static int ct_bad_config(struct ct_run *run)
{
	const struct ct_config *config = run->config;
	const struct ct_model *model = run->model;

	if (model->abi != CT_ABI || model->n_counters > CT_MAX_COUNTERS ||
	    model->n_phases < 1 || model->n_phases > CT_MAX_PHASES)
		return ct_fail(run, "the model's description does not fit abi.h");
	if (config->variant >= model->n_variants)
		return ct_fail(run, "there is no variant %u", config->variant);
	if (config->threads < 1 || config->threads < model->min_threads ||
	    (model->max_threads && config->threads > model->max_threads))
		return ct_fail(run, "%u threads are out of this model's range",
			       config->threads);
	if (config->slices < 1 || config->slices > CT_MAX_SLICES)
		return ct_fail(run, "slices must be 1 to %d", CT_MAX_SLICES);
	if (!config->ops && !config->slice_ns)
		return ct_fail(run, "a run needs a slice time or an operation count");
	for (uint32_t i = 0; i < model->n_params; i++)
		if (config->params[i] < model->params[i].min ||
		    config->params[i] > model->params[i].max)
			return ct_fail(run, "%s must be %" PRId64 " to %" PRId64,
				       model->params[i].name,
				       model->params[i].min,
				       model->params[i].max);
	return 0;
}

/* Start thread i on its CPU from its first instruction on. */
static int ct_start(struct ct_run *run, uint32_t i)
{
	struct ct_worker *w = &run->workers[i];
	pthread_attr_t attr;
	int error = pthread_attr_init(&attr);

	w->shared = run->shared;
	if (!error && run->config->pin) {
		const size_t size = CPU_ALLOC_SIZE(w->cpu + 1);
		cpu_set_t *set = CPU_ALLOC(w->cpu + 1);

		CPU_ZERO_S(size, set);
		CPU_SET_S(w->cpu, size, set);
		error = pthread_attr_setaffinity_np(&attr, size, set);
		CPU_FREE(set);
	}
	if (!error)
		error = pthread_create(&w->thread, &attr, ct_worker_main, w);
	pthread_attr_destroy(&attr);
	if (error)
		return ct_fail(run, "cannot pin a thread to CPU %d: %s", w->cpu,
			       strerror(error));
	return 0;
}

/*
 * Have the model set up on the first CPU, if threads are pinned at all: whose
 * memory node and cache the shared lines begin in must not be left to chance.
 */
static int ct_setup(struct ct_run *run, struct ct_result *result)
{
	const size_t most = CPU_ALLOC_SIZE(CT_MAX_CPUS);
	const int cpu = run->config->cpus[0];
	cpu_set_t *before = CPU_ALLOC(CT_MAX_CPUS), *one = CPU_ALLOC(CT_MAX_CPUS);
	const bool pin = run->config->pin && before && one && cpu < CT_MAX_CPUS &&
			 !sched_getaffinity(0, most, before);
	int failed;

	if (pin) {
		CPU_ZERO_S(most, one);
		CPU_SET_S(cpu, most, one);
		sched_setaffinity(0, most, one); /* refused: ct_start() says so */
	}
	result->first_touch = sched_getcpu();
	failed = run->variant->setup ? run->variant->setup(run) : 0;
	if (pin)
		sched_setaffinity(0, most, before);
	CPU_FREE(before);
	CPU_FREE(one);
	return failed;
}

static void ct_execute(struct ct_run *run, struct ct_result *result)
{
	const struct ct_config *config = run->config;
	const struct ct_variant *variant = run->variant;
	const char *refusal = "as asked";
	uint32_t started = 0;

	result->planned_ns = config->warmup_ns +
		config->slice_ns * config->slices * run->model->n_phases;
	if (config->sched != CT_SCHED_OTHER)
		refusal = ct_fifo_refusal(config, result->planned_ns);
	run->fifo = !refusal;
	if (refusal && config->sched == CT_SCHED_FIFO) {
		ct_fail(run, "SCHED_FIFO: %s", refusal);
		return;
	}
	snprintf(result->sched, sizeof(result->sched), "%s%s%s%s",
		 refusal ? "SCHED_OTHER" : "SCHED_FIFO", refusal ? " (" : "",
		 refusal ? refusal : "", refusal ? ")" : "");

	for (uint32_t i = 0; i < run->threads; i++) {
		run->workers[i].run = run;
		run->workers[i].id = i;
		run->workers[i].cpu = config->cpus[i];
		run->workers[i].param = run->param;
	}
	if (ct_setup(run, result)) {
		ct_fail(run, "setup failed");
		goto teardown;
	}
	pthread_barrier_init(&run->barrier, NULL, run->threads);
	pthread_mutex_init(&run->starting, NULL);
	pthread_mutex_lock(&run->starting);
	while (started < run->threads && !ct_start(run, started))
		started++;
	pthread_mutex_unlock(&run->starting);
	while (started)
		pthread_join(run->workers[--started].thread, NULL);
	pthread_mutex_destroy(&run->starting);
	pthread_barrier_destroy(&run->barrier);
	if (!atomic_load(&run->has_failed)) {
		ct_summarise(run, result);
		if (variant->check && variant->check(run))
			ct_fail(run, "the invariant does not hold");
	}
teardown:
	if (variant->teardown)
		variant->teardown(run);
}

/*
 * Run one variant once. Returns 0, or -1 with result->error set.
 */
int ct_measure(const struct ct_config *config, struct ct_result *result)
{
	struct ct_run *run = ct_alloc(sizeof(*run));
	bool failed;

	memset(result, 0, sizeof(*result));
	if (!run) {
		snprintf(result->error, sizeof(result->error), "out of memory");
		return -1;
	}
	run->config = config;
	run->model = ct_model();
	run->param = config->params;
	run->threads = config->threads;
	if (!ct_bad_config(run)) {
		run->variant = &run->model->variants[config->variant];
		run->workers = ct_alloc(sizeof(*run->workers) * config->threads);
		if (run->workers)
			ct_execute(run, result);
		else
			ct_fail(run, "out of memory");
	}
	failed = atomic_load(&run->has_failed);
	if (failed) {
		snprintf(result->error, sizeof(result->error), "%s", run->error);
		result->starved = run->starved;
	}
	free(run->workers);
	free(run);
	return failed ? -1 : 0;
}

/* Python compares these with what cffi made of abi.h. */
uint32_t ct_sizeof_config(void)
{
	return sizeof(struct ct_config);
}

uint32_t ct_sizeof_result(void)
{
	return sizeof(struct ct_result);
}
