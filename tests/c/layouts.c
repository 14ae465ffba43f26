/* SPDX-License-Identifier: MIT */
/*
 * layouts.c - structs, inlined functions and calls, for the tests of dwarf.py.
 * Compiled with -O2 -g and never run.
 */
#include <stdint.h>

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	atomic_t value;
	int owner;
} spinlock_t;

enum pageflags { PG_locked, PG_dirty = 4, PG_slab = 9 };

struct list {
	struct list *next, *prev;
};

struct lockref {
	union {
		uint64_t lock_count;
		struct {
			atomic_t lock;
			int count;
		};
	};
};

/* The linker may keep this name as the tail of the next one. */
struct entry {
	unsigned flags;
	struct {
		short first;
		short second;
	};
	char name[16];
	struct lockref ref;
	union {
		struct list lru;
		void *wait;
	};
	struct list children[3];
	int grid[2][3];
	spinlock_t guard;
	unsigned bit : 1;
	unsigned bits : 9;
	char pad;
	const struct entry *parent;
};

struct long_entry {
	struct entry *entry;
	int last;
	struct list tail[];
};

/* So short a name is kept in the entry itself. */
struct ns {
	int id;
};

struct entry root_entry = { .flags = PG_slab | PG_dirty | PG_locked };
struct long_entry longest;
struct ns first_ns;
static int plain = 3;

__attribute__((noinline)) void spin_lock(spinlock_t *lock)
{
	while (__atomic_exchange_n(&lock->value.counter, 1, __ATOMIC_ACQUIRE))
		;
}

static inline __attribute__((always_inline)) int innermost(struct entry *e)
{
	return __atomic_add_fetch(&e->ref.count, 1, __ATOMIC_RELAXED);
}

static inline __attribute__((always_inline)) int middle(struct entry *e)
{
	if (e->flags & 1)
		return innermost(e);
	return e->first;
}

__attribute__((noinline)) int take(struct entry *e)
{
	int got = middle(e);

	if (!got) {
		spin_lock(&e->guard);
		got = middle(e) + plain;
	}
	return got;
}

__attribute__((noinline)) int take_twice(struct entry *e)
{
	spin_lock(&e->guard);
	plain += take(e);
	spin_lock(&root_entry.guard);
	return take(&root_entry) + longest.last + first_ns.id;
}

int main(void)
{
	return take_twice(&root_entry);
}
