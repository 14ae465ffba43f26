/* SPDX-License-Identifier: MIT */
/*
 * Reads under random mounts and umounts against a trivially correct reader: an
 * array of ids from which everything is recomputed at each step, without
 * list, cache or cursor. Every read of every variant must deliver the same ids
 * in the same order, and a second reader must change nothing about it. Also: no mount that stays is missed or repeated by the
 * cursor, ever, nor by the others as long as nothing changes.
 *
 * cc -DMODEL='"models/proc_mounts_seek.c"' ...; ./a.out SEED SCENARIOS
 * Prints, per variant, the mounts missed and repeated under changes.
 */
#include MODEL

#include "dice.h"

#define MOST 400
#define MARKER UINT32_MAX

/* The mounts in list order; MARKER is the naive cursor. */
static uint32_t row[2 * MOST];
static uint32_t n_row;
static uint32_t place_of(uint32_t id)
{
	uint32_t i = 0;

	while (i < n_row && row[i] != id)
		i++;
	return i;
}

static void insert(uint32_t at, uint32_t id)
{
	memmove(&row[at + 1], &row[at], (n_row - at) * sizeof(row[0]));
	row[at] = id;
	n_row++;
}

static void drop(uint32_t at)
{
	n_row--;
	memmove(&row[at], &row[at + 1], (n_row - at) * sizeof(row[0]));
}

/* What a read must deliver; position or marker move on. */
static uint32_t naive_read(const struct reader *r, enum how how, uint32_t *index,
			   bool *end, uint32_t *out)
{
	uint32_t at = *index, n = 0;
	size_t used = 0;

	if (*end && how == CURSOR)
		return 0;
	if (how == CURSOR && *index) {
		at = place_of(MARKER);
		drop(at);
	}
	while (at < n_row && used + line_length(r, row[at]) <= r->size) {
		used += line_length(r, row[at]);
		out[n++] = row[at++];
	}
	*index += n;
	*end = at >= n_row;
	if (how == CURSOR && !*end)
		insert(at, MARKER);
	return n;
}

static int scenario(enum how how, bool still, uint64_t *missed, uint64_t *repeated)
{
	uint64_t count[CT_MAX_COUNTERS] = { 0 };
	const int64_t line = 24 + roll(60), churn = still ? 0 : 1 + roll(3);
	const int64_t params[] = {
		[PARAM_MOUNTS] = 1 + roll(MOST - 1), [PARAM_LINE] = line,
		[PARAM_BUFFER] = (line + 8) * (1 + 2 * churn + roll(20)),
		[PARAM_CHURN] = churn, [PARAM_PLACE] = roll(2), [PARAM_SEED] = roll(1u << 30),
	};
	static struct ct_run run;
	uint32_t index = 0, want[MOST], n_want;
	bool end = false;
	static struct reader other;
	struct shared *s;
	ssize_t n;
	int bad = 0;

	memset(&run, 0, sizeof(run));
	run.param = params;
	if (setup(&run, how)) {
		printf("%s\n", run.error);
		return -1;
	}
	s = run.shared;
	n_row = 0;
	for (struct node *node = s->ns.head.next; node != &s->ns.head; node = node->next)
		row[n_row++] = mount_of(node)->id;
	s->pass++;
	reader_open(&s->reader);
	other = s->reader;
	other.buffer = malloc(other.size);
	while (!bad && (n = reader_read(&s->ns, &s->reader, how, count)) >= 0) {
		const char *text = s->reader.buffer;

		n_want = naive_read(&s->reader, how, &index, &end, want);
		for (uint32_t i = 0; i < n_want && !bad; i++) {
			bad = text >= s->reader.buffer + n ||
			      strtoul(text, NULL, 10) != want[i];
			text += line_length(&s->reader, want[i]);
		}
		if (bad || text != s->reader.buffer + n) {
			printf("variant %d: a read delivers something else\n", how);
			bad = -1;
			break;
		}
		if (parse(s, s->reader.buffer, (size_t)n) != n_want) {
			printf("variant %d: the text is misread\n", how);
			bad = -1;
		}
		if (!n)
			break;
		if (roll(2) && reader_read(&s->ns, &other, how, count) <= 0) {
			reader_close(&other);
			reader_open(&other);
		}
		for (int64_t i = 0; i < churn; i++) {
			const uint32_t slot = roll(s->mounts);

			drop(place_of(s->live[slot]->id));
			umount_one(s, s->live[slot]);
			bad |= mount_one(s, slot, params[PARAM_PLACE]);
			/* the naive cursor is no place in front of which to mount */
			insert(params[PARAM_PLACE] == PLACE_END ? n_row : 0,
			       s->live[slot]->id);
		}
	}
	if (n < 0) {
		printf("variant %d: showed a mount that had gone\n", how);
		bad = -1;
	}
	reader_close(&s->reader);
	reader_close(&other);
	free(other.buffer);
	judge(s, count);
	*missed += count[MISSED];
	*repeated += count[REPEATED];
	teardown(&run);
	return bad;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "before", "after", "cursor" };
	int bad = 0;

	if (argc < 3)
		return 2;
	for (int how = RESTART; how <= CURSOR; how++) {
		uint64_t still[2] = { 0 }, changing[2] = { 0 };

		dice = (uint64_t)atoll(argv[1]); /* the same scenarios for all */
		for (int i = 0; i < atoi(argv[2]) && !bad; i++) {
			bad |= scenario((enum how)how, true, &still[0], &still[1]);
			bad |= scenario((enum how)how, false, &changing[0], &changing[1]);
		}
		bad |= still[0] || still[1];
		bad |= how == CURSOR && (changing[0] || changing[1]);
		printf("%s still %" PRIu64 " %" PRIu64 " changing %" PRIu64 " %" PRIu64 "\n",
		       names[how], still[0], still[1], changing[0], changing[1]);
	}
	return bad != 0;
}
