/* SPDX-License-Identifier: MIT */
/*
 * percpu_area_map.c - an allocator that adds up lengths to find anything.
 *
 * The bug: the kernel's per-CPU allocator cut a chunk of address space into
 * areas and kept, in the order of their addresses, the length of each: above
 * zero if the area was free, below zero if it was in use. Nothing says where
 * area number i begins but the sum of all lengths before it. So an allocation
 * walks over every area in use until it meets a free one, and freeing walks
 * over every area until the sum is the address it was given.
 *
 * The hypothesis: N areas allocated and freed cost O(N^2) steps, and each of
 * the two fixes cures one half.
 *
 * Variants:
 *   before           signed lengths, both walks from the start.
 *   offset-bit       the map holds offset | in-use bit instead, ascending, so
 *                    that freeing finds its entry by binary search.
 *   first-free-hint  signed lengths, but the allocator remembers how many
 *                    entries at the start are certainly in use (with lengths
 *                    it must remember where they end, too), and skips them.
 *   after            both, as Linux 3.15 had it.
 *   bitmap           what came later, in its simplest form: a bit for each
 *                    four bytes, and a second bitmap with a bit where an area
 *                    begins or ends. Each word of 64 bits looked at is a step.
 *
 * The operation allocates "areas" areas of one size and frees them all, in
 * the order asked for. Counted apart: steps (entries of the map, or words of
 * the bitmap, that were looked at) and moves (entries that were shifted
 * because the map is an array and one entry became two, or two one). No
 * variant but bitmap does anything about the moves.
 *
 * The chunk is as long as all areas together need. The kernel's chunk has a
 * fixed length, and there are several: its N^2 ends where a chunk is full.
 *
 * Left out: several chunks and the lists they are sorted in, the hint that
 * says how long the longest free area is, growing the map, pages behind the
 * areas, and the lock with interrupts off under which all of this ran. Sizes
 * are rounded up to four bytes, so that no crumb is left that is smaller than
 * that; the kernel gave crumbs to the neighbour. The bitmap has none of the
 * later allocator's summaries for each page.
 */
#include "../harness.h"

#define UNIT 4 /* bytes; every offset and size is a multiple */
#define MAX_SCANNED 65536
#define MAX_BYTES (1 << 28)

enum { PARAM_AREAS, PARAM_SIZE, PARAM_ALIGN, PARAM_ORDER, PARAM_HOLE, PARAM_SEED };
enum { ALLOC_STEPS, FREE_STEPS, ALLOC_MOVES, FREE_MOVES, ALLOC_NS, FREE_NS };
enum { ORDER_NEWEST, ORDER_OLDEST, ORDER_RANDOM };

/*
 * One chunk. With lengths, map[i] is the signed length of area i. With
 * offsets, it is where area i begins, with the lowest bit set if it is in
 * use, and map[used] is the end of the chunk, in use: a sentinel.
 */
struct chunk {
	int32_t bytes;
	uint32_t used;      /* entries of the map */
	uint32_t capacity;
	uint32_t full;      /* hint: so many entries at the start are in use */
	int32_t full_bytes; /* hint, with lengths: where they end */
	int32_t *map;
	uint64_t *taken;    /* bitmap: in use */
	uint64_t *bounds;   /* bitmap: an area in use begins or ended here */
	uint32_t bits;
	uint32_t first_zero; /* hint: no zero in taken before this bit */
};

static inline int32_t round_up(int32_t n, int32_t to)
{
	return (n + to - 1) & -to;
}

/* Make room for extra entries behind entry i; the moves are counted. */
static inline void map_open(struct chunk *c, uint32_t i, uint32_t extra,
			    uint32_t tail, uint64_t *moves)
{
	const uint32_t n = c->used + tail - i;

	memmove(&c->map[i + extra], &c->map[i], n * sizeof(c->map[0]));
	c->used += extra;
	*moves += n;
}

/* Drop entries i to i + gone - 1. */
static inline void map_close(struct chunk *c, uint32_t i, uint32_t gone,
			     uint32_t tail, uint64_t *moves)
{
	const uint32_t n = c->used + tail - i - gone;

	memmove(&c->map[i], &c->map[i + gone], n * sizeof(c->map[0]));
	c->used -= gone;
	*moves += n;
}

/* --- Signed lengths -------------------------------------------------------- */

