/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pace.h - no vCPU runs far ahead of the others.
 *
 * Under MTTCG vCPUs interleave as the host's scheduler likes: on a small host
 * one runs for milliseconds while another stands still, and contention comes
 * and goes with the host's load. So time is cut into windows of Q guest
 * instructions: a vCPU that has executed its Q waits until every running one
 * has, and then all begin the next window. At no time is one further than Q
 * instructions (and the block it is in) ahead of the slowest running one. Where
 * a machine's time is kept (clock.h), Q is picoseconds of it.
 *
 * A vCPU that halts leaves, and so does a thread in a system call; whoever
 * executes a block is in again, at the start of the current window. When a
 * region begins all are in whose threads run or want to: a host that is busy
 * may have none of them run for milliseconds, in which who began would be
 * through. The host says that, and not QEMU's callback for a vCPU that resumes:
 * it may come while qemu_plugin_reset() frees it. Who was only about to fall
 * asleep then has said so already. It is seen to sleep before it has done
 * anything, and is not waited for any more.
 *
 * A waiter counts as running for QEMU, so when somebody asks QEMU to stop all
 * vCPUs (an exclusive section), both would wait for each other. A waiter that
 * sees no progress for CT_PATIENCE_NS, and that whom it waits for sleep, not
 * only lack a host CPU, therefore executes one block: at its end QEMU gets
 * hold of it. That is an escape; escapes are counted.
 */
#pragma once
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CT_PATIENCE_NS 2000000 /* for each CT_FEW of them: all look, and host CPUs are few */
#define CT_FEW 16
#define CT_STUCK_LOOKS 4 /* in a row: who is between two sleeps for a moment is not stuck */
#define CT_LOOKS_MAX 500 /* then it goes on, whatever the others do */

struct ct_pacer {
	_Alignas(128) _Atomic uint64_t done; /* instructions, or picoseconds, in this region */
	_Atomic bool running;
	_Atomic bool asks; /* waits for a line, see arbiter.h: not to be waited for */
	_Atomic int thread; /* the host's id of it */
	uint64_t waits, escapes;
};

struct ct_pace {
	_Alignas(128) _Atomic uint64_t limit; /* the end of the window */
	_Atomic bool on;
	uint64_t quantum;
	uint32_t spins;
	bool vcpus; /* and not threads of a program */
	_Alignas(128) _Atomic uint32_t epoch; /* changes when waiters are to look again */
	_Atomic uint32_t sleepers;
	_Atomic uint32_t pacers; /* how many there are so far */
	struct ct_pacer *pacer;
};

static inline long ct_futex(_Atomic uint32_t *word, int op, uint32_t value,
			    const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* How long a waiter sleeps before it looks for itself. */
static inline struct timespec ct_patience(struct ct_pace *pace)
{
	return (struct timespec){
		.tv_nsec = CT_PATIENCE_NS * (1 + (long)atomic_load(&pace->pacers) / CT_FEW),
	};
}

static inline void ct_wake(struct ct_pace *pace)
{
	atomic_fetch_add(&pace->epoch, 1);
	if (atomic_load(&pace->sleepers))
		ct_futex(&pace->epoch, FUTEX_WAKE, INT_MAX, NULL);
}

/*
 * Open the next window if every running vCPU is at the end of this one.
 *
 * Who arrives last sees that all others have arrived, because each announces
 * itself before it looks, in one total order (the atomics are seq_cst). If
 * not: *lag becomes the sum of what the laggards have done, which moves when
 * one of them does.
 */
static inline bool ct_next_window(struct ct_pace *pace, uint64_t *lag)
{
	const uint32_t n = atomic_load(&pace->pacers);
	uint64_t limit = atomic_load(&pace->limit), slowest = UINT64_MAX, next;
	bool late = false;

	*lag = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t done;

		if (!atomic_load(&pace->pacer[i].running) || atomic_load(&pace->pacer[i].asks))
			continue;
		done = atomic_load(&pace->pacer[i].done);
		if (done < limit) {
			late = true;
			*lag += done + 1;
		}
		if (done < slowest)
			slowest = done;
	}
	if (late)
		return false;
	if (slowest == UINT64_MAX)
		return true; /* nobody runs */
	next = slowest - slowest % pace->quantum + pace->quantum;
	if (next > limit && atomic_compare_exchange_strong(&pace->limit, &limit, next))
		ct_wake(pace);
	return true;
}

/* What the host tells of a thread of ours in one of its files; "" if there is no such. */
static void ct_thread_says(int thread, const char *what, char *text, size_t size)
{
	char name[64];
	FILE *f;

	snprintf(name, sizeof(name), "/proc/self/task/%d/%s", thread, what);
	f = fopen(name, "r");
	text[f ? fread(text, 1, size - 1, f) : 0] = 0;
	if (f)
		fclose(f);
}

/* What a thread does: R it runs or may run, S it sleeps. 0: no such. */
static char ct_thread_state(int thread)
{
	char text[256], *state;

	ct_thread_says(thread, "stat", text, sizeof(text));
	state = strrchr(text, ')'); /* the name before it may hold anything */
	return state && state[1] == ' ' ? state[2] : 0;
}

