/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * late.h - QEMU's clock, slower inside of a region.
 *
 * A guest whose every access is watched is much slower than the host, and its
 * timers still follow the host's clock: it would spend the more of its
 * instructions in timer ticks, the more vCPUs share the host.
 *
 * QEMU asks clock_gettime(CLOCK_MONOTONIC) when a timer is due. If this library
 * is loaded before all others (LD_PRELOAD) QEMU asks the function below
 * instead. Inside of a region its clock runs at a part of its speed; it never
 * goes back. The guest's own clock is the host's time stamp counter, which
 * knows nothing of this: to the guest its interrupts are late, as they are on a
 * virtual machine that was not let run.
 *
 * Loaded as a plugin only, nobody asks it, and there are more ticks.
 *
 * Part of coherence.c.
 */
#pragma once
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CT_LATE_MAX 1000000ull

static struct {
	pthread_mutex_t lock;
	uint64_t real, shown; /* nanoseconds, when the speed last changed */
	uint64_t times;	      /* slower than the host's clock */
} late = { .lock = PTHREAD_MUTEX_INITIALIZER, .times = 1 };

static uint64_t ct_shown(uint64_t real)
{
	return late.shown + (real - late.real) / late.times;
}

static uint64_t ct_nanoseconds(const struct timespec *at)
{
	return (uint64_t)at->tv_sec * 1000000000 + (uint64_t)at->tv_nsec;
}

/* From now on the clock is so many times slower than the host's. */
static void ct_late(uint64_t times)
{
	struct timespec now;

	pthread_mutex_lock(&late.lock);
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	late.shown = ct_shown(ct_nanoseconds(&now));
	late.real = ct_nanoseconds(&now);
	late.times = times;
	pthread_mutex_unlock(&late.lock);
}

/* Instead of libc's. */
QEMU_PLUGIN_EXPORT int clock_gettime(clockid_t id, struct timespec *at)
{
	uint64_t now;

	/* In the lock: a time from before the speed changed would be taken for a later one. */
	pthread_mutex_lock(&late.lock);
	const long failed = syscall(SYS_clock_gettime, id, at);

	if (!failed && id == CLOCK_MONOTONIC) {
		now = ct_shown(ct_nanoseconds(at));
		at->tv_sec = (time_t)(now / 1000000000);
		at->tv_nsec = (long)(now % 1000000000);
	}
	pthread_mutex_unlock(&late.lock);
	return (int)failed;
}
