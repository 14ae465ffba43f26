/* SPDX-License-Identifier: MIT */
/*
 * umount_grace_period.c - who waits for the readers when a mount goes away.
 * Link: -lurcu-qsbr -lurcu-memb
 *
 * The bug: path lookups walk over mounts under RCU, without taking a
 * reference. So umount unlinks the mount, waits for a grace period, after
 * which no reader can still stand on it, and only then releases it. A lazy
 * umount (umount -l) waits as well, although its caller never asked for the
 * file system to be shut down on return.
 *
 * The hypothesis: nearly all of the call's time is that wait, and its length
 * is set by the readers alone: by how long it takes until each of them has
 * passed through a quiescent state. Handing the release to somebody who waits
 * for the grace period instead makes the call short, but now it matters *who*
 * releases, *when*, and what that code may do.
 *
 * Variants; all detach the mount first, then:
 *   before          wait for a grace period, release. Finished on return.
 *   call-rcu        let a callback release it after a grace period. It runs
 *                   in the one thread that runs everybody's callbacks.
 *   queue-rcu-work  let a callback hand it to a pool of worker threads.
 *   no-wait         release it at once. Wrong on purpose: a reader that
 *                   stands on the mount must be seen to notice, or the run
 *                   fails.
 *
 * Thread 0 is the caller, all others are readers. One operation of the caller
 * is "umounts" mounts that come and go on one mount point, about "pace"
 * apart, and then the wait until the last of them is released: so nothing is left over,
 * and every count is complete. A reader's operation lasts as long as the
 * caller's. What the caller feels is in the latency of each umount. With each
 * umount an innocent neighbour, some other user of RCU, queues a callback of
 * its own.
 *
 * RCU is real, from liburcu, in two flavours. QSBR: a reader says when it is
 * in a quiescent state, here every "quiescent" microseconds. This is the one
 * that behaves like the kernel's, where a CPU is found to be quiescent at a
 * timer tick or when it switches tasks. memb: read_lock() and read_unlock()
 * mark each read-side section, so a grace period is as short as a lookup.
 *
 * What stands in for what: the thread in which liburcu runs callbacks stands
 * for the kernel's softirq. It may sleep, which a softirq must not; what is
 * counted here is what a sleeping callback would do to the others behind it.
 * "device" stands for the block device that a mounted file system keeps busy.
 * Released mounts are poisoned and never handed back to malloc(), so that a
 * late reader finds out and does no harm.
 *
 * Left out: the reference count of a mount. In the kernel a reader that comes
 * too late may end up with the *last* reference and shut the file system down
 * itself, behind umount's back; struct mount as such is freed after another
 * grace period. The model shows the same race by its plainest symptom. Also
 * left out: expedited grace periods, and a tree of mounts to unmount at once.
 */
#include "../harness.h"

#include <urcu/urcu-qsbr.h>

/* liburcu's headers declare the table of the flavour included first only. */
extern const struct rcu_flavor_struct urcu_memb_flavor;

#define POISON 0x6b6b6b6b6b6b6b6bull /* what the kernel fills freed memory with */
#define MAX_POOL 16
#define BUDGET_US 800000 /* of one operation, by a careful estimate */
#define GATHER_NS 50000000ull /* a run by time: somebody may be gone for good */
#define IDLE_US 50
#define IDLE_EVERY_NS 200000000ull

enum {
	PARAM_FLAVOUR, PARAM_UMOUNTS, PARAM_PACE, PARAM_QUIESCENT, PARAM_WALK,
	PARAM_BLOCK_EVERY, PARAM_BLOCK, PARAM_POOL, PARAM_BARRIER,
};
enum {
	UMOUNTS, WAITED, BUSY, LATE, LATE_WORST, NEIGHBOUR, NEIGHBOUR_WORST,
	BLOCKED, LOOKED, FOUND, CAUGHT,
};
enum { FLAVOUR_QSBR, FLAVOUR_MEMB, FLAVOURS };

