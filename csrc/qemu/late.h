/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * late.h - QEMU's clock inside of a region: slower than the host's, or the region's own.
 *
 * A guest whose every access is watched is much slower than the host, and its
 * timers still follow the host's clock: it would spend the more of its
 * instructions in timer ticks, the more vCPUs share the host.
 *
 * QEMU asks clock_gettime(CLOCK_MONOTONIC) when a timer is due. If this library
 * is loaded before all others (LD_PRELOAD) QEMU asks the function below
 * instead. It never goes back. Inside of a region it runs
 *
 * - at a part of its speed (`late=`). The guest's own clock is the host's time
 *   stamp counter, which knows nothing of this: to the guest its interrupts are
 *   late, as they are on a virtual machine that was not let run. Or
 * - with the slowest vCPU that runs (`clock=guest`), whose clock counts what its
 *   instructions and lines take (clock.h). While all sleep it goes from timer to
 *   timer (idle.h). The guest's time stamp counter is then this clock (tsc.h):
 *   timers, sleep, ticks and the work between them are in one time. Outside of
 *   regions a guest of that kind has a slow clock (`late=`). When it boots it
 *   measures its timers, and does without them if a busy host loses ticks. And
 *   what it does between two regions would seem to take it very long: when that
 *   was so, on a busy host, a real-time kernel's first umounts of the second
 *   region now and then took 40 to 100 ms, and not 5.
 *
 * From version 9.1 on QEMU has a call by which a plugin sets the time
 * (qemu_plugin_update_ns), but its emulator of several vCPUs never fills in the
 * function by which that is done (accel/tcg/tcg-accel-ops.c).
 *
 * Loaded as a plugin only, nobody asks it, and there are more ticks.
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CT_LATE_MAX 1000000ull

static struct {
	pthread_mutex_t lock;
	uint64_t real, shown; /* nanoseconds, at one moment */
	uint64_t times;	      /* slower than the host's clock since then */
	_Atomic bool follows; /* the region's clocks */
	uint64_t begin;	      /* what was shown when the region began */
	pthread_t main_loop;  /* QEMU's, which runs timers: see idle.h */
	uint64_t seen;	      /* what was last shown to it */
	uint64_t wakes;	      /* how often a vCPU woke up */
	uint64_t asked;	      /* how often: see ct_is_asked() */
} late = { .lock = PTHREAD_MUTEX_INITIALIZER, .times = 1 };

static uint64_t ct_nanoseconds(const struct timespec *at)
{
	return (uint64_t)at->tv_sec * 1000000000 + (uint64_t)at->tv_nsec;
}

static uint64_t ct_real(void)
{
	struct timespec now;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return ct_nanoseconds(&now);
}

/* Picoseconds of the slowest vCPU that runs; UINT64_MAX: all sleep. */
static uint64_t ct_slowest_running(void)
{
	uint64_t slowest = UINT64_MAX;

	for (uint32_t i = 0; i < atomic_load(&pace.pacers); i++) {
		const uint64_t done = atomic_load(&pacers[i].done);

		if (atomic_load(&pacers[i].running) && done < slowest)
			slowest = done;
	}
	return slowest;
}

/* With the lock held, and a time of after it was taken: else time would go back. */
static uint64_t ct_shown(uint64_t real)
{
	uint64_t slowest;

	if (!late.follows)
		return late.shown + (real - late.real) / late.times;
	slowest = ct_slowest_running();
	if (slowest != UINT64_MAX && late.begin + slowest / 1000 > late.shown)
		late.shown = late.begin + slowest / 1000;
	late.real = real;
	return late.shown;
}

/* From now on the clock is so many times slower than the host's, or `follows` the region's. */
static void ct_late(uint64_t times, bool follows)
{
	pthread_mutex_lock(&late.lock);
	const uint64_t real = ct_real();

	late.shown = ct_shown(real);
	late.real = real;
	late.times = times;
	late.follows = follows;
	late.begin = late.shown;
	pthread_mutex_unlock(&late.lock);
}

/* A vCPU goes to sleep: if it was the last, time is its own, and goes on from there. */
static void ct_late_sleep(unsigned cpu)
{
	pthread_mutex_lock(&late.lock);
	const uint64_t own = late.begin + atomic_load(&pacers[cpu].done) / 1000;

	atomic_store(&pacers[cpu].running, false);
	if (late.follows && ct_slowest_running() == UINT64_MAX)
		late.shown = own > late.shown ? own : late.shown;
	pthread_mutex_unlock(&late.lock);
}

/* A vCPU wakes up: it has slept until now. */
static void ct_late_wake(unsigned cpu)
{
	pthread_mutex_lock(&late.lock);
	late.wakes++;
	if (late.follows) {
		const uint64_t now = (ct_shown(ct_real()) - late.begin) * 1000;

		if (atomic_load(&pacers[cpu].done) < now)
			atomic_store(&pacers[cpu].done, now);
		ct_join(&pace, &pacers[cpu]);
	}
	pthread_mutex_unlock(&late.lock);
}

/* Instead of libc's. */
QEMU_PLUGIN_EXPORT int clock_gettime(clockid_t id, struct timespec *at)
{
	uint64_t now;

	pthread_mutex_lock(&late.lock);
	late.asked++;

	const long failed = syscall(SYS_clock_gettime, id, at);

	if (!failed && id == CLOCK_MONOTONIC) {
		now = ct_shown(ct_nanoseconds(at));
		if (pthread_equal(pthread_self(), late.main_loop))
			late.seen = now;
		at->tv_sec = (time_t)(now / 1000000000);
		at->tv_nsec = (long)(now % 1000000000);
	}
	pthread_mutex_unlock(&late.lock);
	return (int)failed;
}

/* Is it this function that QEMU asks, or libc's, since nobody loaded this library first? */
static bool ct_is_asked(void)
{
	void *found = dlsym(RTLD_DEFAULT, "clock_gettime");
	const uint64_t before = late.asked;
	int (*ask)(clockid_t, struct timespec *);
	struct timespec now;

	memcpy(&ask, &found, sizeof(ask));
	return found && !ask(CLOCK_MONOTONIC, &now) && late.asked > before;
}