static inline __attribute__((always_inline)) int32_t
lengths_alloc(struct chunk *c, uint64_t *count, int32_t size, int32_t align,
	      bool hint)
{
	uint32_t i = hint ? c->full : 0;
	int32_t off = hint ? c->full_bytes : 0;
	bool passed_free = false;
	uint64_t steps = 0;
	int32_t found = -1;

	for (; i < c->used; off += abs(c->map[i++])) {
		int32_t head, tail;
		uint32_t extra;

		steps++;
		if (c->map[i] < 0)
			continue; /* in use */
		head = round_up(off, align) - off;
		tail = c->map[i] - head - size;
		if (tail < 0) {
			if (!passed_free) {
				c->full = i;
				c->full_bytes = off;
				passed_free = true;
			}
			continue; /* free, but too small */
		}
		extra = (head > 0) + (tail > 0);
		if (extra)
			map_open(c, i, extra, 0, &count[ALLOC_MOVES]);
		if (!passed_free) {
			c->full = head ? i : i + 1;
			c->full_bytes = head ? off : off + size;
		}
		if (head)
			c->map[i++] = head;
		c->map[i] = -size;
		if (tail)
			c->map[i + 1] = tail;
		found = off + head;
		break;
	}
	count[ALLOC_STEPS] += steps;
	return found;
}

/* Returns 0, or -1 if no area in use begins there. */
static inline int lengths_free(struct chunk *c, uint64_t *count, int32_t wanted)
{
	int32_t off = 0;
	uint32_t i = 0, gone = 0;

	while (i < c->used && off < wanted)
		off += abs(c->map[i++]);
	count[FREE_STEPS] += i + 1;
	if (i == c->used || off != wanted || c->map[i] > 0)
		return -1;
	if (i < c->full) {
		c->full = i;
		c->full_bytes = off;
	}
	c->map[i] = -c->map[i];
	if (i + 1 < c->used && c->map[i + 1] > 0) {
		c->map[i] += c->map[i + 1];
		gone++;
	}
	if (i > 0 && c->map[i - 1] > 0) {
		c->map[i - 1] += c->map[i];
		gone++;
		i--;
	}
	if (gone)
		map_close(c, i + 1, gone, 0, &count[FREE_MOVES]);
	return 0;
}

/* --- Offset and in-use bit ------------------------------------------------- */

static inline __attribute__((always_inline)) int32_t
offsets_alloc(struct chunk *c, uint64_t *count, int32_t size, int32_t align,
	      bool hint)
{
	bool passed_free = false;
	uint64_t steps = 0;
	int32_t found = -1;

	for (uint32_t i = hint ? c->full : 0; i < c->used; i++) {
		const int32_t off = c->map[i];
		int32_t head, tail;
		uint32_t extra;

		steps++;
		if (off & 1)
			continue; /* in use */
		head = round_up(off, align) - off;
		tail = (c->map[i + 1] & ~1) - off - head - size;
		if (tail < 0) {
			if (!passed_free) {
				c->full = i;
				passed_free = true;
			}
			continue; /* free, but too small */
		}
		extra = (head > 0) + (tail > 0);
		if (extra)
			map_open(c, i + 1, extra, 1, &count[ALLOC_MOVES]);
		if (!passed_free)
			c->full = head ? i : i + 1;
		if (head)
			i++;
		found = off + head;
		c->map[i] = found | 1;
		if (tail)
			c->map[i + 1] = found + size;
		break;
	}
	count[ALLOC_STEPS] += steps;
	return found;
}

static inline int offsets_free(struct chunk *c, uint64_t *count, int32_t wanted)
{
	const int32_t entry = wanted | 1;
	uint32_t i = 0, end = c->used, gone = 0;

	/* the lowest index whose entry is not below the one we look for */
	while (i < end) {
		const uint32_t middle = i + (end - i) / 2;

		count[FREE_STEPS]++;
		if (c->map[middle] < entry)
			i = middle + 1;
		else
			end = middle;
	}
	if (i == c->used || c->map[i] != entry)
		return -1;
	if (i < c->full)
		c->full = i;
	c->map[i] = wanted;
	gone += !(c->map[i + 1] & 1);
	if (i > 0 && !(c->map[i - 1] & 1)) {
		gone++;
		i--;
	}
	if (gone)
		map_close(c, i + 1, gone, 1, &count[FREE_MOVES]);
	return 0;
}

/* --- Bitmap ---------------------------------------------------------------- */

/*
 * The first bit that is set (flip 0) or clear (flip ~0) in [from, end), or
 * end; each word looked at is a step.
 */
