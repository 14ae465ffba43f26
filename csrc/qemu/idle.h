/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * idle.h - while all vCPUs sleep, time stands still, or goes to the next timer at once.
 *
 * A guest that sleeps waits for a timer, and QEMU's main loop for the host to
 * tell it that one is due: with ppoll(), which is late on a busy host, as is
 * the thread of a vCPU that a timer has woken. In the region's own time
 * (late.h, clock=guest) neither may count. So the main loop asks the function
 * below instead. When all vCPUs sleep it waits for nothing: the clock is then
 * what the main loop wants to be woken at.
 *
 * Who has been woken sleeps no longer, however late the host lets it run. QEMU
 * does not tell that, but the host does: a thread that may run is not asleep
 * in /proc/self/task/ID/stat. A woken vCPU may have to wait for QEMU's big lock.
 * The main loop gives it up before it asks, and who else has it, such as the
 * thread that frees what RCU protects, is not asleep.
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include <dirent.h>
#include <poll.h>
#include <signal.h>

#define CT_LOOK_NS 200000ull /* how often to see whether all sleep by now */

/* Do all threads of this process sleep, as the host says it, but for who asks? */
static bool ct_others_sleep(void)
{
	const int me = (int)syscall(SYS_gettid);
	DIR *threads = opendir("/proc/self/task");
	const struct dirent *entry;
	bool all = threads;

	while (all && (entry = readdir(threads))) {
		const int thread = atoi(entry->d_name); /* 0: . and .. */

		all = !thread || thread == me || ct_thread_state(thread) == 'S';
	}
	if (threads)
		closedir(threads);
	return all;
}

/*
 * Is the time the region's, and nobody there to make it go on? Says how often
 * vCPUs had woken up. Whoever was asked first may be woken while the others are
 * asked, by one of them that then sleeps itself, so all are asked twice.
 */
static bool ct_all_sleep(uint64_t *wakes)
{
	bool all;

	pthread_mutex_lock(&late.lock);
	ct_drop_asleep(&pace);
	all = late.follows && ct_slowest_running() == UINT64_MAX;
	*wakes = late.wakes;
	pthread_mutex_unlock(&late.lock);
	return all && ct_others_sleep() && ct_others_sleep();
}

/*
 * It is as late as the main loop wants to be woken, counted from when it last
 * saw the clock; unless a vCPU has run since all were asked.
 */
static void ct_jump(uint64_t wanted, uint64_t wakes)
{
	pthread_mutex_lock(&late.lock);
	if (late.follows && late.wakes == wakes && ct_slowest_running() == UINT64_MAX &&
	    late.seen + wanted > late.shown)
		late.shown = late.seen + wanted;
	pthread_mutex_unlock(&late.lock);
}

static int ct_ask_host(struct pollfd *fds, nfds_t n, uint64_t ns, const sigset_t *mask)
{
	struct timespec until = {
		.tv_sec = (time_t)(ns / 1000000000),
		.tv_nsec = (long)(ns % 1000000000),
	};

	return (int)syscall(SYS_ppoll, fds, n, ns == UINT64_MAX ? NULL : &until, mask,
			    (_NSIG - 1) / 8);
}

/* Instead of libc's. */
QEMU_PLUGIN_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
			     const sigset_t *mask)
{
	const uint64_t wanted = timeout ? ct_nanoseconds(timeout) : UINT64_MAX;
	uint64_t left = wanted, now = 0, wakes;

	if (!timeout || !wanted || !pthread_equal(pthread_self(), late.main_loop))
		return ct_ask_host(fds, n, wanted, mask);
	while (atomic_load(&late.follows)) {
		/* Who falls asleep may have set another timer just before, and then says so. */
		const bool all = ct_all_sleep(&wakes);
		const int found = ct_ask_host(fds, n, all ? 0 : now, mask);

		if (found)
			return found;
		if (all)
			ct_jump(wanted, wakes);
		if (all || !left)
			return 0;
		now = left < CT_LOOK_NS ? left : CT_LOOK_NS;
		left -= now;
	}
	return ct_ask_host(fds, n, left, mask);
}

/* The same, as a program asks for it whose compiler looks at the array's size. */
QEMU_PLUGIN_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
				   const sigset_t *mask, size_t bytes);

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		const sigset_t *mask, size_t bytes)
{
	if (bytes / sizeof(*fds) < n)
		abort();
	return ppoll(fds, n, timeout, mask);
}
