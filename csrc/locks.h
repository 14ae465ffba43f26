/* SPDX-License-Identifier: MIT */
/*
 * locks.h - three spin locks that fit in 32 bits, as the lock half of a
 * lockref must. Zero is "free" for all of them; a ticket lock is free
 * whenever its two halves are equal.
 *
 *  - test-and-set: whoever's atomic gets there first. Unfair: the CPU that
 *    has the line usually wins again.
 *  - ticket: first come, first served; all waiters spin on the lock's line.
 *  - queued: first come, first served; each waiter spins on a line of its
 *    own (Mellor-Crummey and Scott's queue, its tail packed into the word).
 *    Linux's qspinlock is this with a fast path for the first waiter, which
 *    is left out here.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lock_kind { LOCK_TAS, LOCK_TICKET, LOCK_QUEUED, LOCK_KINDS };

/* A waiter's place in the queue of a queued lock: one for each thread. */
struct lock_node {
	_Alignas(256) struct lock_node *_Atomic next;
	_Atomic bool granted;
};

static inline void lock_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline void tas_acquire(_Atomic uint32_t *lock)
{
	while (atomic_exchange_explicit(lock, 1, memory_order_acquire))
		while (atomic_load_explicit(lock, memory_order_relaxed))
			lock_relax();
}

static inline void tas_release(_Atomic uint32_t *lock)
{
	atomic_store_explicit(lock, 0, memory_order_release);
}

/* Upper half: the next ticket to hand out. Lower half: the one being served. */
#define TICKET_ONE 0x10000u

static inline void ticket_acquire(_Atomic uint32_t *lock)
{
	const uint32_t seen = atomic_fetch_add_explicit(lock, TICKET_ONE,
							memory_order_acquire);
	const uint16_t mine = (uint16_t)(seen >> 16);

	if ((uint16_t)seen == mine)
		return;
	while ((uint16_t)atomic_load_explicit(lock, memory_order_acquire) != mine)
		lock_relax();
}

static inline void ticket_release(_Atomic uint32_t *lock)
{
	uint32_t old = atomic_load_explicit(lock, memory_order_relaxed);
	uint32_t new;

	/* Not a plain add: a carry out of "served" would hand out a ticket. */
	do
		new = (old & 0xffff0000u) | (uint16_t)(old + 1);
	while (!atomic_compare_exchange_weak_explicit(lock, &old, new,
						      memory_order_release,
						      memory_order_relaxed));
}

/* Lower half: 1 while held. Upper half: the last waiter's number plus one. */
#define QUEUED_HELD 0x0000ffffu

static inline void queued_acquire(_Atomic uint32_t *lock,
				  struct lock_node *nodes, uint32_t me)
{
	struct lock_node *node = &nodes[me];
	const uint32_t tail = (me + 1) << 16;
	uint32_t old = 0;

	if (atomic_compare_exchange_strong_explicit(lock, &old, 1,
						    memory_order_acquire,
						    memory_order_relaxed))
		return;

	atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
	atomic_store_explicit(&node->granted, false, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(
		       lock, &old, (old & QUEUED_HELD) | tail,
		       memory_order_acq_rel, memory_order_relaxed))
		;
	if (old >> 16) {
		struct lock_node *previous = &nodes[(old >> 16) - 1];

		atomic_store_explicit(&previous->next, node, memory_order_release);
		while (!atomic_load_explicit(&node->granted, memory_order_acquire))
			lock_relax();
	}

	/* First in the queue: wait for the owner, then take its place. */
	do {
		while ((old = atomic_load_explicit(lock, memory_order_acquire)) &
		       QUEUED_HELD)
			lock_relax();
	} while (!atomic_compare_exchange_weak_explicit(
		lock, &old, (old == tail ? 0 : old) | 1, memory_order_acquire,
		memory_order_relaxed));
	if (old == tail)
		return; /* nobody behind */

	struct lock_node *next;

	while (!(next = atomic_load_explicit(&node->next, memory_order_acquire)))
		lock_relax();
	atomic_store_explicit(&next->granted, true, memory_order_release);
}

static inline void queued_release(_Atomic uint32_t *lock)
{
	atomic_fetch_and_explicit(lock, ~QUEUED_HELD, memory_order_release);
}

static inline void lock_acquire(enum lock_kind kind, _Atomic uint32_t *lock,
				struct lock_node *nodes, uint32_t me)
{
	if (kind == LOCK_TAS)
		tas_acquire(lock);
	else if (kind == LOCK_TICKET)
		ticket_acquire(lock);
	else
		queued_acquire(lock, nodes, me);
}

static inline void lock_release(enum lock_kind kind, _Atomic uint32_t *lock)
{
	if (kind == LOCK_TAS)
		tas_release(lock);
	else if (kind == LOCK_TICKET)
		ticket_release(lock);
	else
		queued_release(lock);
}

/* Does this value of the lock word mean that nobody holds or awaits it? */
static inline bool lock_value_free(enum lock_kind kind, uint32_t value)
{
	return kind == LOCK_TICKET ? (uint16_t)value == value >> 16 : !value;
}