static inline uint32_t find_bit(const uint64_t *words, uint32_t from,
				uint32_t end, uint64_t flip, uint64_t *steps)
{
	while (from < end) {
		const uint64_t word = (words[from / 64] ^ flip) >> (from % 64);

		++*steps;
		if (word) {
			from += (uint32_t)__builtin_ctzll(word);
			return from < end ? from : end;
		}
		from = (from / 64 + 1) * 64;
	}
	return end;
}

static inline void put_bits(uint64_t *words, uint32_t from, uint32_t n, bool value)
{
	while (n) {
		const uint32_t at = from % 64, some = n < 64 - at ? n : 64 - at;
		const uint64_t mask = (some < 64 ? (1ull << some) - 1 : ~0ull) << at;

		if (value)
			words[from / 64] |= mask;
		else
			words[from / 64] &= ~mask;
		from += some;
		n -= some;
	}
}

static inline int32_t bitmap_alloc(struct chunk *c, uint64_t *count,
				   int32_t size, int32_t align)
{
	const uint32_t n = (uint32_t)size / UNIT;
	uint64_t *steps = &count[ALLOC_STEPS];
	uint32_t zero = find_bit(c->taken, c->first_zero, c->bits, ~0ull, steps);

	c->first_zero = zero;
	while (zero < c->bits) {
		const uint32_t at = (uint32_t)round_up((int32_t)zero, align / UNIT);
		uint32_t end;

		if (at > c->bits || c->bits - at < n)
			return -1;
		end = find_bit(c->taken, at, at + n, 0, steps);
		if (end == at + n) {
			put_bits(c->taken, at, n, true);
			put_bits(c->bounds, at, 1, true);
			put_bits(c->bounds, at + 1, n - 1, false);
			put_bits(c->bounds, at + n, 1, true);
			if (at == c->first_zero)
				c->first_zero = at + n;
			return (int32_t)at * UNIT;
		}
		zero = find_bit(c->taken, end, c->bits, ~0ull, steps);
	}
	return -1;
}

static inline int bitmap_free(struct chunk *c, uint64_t *count, int32_t wanted)
{
	const uint32_t at = (uint32_t)wanted / UNIT;
	uint32_t end;

	if (at >= c->bits || !(c->bounds[at / 64] >> (at % 64) & 1) ||
	    !(c->taken[at / 64] >> (at % 64) & 1))
		return -1;
	end = find_bit(c->bounds, at + 1, c->bits, 0, &count[FREE_STEPS]);
	put_bits(c->taken, at, end - at, false);
	if (at < c->first_zero)
		c->first_zero = at;
	return 0;
}

/* --- Which of them --------------------------------------------------------- */

enum kind { BEFORE, OFFSET_BIT, FIRST_FREE_HINT, AFTER, BITMAP, KINDS };

static inline bool has_offsets(enum kind kind)
{
	return kind == OFFSET_BIT || kind == AFTER;
}

static inline __attribute__((always_inline)) int32_t
area_alloc(enum kind kind, struct chunk *c, uint64_t *count, int32_t size,
	   int32_t align)
{
	switch (kind) {
	case BITMAP:
		return bitmap_alloc(c, count, size, align);
	case OFFSET_BIT:
		return offsets_alloc(c, count, size, align, false);
	case AFTER:
		return offsets_alloc(c, count, size, align, true);
	case FIRST_FREE_HINT:
		return lengths_alloc(c, count, size, align, true);
	default:
		return lengths_alloc(c, count, size, align, false);
	}
}

static inline __attribute__((always_inline)) int
area_free(enum kind kind, struct chunk *c, uint64_t *count, int32_t off)
{
	if (kind == BITMAP)
		return bitmap_free(c, count, off);
	return has_offsets(kind) ? offsets_free(c, count, off)
				 : lengths_free(c, count, off);
}

static void chunk_destroy(struct chunk *c)
{
	free(c->map);
	free(c->taken);
	free(c->bounds);
}

/* A chunk of that many bytes, all free, whose map never needs to grow. */
static int chunk_create(struct chunk *c, enum kind kind, int32_t bytes,
			uint32_t areas)
{
	*c = (struct chunk){ .bytes = bytes };
	if (kind == BITMAP) {
		const size_t words = (size_t)bytes / UNIT / 64 + 1;

		c->bits = (uint32_t)bytes / UNIT;
		c->taken = ct_alloc(words * sizeof(c->taken[0]));
		c->bounds = ct_alloc(words * sizeof(c->bounds[0]));
		return c->taken && c->bounds ? 0 : -1;
	}
	/* a free area before each, one at the end, and the sentinel */
	c->capacity = 2 * areas + 2;
	/* ct_alloc touches the memory: no page fault is timed later */
	c->map = ct_alloc(c->capacity * sizeof(c->map[0]));
	if (!c->map)
		return -1;
	c->used = 1;
	c->map[0] = has_offsets(kind) ? 0 : bytes;
	if (has_offsets(kind))
		c->map[1] = bytes | 1;
	return 0;
}

