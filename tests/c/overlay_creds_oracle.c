/* SPDX-License-Identifier: MIT */
/*
 * The credentials of csrc/models/overlay_creds.c against a plain stack.
 *
 *   cc -DMODEL='"models/overlay_creds.c"' ...; ./overlay_creds_oracle SEED ROUNDS
 *
 * Overrides of every kind are nested in each other at random, some scopes are
 * left early. The oracle is the C stack: after each step the task's current
 * credentials are those that the innermost open override installed, and each
 * count is one more than the counting overrides that are open. The permission
 * check is compared with one that is written out. Exits 1 on a difference.
 */
#include MODEL

#include "dice.h"

#define MOUNTS 5
#define DEEP 6

static struct ct_run run;
static struct ct_worker *me;
static struct overlay *overlay;
static uint64_t open_counts[MOUNTS][2]; /* usage, usage_apart */
static uint64_t rounds_left;

static void verify(const struct cred *expected, const char *when)
{
	if (current_cred(me) != expected) {
		printf("the wrong credentials %s\n", when);
		exit(1);
	}
	for (int i = 0; i < MOUNTS; i++)
		if (overlay[i].creator.usage != 1 + open_counts[i][0] ||
		    overlay[i].creator.usage_apart != 1 + open_counts[i][1]) {
			printf("a wrong count %s\n", when);
			exit(1);
		}
}

static void nest(int depth);

static void inside(const struct cred *expected, int depth)
{
	verify(expected, "after an override");
	while (depth && roll(2))
		nest(depth - 1);
	verify(expected, "back from deeper down");
}

static void by_hand(int i, enum kind kind, int depth)
{
	const int counted = kind == BEFORE ? 0 : kind == OWN_LINE ? 1 : -1;
	struct cred *old = override_creds(me, &overlay[i].creator, kind);

	if (counted >= 0)
		open_counts[i][counted]++;
	inside(&overlay[i].creator, depth);
	if (counted >= 0)
		open_counts[i][counted]--;
	revert_creds(me, old, kind);
}

static int by_scope(int i, int depth)
{
	WITH_CREDS(me, &overlay[i].creator);

	if (roll(3) == 0)
		return -EINTR;
	inside(&overlay[i].creator, depth);
	if (roll(3) == 0)
		return REFUSED;
	verify(&overlay[i].creator, "at the end of a scope");
	return ALLOWED;
}

static void nest(int depth)
{
	struct cred *at_first = current_cred(me);
	const int i = (int)roll(MOUNTS);
	const enum kind kind = (enum kind)roll(GUARDED + 1);

	if (rounds_left)
		rounds_left--;
	if (kind == GUARDED)
		by_scope(i, depth);
	else
		by_hand(i, kind, depth);
	verify(at_first, "after a revert");
}

/* Every mode, as each sort of user. */
static void permissions(void)
{
	struct cred cred = { .fsuid = 1, .fsgid = 1 };

	set_current_cred(me, &cred);
	for (uint32_t mode = 0; mode <= 0777; mode++)
		for (int who = 0; who < 16; who++) {
			const struct inode inode = { who & 1, who >> 1 & 1, mode };
			bool may;

			cred.cap_effective = who & 4 ? CAP_ANY_FILE : 0;
			cred.uid = cred.euid = who & 8 ? 1 : 0; /* do not count */
			if (who & 4)
				may = true;
			else if (inode.uid == 1)
				may = mode & 0400;
			else if (inode.gid == 1)
				may = mode & 0040;
			else
				may = mode & 0004;
			if ((may_read(me, &inode) == ALLOWED) != may) {
				printf("a wrong permission for mode %o\n", mode);
				exit(1);
			}
		}
}

int main(int argc, char **argv)
{
	static const int64_t param[] = { MOUNT_SHARED, 0 };
	struct shared *s;

	if (argc != 3)
		return 2;
	dice = strtoull(argv[1], NULL, 0);
	rounds_left = strtoull(argv[2], NULL, 0);
	run.threads = MOUNTS;
	run.param = param;
	if (setup(&run))
		return 2;
	s = run.shared;
	overlay = s->overlay;
	me = ct_alloc(sizeof(*me));
	me->run = &run;
	me->shared = s;
	me->param = param;
	while (rounds_left)
		nest(DEEP);
	verify(&s->task[0].own, "at the end");
	if (run.error[0] || me->local[NESTING]) {
		printf("%s\n", run.error);
		return 1;
	}
	permissions();
	teardown(&run);
	free(me);
	puts("good");
	return 0;
}