/*
 * Does a thread run, or would it? Who waits for a lock would: a vCPU that was
 * woken needs QEMU's big one, and who has that may have no host CPU for long.
 * One that is halted waits for a condition, which is another kind of futex. A
 * program's threads (user mode) sleep in either kind of their own will.
 */
static bool ct_thread_wants(const struct ct_pace *pace, int thread)
{
	const char state = ct_thread_state(thread);
	unsigned long call, kind;
	char text[256];

	if (state != 'S' || !pace->vcpus)
		return state && state != 'S';
	ct_thread_says(thread, "syscall", text, sizeof(text));
	if (!strncmp(text, "running", 7))
		return true;
	return sscanf(text, "%lu %*x %lx", &call, &kind) == 2 && call == SYS_futex &&
	       (kind & FUTEX_CMD_MASK) == FUTEX_WAIT;
}

/* Do all whom we wait for sleep? */
static bool ct_stuck(struct ct_pace *pace)
{
	const uint32_t n = atomic_load(&pace->pacers);
	const uint64_t limit = atomic_load(&pace->limit);

	for (uint32_t i = 0; i < n; i++) {
		struct ct_pacer *other = &pace->pacer[i];

		if (atomic_load(&other->running) && !atomic_load(&other->asks) &&
		    atomic_load(&other->done) < limit &&
		    ct_thread_state(atomic_load(&other->thread)) == 'R')
			return false;
	}
	return true;
}

/* Who was taken for running when the region began, has done nothing since and sleeps is not in. */
static void ct_drop_asleep(struct ct_pace *pace)
{
	const uint32_t n = atomic_load(&pace->pacers);

	for (uint32_t i = 0; i < n; i++) {
		struct ct_pacer *other = &pace->pacer[i];

		if (atomic_load(&other->running) && !atomic_load(&other->asks) &&
		    !atomic_load(&other->done) && !ct_thread_wants(pace, atomic_load(&other->thread)))
			atomic_store(&other->running, false);
	}
}

/* At the end of the window: wait for the others. */
static inline void ct_wait_for_others(struct ct_pace *pace, struct ct_pacer *me)
{
	const uint64_t done = atomic_load_explicit(&me->done, memory_order_relaxed);
	const struct timespec patience = ct_patience(pace);
	uint64_t lag, last_lag = 0;
	uint32_t spins = pace->spins, looks = 0;
	bool waited = false;

	atomic_store(&me->done, done); /* announced: see ct_next_window */
	while (atomic_load(&pace->on) && done >= atomic_load(&pace->limit)) {
		const uint32_t epoch = atomic_load(&pace->epoch);
		bool late;

		if (ct_next_window(pace, &lag))
			continue;
		if (!waited)
			me->waits++;
		waited = true;
		if (spins) { /* the others have host CPUs of their own */
			spins--;
			continue;
		}
		atomic_fetch_add(&pace->sleepers, 1);
		late = ct_futex(&pace->epoch, FUTEX_WAIT, epoch, &patience) && errno == ETIMEDOUT;
		atomic_fetch_sub(&pace->sleepers, 1);
		if (late && lag == last_lag) {
			ct_drop_asleep(pace);
			if (ct_next_window(pace, &lag))
				continue;
			if (ct_stuck(pace) || ++looks == CT_LOOKS_MAX) {
				me->escapes++;
				return;
			}
		}
		last_lag = lag;
	}
}

static inline void ct_leave(struct ct_pace *pace, struct ct_pacer *me)
{
	uint64_t lag;

	atomic_store(&me->thread, (int)syscall(SYS_gettid));
	atomic_store(&me->running, false);
	if (atomic_load(&pace->on) && pace->quantum)
		ct_next_window(pace, &lag);
}

static inline void ct_join(struct ct_pace *pace, struct ct_pacer *me)
{
	const uint64_t limit = atomic_load(&pace->limit);
	const uint64_t start = limit > pace->quantum ? limit - pace->quantum : 0;

	if (atomic_load_explicit(&me->done, memory_order_relaxed) < start)
		atomic_store(&me->done, start);
	atomic_store(&me->thread, (int)syscall(SYS_gettid));
	atomic_store(&me->running, true);
}

/* A block of n instructions begins. */
static inline void ct_pace_block(struct ct_pace *pace, struct ct_pacer *me, uint64_t n)
{
	uint64_t done;

	if (!atomic_load_explicit(&me->running, memory_order_relaxed))
		ct_join(pace, me);
	done = atomic_load_explicit(&me->done, memory_order_relaxed);
	if (done >= atomic_load_explicit(&pace->limit, memory_order_relaxed))
		ct_wait_for_others(pace, me);
	atomic_store_explicit(&me->done, done + n, memory_order_relaxed);
}

static inline void ct_pace_begin(struct ct_pace *pace)
{
	for (uint32_t i = 0; i < atomic_load(&pace->pacers); i++) {
		atomic_store(&pace->pacer[i].done, 0);
		atomic_store(&pace->pacer[i].running,
			     ct_thread_wants(pace, atomic_load(&pace->pacer[i].thread)));
		pace->pacer[i].waits = pace->pacer[i].escapes = 0;
	}
	atomic_store(&pace->limit, pace->quantum);
	atomic_store(&pace->on, true);
}

static inline void ct_pace_end(struct ct_pace *pace)
{
	atomic_store(&pace->on, false);
	ct_wake(pace);
}