/* Is the chunk one free area again, from byte "from" on? */
static bool chunk_empty_from(const struct chunk *c, enum kind kind, int32_t from)
{
	uint64_t steps = 0;

	if (kind == BITMAP)
		return find_bit(c->taken, (uint32_t)from / UNIT, c->bits, 0,
				&steps) == c->bits;
	if (has_offsets(kind))
		return c->map[c->used] == (c->bytes | 1) &&
		       c->map[c->used - 1] == from;
	return c->map[c->used - 1] == c->bytes - from;
}

/* --- The model ------------------------------------------------------------- */

struct shared {
	struct chunk chunk;
	int32_t size, align, stride, base;
	uint32_t areas;
	int32_t fence;   /* bytes at the start that stay as they are */
	int32_t *offset; /* of each area */
	uint32_t *order; /* in which they are freed */
};

static inline __attribute__((always_inline)) void op(struct ct_worker *w,
						     enum kind kind)
{
	struct shared *s = w->shared;
	const int64_t n = s->areas;
	int64_t sum = 0;
	uint64_t t0 = ct_now(), t1;

	for (uint32_t i = 0; i < s->areas; i++) {
		s->offset[i] = area_alloc(kind, &s->chunk, w->count, s->size,
					  s->align);
		sum += s->offset[i];
	}
	t1 = ct_now();
	w->count[ALLOC_NS] += t1 - t0;
	/* equal areas lie one behind the other: we know where they must be */
	if (sum != n * s->base + n * (n - 1) / 2 * s->stride)
		ct_fail(w->run, "the areas are not where they should be");
	t0 = ct_now();
	for (uint32_t i = 0; i < s->areas; i++)
		if (area_free(kind, &s->chunk, w->count, s->offset[s->order[i]]))
			ct_fail(w->run, "the map does not know area %u",
				s->order[i]);
	w->count[FREE_NS] += ct_now() - t0;
	if (!chunk_empty_from(&s->chunk, kind, s->fence))
		ct_fail(w->run, "all areas are freed, but the chunk is not one free area");
}

/* Which areas to free first; the random order is the same for one seed. */
static void put_in_order(struct shared *s, int64_t order, uint64_t seed)
{
	const uint32_t n = s->areas;

	for (uint32_t i = 0; i < n; i++)
		s->order[i] = order == ORDER_NEWEST ? n - 1 - i : i;
	for (uint32_t i = n; order == ORDER_RANDOM && i > 1; i--) {
		uint32_t k, other;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		k = (uint32_t)((seed >> 33) % i);
		other = s->order[k];
		s->order[k] = s->order[i - 1];
		s->order[i - 1] = other;
	}
}

static int setup(struct ct_run *run, enum kind kind)
{
	const int64_t areas = run->param[PARAM_AREAS];
	const int64_t align = run->param[PARAM_ALIGN];
	const bool hole = run->param[PARAM_HOLE];
	const int64_t size = (run->param[PARAM_SIZE] + UNIT - 1) / UNIT * UNIT;
	uint64_t ignored[CT_MAX_COUNTERS] = { 0 };
	int64_t stride, bytes;
	struct shared *s;

	if (align & (align - 1))
		return ct_fail(run, "align must be a power of two, 4 to 256, not %" PRId64,
			       align);
	if (hole && size < 2 * UNIT)
		return ct_fail(run, "with a hole of %d bytes, size must be above %d",
			       UNIT, UNIT);
	stride = (size + align - 1) & -align;
	bytes = areas * stride + align + 2 * UNIT;
	if (bytes > MAX_BYTES)
		return ct_fail(run, "areas x size is %" PRId64 " bytes, at most %d fit",
			       areas * stride, MAX_BYTES);
	if (kind != AFTER && kind != BITMAP && areas > MAX_SCANNED)
		return ct_fail(run, "areas must be 1 to %d for a variant that scans them",
			       MAX_SCANNED);
	run->shared = s = ct_alloc(sizeof(*s));
	if (!s)
		return ct_fail(run, "out of memory");
	s->areas = (uint32_t)areas;
	s->size = (int32_t)size;
	s->align = (int32_t)align;
	s->stride = (int32_t)stride;
	s->fence = hole ? 2 * UNIT : 0;
	s->base = round_up(s->fence, s->align);
	s->offset = ct_alloc((size_t)areas * sizeof(s->offset[0]));
	s->order = ct_alloc((size_t)areas * sizeof(s->order[0]));
	if (!s->offset || !s->order ||
	    chunk_create(&s->chunk, kind, (int32_t)round_up((int32_t)bytes, UNIT),
			 s->areas + 2))
		return ct_fail(run, "out of memory");
	put_in_order(s, run->param[PARAM_ORDER], (uint64_t)run->param[PARAM_SEED]);
	/* a crumb that nothing fits in, and an area that keeps it apart */
	if (hole && (area_alloc(kind, &s->chunk, ignored, UNIT, UNIT) != 0 ||
		     area_alloc(kind, &s->chunk, ignored, UNIT, UNIT) != UNIT ||
		     area_free(kind, &s->chunk, ignored, 0)))
		return ct_fail(run, "the hole is not where it should be");
	return 0;
}