/* A line of its own, as far as readers are concerned: they read the stamp. */
struct mount {
	_Alignas(CT_LINE) _Atomic uint64_t stamp; /* which mount this is, or POISON */
	_Atomic bool device;   /* the file system still has its device */
	_Atomic uint64_t since; /* when it was detached */
	struct rcu_head rcu;
	struct shared *shared;
	struct mount *next; /* in the pool's queue */
};

/* Some other user of RCU, who frees something small. */
struct neighbour {
	struct rcu_head rcu;
	_Atomic uint64_t since;
	struct shared *shared;
};

/* Delays, noted by whichever thread ends them. */
struct tally {
	_Alignas(CT_LINE) _Atomic uint64_t n;
	_Atomic uint64_t sum, worst; /* nanoseconds */
};

/* Threads that may sleep without holding up anybody's callbacks. */
struct pool {
	pthread_mutex_t mutex;
	pthread_cond_t more;
	struct mount *first, **last;
	bool stop;
	uint32_t threads;
	pthread_t thread[MAX_POOL];
};

struct shared {
	_Alignas(CT_LINE) struct mount *_Atomic mounted; /* on the mount point */
	_Alignas(CT_LINE) _Atomic bool busy; /* the caller is in an operation */
	_Atomic uint64_t done;               /* the caller's operations */
	_Alignas(CT_LINE) _Atomic uint64_t present; /* readers, or all that came */
	_Alignas(CT_LINE) pthread_mutex_t namespace_lock;
	pthread_mutex_t barrier_lock;
	const struct rcu_flavor_struct *rcu;
	const int64_t *param;
	uint64_t stamp;
	_Atomic uint64_t to_block, blocked;
	struct tally released, innocent;
	struct pool pool;
	struct mount *mounts;
	struct neighbour *neighbours;
};

typedef void (*umount_fn)(struct ct_worker *w, struct mount *m);

