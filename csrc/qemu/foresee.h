/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * foresee.h - which line an instruction wants, told before it runs.
 *
 * In virtual time an access to a line that is elsewhere happens when the line
 * comes, so a vCPU has to ask for it before the instruction that wants it. Which
 * line that is, is a guess: by vCPU and instruction, for locks and counters that
 * have code of their own; where that was wrong (the same code compares all names
 * and takes all locks), by the first of several things that were before it and
 * tell one call from another: see ct_keys. A guess is made of what was there
 * twice in a row, and trusted for as long as it is seldom wrong.
 *
 * Part of coherence.c.
 */
#pragma once

#define CT_GUESSES (1u << 14) /* a vCPU's, of which an instruction has some for each way to tell */
#define CT_KEYS 4 /* the ways to tell which line it is, see ct_keys */
#define CT_TRAIL 3 /* instructions that are remembered */
#define CT_TRUST 8 /* once in so many times a guess may be wrong */

struct ct_guess {
	uint64_t key; /* an instruction's address, or of it and what was before, see ct_keys */
	struct ct_entry *entry;
	bool store, sure;     /* sure: it was the same line twice in a row */
	uint8_t right, wrong; /* how often it was so when it was trusted, of late */
};

/* What a vCPU knows of its own instructions. */
struct ct_foresight {
	struct ct_guess *guesses, *trusted; /* trusted: by which it asked for a line */
	uint64_t line, before; /* that was accessed last, and before this instruction */
	struct ct_entry *moved, *beside; /* the last line that was not at hand, and before this one */
	uint64_t trail[CT_TRAIL]; /* the last instructions of those that lines are foreseen for */
	uint64_t led, reached;	  /* of all these, and before this one */
};

static _Atomic uint64_t ct_met[1u << 10]; /* a filter of instructions that have waited for lines */

static inline _Atomic uint64_t *ct_filter(uint64_t pc, uint64_t *bit)
{
	const uint64_t hash = ct_hash(pc) >> 16;

	*bit = 1ull << hash % 64;
	return &ct_met[hash / 64 % (sizeof(ct_met) / sizeof(*ct_met))];
}

/* An instruction is about to run: what was before it. */
static inline void ct_recall(struct ct_foresight *own)
{
	own->before = own->line;
	own->beside = own->moved;
	own->reached = own->led;
}

/* Whether it is one of those that lines are foreseen for; now and then wrongly. */
static inline bool ct_has_met(uint64_t pc)
{
	uint64_t bit;

	return atomic_load_explicit(ct_filter(pc, &bit), memory_order_relaxed) & bit;
}

static inline struct ct_guess *ct_guess_of(struct ct_foresight *own, uint64_t key)
{
	if (!own->guesses)
		own->guesses = ct_must(calloc(CT_GUESSES, sizeof(struct ct_guess)));
	return &own->guesses[ct_hash(key) % CT_GUESSES];
}

/*
 * By what a vCPU's guesses are kept: the instruction alone; it and the line
 * before it; it and the last line that was not at hand, as a lock's tells of
 * which object it is; it and the last instructions of those at which a vCPU has
 * waited, which tell by which call a function was reached.
 */
static inline void ct_keys(const struct ct_foresight *own, uint64_t pc, uint64_t keys[CT_KEYS])
{
	keys[0] = pc;
	keys[1] = pc ^ ct_hash(own->before + 1);
	keys[2] = pc ^ ct_hash((uintptr_t)own->beside + 2);
	keys[3] = pc ^ ct_hash(own->reached + 3);
}

/*
 * Who is not trusted is not judged. So a guess that is wrong before it was right
 * a few times is out: an instruction's alone, if it has several lines.
 */
static inline bool ct_trusts(const struct ct_guess *guess)
{
	return guess->sure && CT_TRUST * guess->wrong <= guess->right + CT_TRUST / 2;
}

/* A guess that can be trusted; NULL if there is none. */
static inline struct ct_guess *ct_foresee(struct ct_foresight *own, uint64_t pc)
{
	uint64_t keys[CT_KEYS];

	ct_keys(own, pc, keys);
	for (int i = 0; i < CT_KEYS; i++) {
		struct ct_guess *guess = ct_guess_of(own, keys[i]);

		if (guess->key == keys[i] && ct_trusts(guess))
			return guess;
	}
	return NULL;
}

/* An instruction that waits for lines, if it has to, runs; a loop's are on the trail once. */
static inline void ct_follow(struct ct_foresight *own, uint64_t pc)
{
	int last = 0;

	while (last < CT_TRAIL - 1 && own->trail[last] != pc)
		last++;
	memmove(own->trail + 1, own->trail, (size_t)last * sizeof(*own->trail));
	own->trail[0] = pc;
	own->led = 0;
	for (int i = 0; i < CT_TRAIL; i++)
		own->led = ct_hash(own->led + own->trail[i]);
}

/* A guess was trusted: was it right? What was long ago counts for less. */
static inline void ct_judge(struct ct_guess *guess, bool right)
{
	uint8_t *const n = right ? &guess->right : &guess->wrong;

	if (*n == UINT8_MAX) {
		guess->right /= 2;
		guess->wrong /= 2;
	}
	++*n;
}

/* What instruction finds which line elsewhere. */
static void ct_learn(struct ct_foresight *own, uint64_t pc, struct ct_entry *e, bool store)
{
	uint64_t keys[CT_KEYS], bit;
	_Atomic uint64_t *filter = ct_filter(pc, &bit);

	ct_keys(own, pc, keys);
	for (int i = 0; i < CT_KEYS; i++) {
		struct ct_guess *guess = ct_guess_of(own, keys[i]);
		const bool known = guess->key == keys[i];

		*guess = (struct ct_guess){
			.key = keys[i],
			.entry = e,
			.store = store,
			.sure = known && guess->entry == e,
			.right = known ? guess->right : 0,
			.wrong = known ? guess->wrong : 0,
		};
	}
	atomic_fetch_or_explicit(filter, bit, memory_order_relaxed);
}