static int check(struct ct_run *run)
{
	/* what an operation found wrong, it said itself */
	if (ct_total(run, ALLOC_STEPS) < ct_total(run, -1) ||
	    ct_total(run, FREE_STEPS) < ct_total(run, -1))
		return ct_fail(run, "fewer steps than operations");
	return 0;
}

static void teardown(struct ct_run *run)
{
	struct shared *s = run->shared;

	if (!s)
		return;
	chunk_destroy(&s->chunk);
	free(s->offset);
	free(s->order);
	free(s);
}

#define VARIANT(name, kind)                                       \
	static inline void name##_op(struct ct_worker *w)         \
	{                                                         \
		op(w, kind);                                      \
	}                                                         \
	CT_LOOP(name##_loop, name##_op)                           \
	static int name##_setup(struct ct_run *run)               \
	{                                                         \
		return setup(run, kind);                          \
	}

VARIANT(before, BEFORE)
VARIANT(offset_bit, OFFSET_BIT)
VARIANT(first_free_hint, FIRST_FREE_HINT)
VARIANT(after, AFTER)
VARIANT(bitmap, BITMAP)

static const struct ct_param params[] = {
	[PARAM_AREAS] = { "areas", "areas", "how many are allocated, then freed",
			  4096, 1, 1 << 20 },
	[PARAM_SIZE] = { "size", "bytes", "of an area, rounded up to 4", 8, 1, 4096 },
	[PARAM_ALIGN] = { "align", "bytes", "of an area, a power of two", 4, UNIT, 256 },
	[PARAM_ORDER] = { "order", "", "of freeing: 0 newest first, 1 oldest first, 2 random",
			  ORDER_NEWEST, ORDER_NEWEST, ORDER_RANDOM },
	[PARAM_HOLE] = { "hole", "", "1: a hole of 4 bytes stays at the start", 0, 0, 1 },
	[PARAM_SEED] = { "seed", "", "of the random order", 1, 0, 1 << 30 },
};

static const struct ct_counter counters[] = {
	[ALLOC_STEPS] = { "alloc_steps", "entries or words looked at by allocations" },
	[FREE_STEPS] = { "free_steps", "entries or words looked at by freeing" },
	[ALLOC_MOVES] = { "alloc_moves", "entries shifted by allocations" },
	[FREE_MOVES] = { "free_moves", "entries shifted by freeing" },
	[ALLOC_NS] = { "alloc_ns", "nanoseconds in allocations" },
	[FREE_NS] = { "free_ns", "nanoseconds in freeing" },
};

static const struct ct_variant variants[] = {
	{ "before", "signed lengths, added up from the start", before_setup,
	  before_loop, check, teardown },
	{ "offset-bit", "offsets with an in-use bit: free by binary search",
	  offset_bit_setup, offset_bit_loop, check, teardown },
	{ "first-free-hint", "lengths, but allocations skip the full start",
	  first_free_hint_setup, first_free_hint_loop, check, teardown },
	{ "after", "both", after_setup, after_loop, check, teardown },
	{ "bitmap", "a bit for each 4 bytes, and one at each border",
	  bitmap_setup, bitmap_loop, check, teardown },
};

static const char *const phases[] = { "run" };

CT_MODEL(.slug = "percpu-area-map",
	 .summary = "allocate many small areas of a chunk, and free them",
	 .op = "allocating all areas and freeing them",
	 .min_threads = 1,
	 .max_threads = 1,
	 CT_TABLE(variants), CT_TABLE(params), CT_TABLE(counters),
	 CT_TABLE(phases))