static void sleep_us(int64_t us)
{
	const struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static void note(struct tally *t, uint64_t ns)
{
	uint64_t worst = atomic_load(&t->worst);

	while (ns > worst && !atomic_compare_exchange_weak(&t->worst, &worst, ns))
		;
	atomic_fetch_add(&t->sum, ns);
	atomic_fetch_add(&t->n, 1);
}

/*
 * Readers come to an operation of the caller's. A run by time ends for each
 * thread on its own, so whoever waits for the others gives up after a while.
 * With fixed work each has as many operations as the caller, so they meet in
 * every one of them, however busy the machine is.
 */
static inline bool meets_all(const struct ct_worker *w)
{
	return w->run->config->ops;
}

static uint64_t gather_until(const struct ct_worker *w)
{
	return meets_all(w) ? UINT64_MAX : ct_now() + GATHER_NS;
}

static void wait_for_readers(const struct ct_worker *w, struct shared *s)
{
	const uint64_t late = gather_until(w);
	uint64_t readers = w->run->threads - 1;

	if (meets_all(w))
		readers *= atomic_load(&s->done) + 1;
	while (atomic_load(&s->present) < readers && ct_now() < late)
		ct_relax();
}

/* Yields which operation of the caller's it is, begun or given up. */
static uint64_t wait_for_caller(struct ct_worker *w, struct shared *s)
{
	const uint64_t late = gather_until(w);
	const uint64_t turn = meets_all(w) ? w->local[0]++ : atomic_load(&s->done);

	/* The number first: what is busy after that is of this operation. */
	while (!(atomic_load(&s->done) == turn && atomic_load(&s->busy)) &&
	       atomic_load(&s->done) <= turn && ct_now() < late)
		ct_relax();
	return turn;
}

/* Into the caller's counters, in microseconds. */
static void collect(struct ct_worker *w, struct tally *t, int sum, int worst)
{
	w->count[sum] += atomic_exchange(&t->sum, 0) / 1000;
	w->count[worst] += atomic_exchange(&t->worst, 0) / 1000;
}

/*
 * The last reference is dropped: the file system is shut down, its device is
 * let go and the memory is freed. Shutting down may have to wait for things.
 */
static void release(struct mount *m)
{
	struct shared *s = m->shared;
	const uint64_t every = (uint64_t)s->param[PARAM_BLOCK_EVERY];

	if (every && atomic_fetch_add(&s->to_block, 1) % every == every - 1) {
		sleep_us(s->param[PARAM_BLOCK] * 1000);
		atomic_fetch_add(&s->blocked, 1);
	}
	if (s->param[PARAM_BARRIER]) {
		pthread_mutex_lock(&s->barrier_lock);
		pthread_mutex_unlock(&s->barrier_lock);
	}
	atomic_store(&m->device, false);
	atomic_store(&m->stamp, POISON);
	note(&s->released, ct_now() - atomic_load(&m->since));
}

static struct mount *mount_of(struct rcu_head *head)
{
	return (struct mount *)((char *)head - offsetof(struct mount, rcu));
}

static void release_callback(struct rcu_head *head)
{
	release(mount_of(head));
}

static void queue_callback(struct rcu_head *head)
{
	struct mount *m = mount_of(head);
	struct pool *p = &m->shared->pool;

	m->next = NULL;
	pthread_mutex_lock(&p->mutex);
	*p->last = m;
	p->last = &m->next;
	pthread_cond_signal(&p->more);
	pthread_mutex_unlock(&p->mutex);
}

static void neighbour_callback(struct rcu_head *head)
{
	struct neighbour *n = (struct neighbour *)
		((char *)head - offsetof(struct neighbour, rcu));

	note(&n->shared->innocent, ct_now() - atomic_load(&n->since));
}

static void *pool_main(void *arg)
{
	struct pool *p = arg;
	struct mount *m;

	pthread_mutex_lock(&p->mutex);
	for (;;) {
		while (!p->first && !p->stop)
			pthread_cond_wait(&p->more, &p->mutex);
		m = p->first;
		if (!m)
			break;
		p->first = m->next;
		if (!p->first)
			p->last = &p->first;
		pthread_mutex_unlock(&p->mutex);
		release(m);
		pthread_mutex_lock(&p->mutex);
	}
	pthread_mutex_unlock(&p->mutex);
	return NULL;
}

static void mount_it(struct shared *s, struct mount *m)
{
	atomic_store(&m->stamp, ++s->stamp);
	atomic_store(&m->device, true);
	pthread_mutex_lock(&s->namespace_lock);
	atomic_store_explicit(&s->mounted, m, memory_order_release);
	pthread_mutex_unlock(&s->namespace_lock);
}

/* Released by the caller itself; if that sleeps, it delays no grace period. */
static inline void release_here(struct shared *s, struct mount *m)
{
	s->rcu->thread_offline();
	release(m);
	s->rcu->thread_online();
}

/* From here on nobody finds it, but whoever has found it is still there. */
static inline void detach(struct shared *s, struct mount *m)
{
	pthread_mutex_lock(&s->namespace_lock);
	atomic_store_explicit(&s->mounted, NULL, memory_order_release);
	pthread_mutex_unlock(&s->namespace_lock);
	atomic_store(&m->since, ct_now());
}

static inline void before_umount(struct ct_worker *w, struct mount *m)
{
	struct shared *s = w->shared;

	detach(s, m);
	s->rcu->update_synchronize_rcu();
	w->count[WAITED]++;
	release_here(s, m);
}

static inline void call_rcu_umount(struct ct_worker *w, struct mount *m)
{
	struct shared *s = w->shared;

	detach(s, m);
	s->rcu->update_call_rcu(&m->rcu, release_callback);
}

static inline void queue_rcu_work_umount(struct ct_worker *w, struct mount *m)
{
	struct shared *s = w->shared;

	detach(s, m);
	s->rcu->update_call_rcu(&m->rcu, queue_callback);
}

static inline void no_wait_umount(struct ct_worker *w, struct mount *m)
{
	struct shared *s = w->shared;

	detach(s, m);
	release_here(s, m);
}

/* Nothing is late after this, and everything has been counted. */
static void settle(struct ct_worker *w)
{
	struct shared *s = w->shared;
	const bool held = s->param[PARAM_BARRIER];

	if (held)
		pthread_mutex_lock(&s->barrier_lock);
	s->rcu->barrier();
	if (held)
		pthread_mutex_unlock(&s->barrier_lock);
	while (atomic_load(&s->released.n) < (uint64_t)s->param[PARAM_UMOUNTS])
		sleep_us(100);
	atomic_store(&s->released.n, 0);
	collect(w, &s->released, LATE, LATE_WORST);
	collect(w, &s->innocent, NEIGHBOUR, NEIGHBOUR_WORST);
	w->count[BLOCKED] += atomic_exchange(&s->blocked, 0);
	atomic_store(&s->to_block, 0);
}

/*
 * Between half and one and a half times the pace: umounts that came in step
 * with the readers' ticks would meet them always, or never, at the same point.
 */
static int64_t pace(struct ct_worker *w)
{
	const int64_t mean = w->param[PARAM_PACE];

	w->local[0] = w->local[0] * 6364136223846793005u + 1442695040888963407u;
	return mean / 2 + (int64_t)((w->local[0] >> 33) % (uint64_t)(mean + 1));
}

static inline __attribute__((always_inline)) void
caller_op(struct ct_worker *w, umount_fn umount)
{
	struct shared *s = w->shared;
	const struct rcu_flavor_struct *rcu = s->rcu;

	atomic_store(&s->busy, true);
	wait_for_readers(w, s);
	rcu->register_thread();
	for (int64_t i = 0; i < s->param[PARAM_UMOUNTS]; i++) {
		struct mount *m = &s->mounts[i];
		struct neighbour *n = &s->neighbours[i];
		uint64_t t0;

		mount_it(s, m);
		/* A thread that sleeps holds no reference and delays nobody. */
		rcu->thread_offline();
		sleep_us(pace(w));
		rcu->thread_online();

		t0 = ct_now();
		umount(w, m);
		ct_latency(w, ct_now() - t0);
		w->count[UMOUNTS]++;
		w->count[BUSY] += atomic_load(&m->device);

		atomic_store(&n->since, ct_now());
		rcu->update_call_rcu(&n->rcu, neighbour_callback);
	}
	rcu->thread_offline();
	settle(w);
	rcu->unregister_thread();
	atomic_store(&s->busy, false);
	atomic_fetch_add(&s->done, 1);
}

/* One step of a path walk: stand on the mount for a while, take nothing. */
static inline void look(struct ct_worker *w, struct shared *s)
{
	struct mount *m = atomic_load_explicit(&s->mounted, memory_order_acquire);
	uint64_t stamp;

	w->count[LOOKED]++;
	if (!m)
		return;
	stamp = atomic_load(&m->stamp);
	ct_delay(w, w->param[PARAM_WALK]);
	w->count[FOUND]++;
	if (stamp == POISON || atomic_load(&m->stamp) != stamp)
		w->count[CAUGHT]++; /* freed, or even used again, under our feet */
}

static void reader_op(struct ct_worker *w)
{
	struct shared *s = w->shared;
	const struct rcu_flavor_struct *rcu = s->rcu;
	const uint64_t done = wait_for_caller(w, s);
	uint64_t tick, idle = ct_now() + IDLE_EVERY_NS;

	rcu->register_thread();
	atomic_fetch_add(&s->present, 1);
	while (atomic_load(&s->busy) && atomic_load(&s->done) == done) {
		tick = ct_now() + (uint64_t)w->param[PARAM_QUIESCENT] * 1000;
		do {
			rcu->read_lock();
			look(w, s);
			rcu->read_unlock();
		} while (ct_now() < tick && atomic_load(&s->done) == done);
		rcu->read_quiescent_state();
		/* A real-time thread that never slept would be taken for a
		 * runaway. Seldom, though: on a busy machine a thread that
		 * sleeps is long in waking up, and is waited for by nobody. */
		if (tick > idle) {
			rcu->thread_offline();
			sleep_us(IDLE_US);
			rcu->thread_online();
			idle = tick + IDLE_EVERY_NS;
		}
	}
	if (!meets_all(w))
		atomic_fetch_sub(&s->present, 1);
	rcu->unregister_thread();
}

#define VARIANT(variant)                                          \
	static inline void variant##_op(struct ct_worker *w)      \
	{                                                         \
		if (w->id == 0)                                   \
			caller_op(w, variant##_umount);           \
		else                                              \
			reader_op(w);                             \
	}                                                         \
	CT_LOOP(variant##_loop, variant##_op)

VARIANT(before)
VARIANT(call_rcu)
VARIANT(queue_rcu_work)
VARIANT(no_wait)

static int setup(struct ct_run *run)
{
	const int64_t *p = run->param, umounts = p[PARAM_UMOUNTS];
	const int64_t ticks = p[PARAM_FLAVOUR] == FLAVOUR_QSBR ?
				      2 * p[PARAM_QUIESCENT] : 0;
	const int64_t blocked = p[PARAM_BLOCK_EVERY] ?
				      umounts / p[PARAM_BLOCK_EVERY] : 0;
	const int64_t longest = umounts * (p[PARAM_PACE] + ticks) +
				blocked * p[PARAM_BLOCK] * 1000;
	struct shared *s;

	if (longest > BUDGET_US)
		return ct_fail(run, "umounts x (pace + 2 x quiescent) and what "
				    "blocks take up to %" PRId64 " ms an operation: "
				    "choose less than %d ms", longest / 1000,
			       BUDGET_US / 1000);
	s = ct_alloc(sizeof(*s));
	if (!s)
		return ct_fail(run, "out of memory");
	run->shared = s;
	s->param = p;
	s->rcu = p[PARAM_FLAVOUR] == FLAVOUR_QSBR ? &urcu_qsbr_flavor :
						   &urcu_memb_flavor;
	pthread_mutex_init(&s->namespace_lock, NULL);
	pthread_mutex_init(&s->barrier_lock, NULL);
	pthread_mutex_init(&s->pool.mutex, NULL);
	pthread_cond_init(&s->pool.more, NULL);
	s->pool.last = &s->pool.first;
	s->mounts = ct_alloc((size_t)umounts * sizeof(*s->mounts));
	s->neighbours = ct_alloc((size_t)umounts * sizeof(*s->neighbours));
	if (!s->mounts || !s->neighbours)
		return ct_fail(run, "out of memory");
	for (int64_t i = 0; i < umounts; i++) {
		s->mounts[i].shared = s->neighbours[i].shared = s;
		atomic_store(&s->mounts[i].stamp, POISON);
	}
	/* liburcu starts the thread for callbacks with the first of them: here,
	 * so that it is bound to no CPU and has no real-time priority. */
	s->rcu->register_thread();
	atomic_store(&s->neighbours[0].since, ct_now());
	s->rcu->update_call_rcu(&s->neighbours[0].rcu, neighbour_callback);
	s->rcu->thread_offline();
	s->rcu->barrier();
	s->rcu->unregister_thread();
	atomic_store(&s->innocent.n, 0);
	atomic_store(&s->innocent.sum, 0);
	atomic_store(&s->innocent.worst, 0);
	return 0;
}

static int setup_pool(struct ct_run *run)
{
	struct pool *p;

	if (setup(run))
		return -1;
	p = &((struct shared *)run->shared)->pool;
	while (p->threads < (uint32_t)run->param[PARAM_POOL]) {
		if (pthread_create(&p->thread[p->threads], NULL, pool_main, p))
			return ct_fail(run, "cannot start a worker of the pool");
		p->threads++;
	}
	return 0;
}

/* Every reader read, and every neighbour's callback was called. */
static int check_progress(struct ct_run *run)
{
	struct shared *s = run->shared;
	const uint64_t umounts = run->workers[0].count[UMOUNTS];

	for (uint32_t i = 1; i < run->threads; i++)
		if (!run->workers[i].count[FOUND])
			return ct_starved(run, "the reader on CPU %d never came upon a "
					       "mount: nobody was waited for",
					  run->workers[i].cpu);
	if (atomic_load(&s->innocent.n) != umounts)
		return ct_fail(run, "%" PRIu64 " callbacks of neighbours for %" PRIu64
				    " umounts", atomic_load(&s->innocent.n), umounts);
	for (int64_t i = 0; i < run->param[PARAM_UMOUNTS]; i++)
		if (atomic_load(&s->mounts[i].stamp) != POISON)
			return ct_fail(run, "a mount was never released");
	return 0;
}

static int check(struct ct_run *run)
{
	if (ct_total(run, CAUGHT))
		return ct_fail(run, "a reader saw freed memory, %" PRIu64 " times",
			       ct_total(run, CAUGHT));
	return check_progress(run);
}

/* Here the bug is what is expected. With no reader there is none to see it. */
static int check_no_wait(struct ct_run *run)
{
	if (run->threads > 1 && !ct_total(run, CAUGHT))
		return ct_starved(run, "no reader saw freed memory: the race was missed");
	return check_progress(run);
}

static void teardown(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (!s)
		return;
	pthread_mutex_lock(&s->pool.mutex);
	s->pool.stop = true;
	pthread_cond_broadcast(&s->pool.more);
	pthread_mutex_unlock(&s->pool.mutex);
	while (s->pool.threads)
		pthread_join(s->pool.thread[--s->pool.threads], NULL);
	pthread_cond_destroy(&s->pool.more);
	pthread_mutex_destroy(&s->pool.mutex);
	pthread_mutex_destroy(&s->barrier_lock);
	pthread_mutex_destroy(&s->namespace_lock);
	free(s->neighbours);
	free(s->mounts);
	free(s);
}

static const struct ct_param params[] = {
	[PARAM_FLAVOUR] = { "flavour", "", "of RCU: 0 QSBR, 1 memb", FLAVOUR_QSBR,
			    0, FLAVOURS - 1 },
	[PARAM_UMOUNTS] = { "umounts", "mounts", "that come and go in an operation",
			    16, 1, 512 },
	[PARAM_PACE] = { "pace", "us", "how long a mount stays, on average",
			 1000, 0, 50000 },
	[PARAM_QUIESCENT] = { "quiescent", "us",
			      "how often a QSBR reader is quiescent", 4000, 10,
			      50000 },
	[PARAM_WALK] = { "walk", "ns", "how long a lookup stands on the mount",
			 20000, 0, 1000000 },
	[PARAM_BLOCK_EVERY] = { "block-every", "releases",
				"one in so many has to sleep; 0: none", 0, 0, 1000 },
	[PARAM_BLOCK] = { "block", "ms", "how long it sleeps", 20, 1, 500 },
	[PARAM_POOL] = { "pool", "threads", "workers of queue-rcu-work", 4, 1,
			 MAX_POOL },
	[PARAM_BARRIER] = { "barrier", "",
			    "1: rcu_barrier is called with a mutex held that each release takes",
			    0, 0, 1 },
};

static const struct ct_counter counters[] = {
	[UMOUNTS] = { "umounts", "mounts detached" },
	[WAITED] = { "waited", "grace periods that the caller waited for" },
	[BUSY] = { "busy", "umounts that returned with the device still in use" },
	[LATE] = { "late-us", "from detaching to releasing, summed" },
	[LATE_WORST] = { "late-worst-us", "the latest of each operation, summed" },
	[NEIGHBOUR] = { "neighbour-us",
			"how long the neighbours' callbacks waited, summed" },
	[NEIGHBOUR_WORST] = { "neighbour-worst-us",
			      "the longest of each operation, summed" },
	[BLOCKED] = { "blocked", "releases that slept" },
	[LOOKED] = { "looked", "lookups of the mount point" },
	[FOUND] = { "found", "lookups that found a mount there" },
	[CAUGHT] = { "caught", "lookups whose mount was freed under their feet" },
};

static const struct ct_variant variants[] = {
	{ "before", "wait for a grace period, then release", setup, before_loop,
	  check, teardown },
	{ "call-rcu", "release in a callback after the grace period", setup,
	  call_rcu_loop, check, teardown },
	{ "queue-rcu-work", "a callback hands the release to a worker thread",
	  setup_pool, queue_rcu_work_loop, check, teardown },
	{ "no-wait", "release at once: wrong, and a reader must be seen to notice",
	  setup, no_wait_loop, check_no_wait, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "umount-grace-period",
	 .summary = "detach mounts that readers may be standing on",
	 .op = "'umounts' mounts come, go and are released",
	 .min_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters), CT_TABLE(phases))
