/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * report.h - what coherence.c writes: one JSON object a run.
 *
 * A region's counters are summed while nobody counts. Listed are the lines on
 * which anything happened that a second cache could notice, and the sites
 * where it did; the totals of all accesses are in "cpus". A line's loads and
 * stores are all of the region's; a site's are those that were events, and all
 * others since the line has become hot (directory.h). The steps of operations
 * that were traced name a site by its number in "sites".
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include <stdarg.h>

struct line_sums {
	uint64_t hitm_loads, hitm_stores, invalidations;
};

static const struct ct_entry *find_entry(uint64_t line)
{
	const struct ct_entry *e = atomic_load(&ct_heads[ct_hash(line) & (CT_HEADS - 1)]);

	while (e && e->line != line)
		e = e->next;
	return e;
}

static void put_pair(FILE *f, const char *name, const uint64_t counts[2])
{
	fprintf(f, "\"%s\":{\"user\":%" PRIu64 ",\"kernel\":%" PRIu64 "},", name, counts[0],
		counts[1]);
}

static void put_clock(FILE *f, const struct ct_asker *a, uint64_t far)
{
	fprintf(f,
		"\"clock\":{\"far\":%" PRIu64 ",\"stalled\":%" PRIu64 ",\"queued\":%" PRIu64
		",\"transfers\":%" PRIu64 ",\"fills\":%" PRIu64 ",\"late\":%" PRIu64 ",\"misled\":%" PRIu64
		",\"ticks\":%" PRIu64 ",\"done\":[",
		far, a->waits.stalled, a->waits.queued, a->waits.transfers, a->waits.fills,
		a->late_last - a->late_first, a->misled, a->ticks_last - a->ticks_first);
	for (uint64_t i = 0; i < a->n_done; i++)
		fprintf(f, "%s%" PRIu64, i ? "," : "", a->done[i]);
	fputs("]},", f);
}

static void put_cpu(FILE *f, unsigned i)
{
	const struct ct_counts *c = &vcpus[i].cache.counts;

	fprintf(f, "%s{\"ops\":%" PRIu64 ",", i ? "," : "", vcpus[i].ops);
	put_pair(f, "instructions", c->instructions);
	put_pair(f, "loads", c->loads);
	put_pair(f, "stores", c->stores);
	put_pair(f, "hitm_loads", c->hitm_loads);
	put_pair(f, "hitm_stores", c->hitm_stores);
	put_pair(f, "invalidations", c->invalidations);
	if (ct_timing)
		put_clock(f, &askers[i], c->far);
	fprintf(f, "\"waits\":%" PRIu64 ",\"escapes\":%" PRIu64 "}", pacers[i].waits,
		pacers[i].escapes);
}

static void put_sums(FILE *f, uint64_t loads, uint64_t stores, uint64_t hitm_loads,
		     uint64_t hitm_stores, uint64_t invalidations)
{
	fprintf(f,
		"\"loads\":%" PRIu64 ",\"stores\":%" PRIu64 ",\"hitm_loads\":%" PRIu64
		",\"hitm_stores\":%" PRIu64 ",\"invalidations\":%" PRIu64 "}",
		loads, stores, hitm_loads, hitm_stores, invalidations);
}

/*
 * All vCPUs' sites, those of the same address and instruction added up, and
 * with them what was traced on the same lines.
 */
static struct ct_site *merge_sites(unsigned n, size_t *count)
{
	size_t total = 0, kept = 0;
	struct ct_site *all;

	for (unsigned i = 0; i < n; i++)
		total += vcpus[i].cache.n_sites + tracers[i].n;
	all = ct_must(calloc(total + 1, sizeof(*all)));
	total = 0;
	for (unsigned i = 0; i < n; i++)
		for (uint32_t k = 0; k < vcpus[i].cache.max_sites; k++)
			if (vcpus[i].cache.sites[k].pc)
				all[total++] = vcpus[i].cache.sites[k];
	qsort(all, total, sizeof(*all), by_address);
	if (options.trace) {
		total += add_traced(all, total, n);
		qsort(all, total, sizeof(*all), by_address);
	}
	for (size_t i = 0; i < total; i++) {
		struct ct_site *last = kept ? &all[kept - 1] : NULL;
		const struct ct_site *site = &all[i];

		if (!last || last->address != site->address || last->pc != site->pc) {
			all[kept++] = *site;
			continue;
		}
		last->loads += site->loads;
		last->stores += site->stores;
		last->hitm_loads += site->hitm_loads;
		last->hitm_stores += site->hitm_stores;
		last->invalidations += site->invalidations;
		last->far += site->far;
		last->stalled += site->stalled;
	}
	*count = kept;
	return all;
}

/* The sites of one line, all[from..to), go to "sites", their sums to "lines". */
static void put_line(FILE *lines, FILE *sites, const struct ct_site *all, size_t from, size_t to,
		     unsigned index)
{
	const uint64_t line = all[from].address >> options.shift;
	const struct ct_entry *e = find_entry(line);
	struct line_sums sum = { 0 };
	bool first = index == 0;

	for (size_t i = from; i < to; i++) {
		sum.hitm_loads += all[i].hitm_loads;
		sum.hitm_stores += all[i].hitm_stores;
		sum.invalidations += all[i].invalidations;
	}
	fprintf(lines, "%s{\"address\":%" PRIu64 ",\"vaddr\":%" PRIu64 ",", first ? "" : ",",
		line << options.shift, atomic_load(&e->vaddr));
	put_sums(lines, (uint64_t)atomic_load(&e->own_loads) + atomic_load(&e->loads),
		 (uint64_t)atomic_load(&e->own_stores) + atomic_load(&e->stores), sum.hitm_loads,
		 sum.hitm_stores, sum.invalidations);
	for (size_t i = from; i < to; i++) {
		const struct ct_site *s = &all[i];

		fprintf(sites,
			"%s{\"line\":%u,\"offset\":%u,\"pc\":%" PRIu64 ",\"kernel\":%s,",
			first ? "" : ",", index,
			(unsigned)(s->address & ((1u << options.shift) - 1)), s->pc,
			s->kernel ? "true" : "false");
		if (ct_timing)
			fprintf(sites, "\"stalled\":%" PRIu64 ",\"far\":%u,", s->stalled, s->far);
		put_sums(sites, s->loads, s->stores, s->hitm_loads, s->hitm_stores,
			 s->invalidations);
		first = false;
	}
}

/* The lines and the sites, and then what needs their numbers. */
static void put_lines(FILE *f, unsigned n)
{
	size_t count, sites_size = 0;
	struct ct_site *all = merge_sites(n, &count);
	char *text = NULL;
	FILE *sites = ct_must(open_memstream(&text, &sites_size));
	unsigned index = 0;

	fputs("\"lines\":[", f);
	for (size_t from = 0, to; from < count; from = to) {
		for (to = from + 1; to < count; to++)
			if (all[to].address >> options.shift != all[from].address >> options.shift)
				break;
		put_line(f, sites, all, from, to, index++);
	}
	fclose(sites);
	fprintf(f, "],\"sites\":[%s],", text);
	if (options.trace)
		put_traces(f, n, all, count);
	free(text);
	free(all);
}

static void put_directory(FILE *f, unsigned n)
{
	uint64_t lines = 0, sites = 0, chunks = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct ct_cache *c = &vcpus[i].cache;

		for (const struct ct_chunk *k = c->chunks; k; k = k->next) {
			lines += k == c->chunks ? c->used : CT_CHUNK;
			chunks++;
		}
		sites += c->max_sites;
	}
	fprintf(f,
		"\"directory\":{\"lines\":%" PRIu64 ",\"line_bytes\":%" PRIu64
		",\"site_bytes\":%" PRIu64 ",\"fixed_bytes\":%" PRIu64 "},",
		lines, chunks * sizeof(struct ct_chunk) + ct_when_bytes, sites * sizeof(struct ct_site),
		(uint64_t)(CT_HEADS * sizeof(*ct_heads)));
}

/* Sum up the region that has just ended, and forget it. */
static void add_region(bool complete)
{
	const unsigned n = atomic_load(&pace.pacers);
	char *text = NULL;
	size_t size = 0;
	FILE *f = ct_must(open_memstream(&text, &size));

	fprintf(f, "%s%s\n{\"complete\":%s,\"cpus\":[", regions ? regions : "",
		regions ? "," : "", complete ? "true" : "false");
	for (unsigned i = 0; i < n; i++)
		put_cpu(f, i);
	fputs("],", f);
	put_lines(f, n);
	put_directory(f, n);
	fputs("\"pcs\":[", f);
	for (unsigned w = 0; w < options.n_watches; w++) {
		uint64_t executions = 0;

		for (unsigned i = 0; i < n; i++)
			executions += vcpus[i].watched[w];
		fprintf(f, "%s{\"pc\":%" PRIu64 ",\"executions\":%" PRIu64 "}", w ? "," : "",
			options.watch[w], executions);
	}
	fputs("]}", f);
	fclose(f);
	free(regions);
	regions = text;
	for (unsigned i = 0; i < n; i++) {
		ct_forget(&vcpus[i].cache);
		ct_trace_forget(i);
		vcpus[i].ops = 0;
		memset(vcpus[i].watched, 0, sizeof(vcpus[i].watched));
	}
	ct_clock_forget();
	memset((void *)ct_heads, 0, CT_HEADS * sizeof(*ct_heads));
}

/* Whole or not at all: written beside it, then renamed. */
static void write_report(void)
{
	char temporary[sizeof(options.out) + 8];
	FILE *f;
	bool good;

	snprintf(temporary, sizeof(temporary), "%s.tmp", options.out);
	f = fopen(temporary, "w");
	if (f) {
		fprintf(f,
			"{\"abi\":%d,\"plugin_api\":%d,\"target\":\"%s\",\"mode\":\"%s\","
			"\"vcpus\":%u,\"line\":%u,\"quantum\":%" PRIu64 ",\"regions\":[%s]}\n",
			CT_ABI, CT_QEMU_API, target, options.system ? "system" : "user",
			atomic_load(&pace.pacers), 1u << options.shift, pace.quantum,
			regions ? regions : "");
		good = !ferror(f);
		if (fclose(f) || !good || rename(temporary, options.out))
			f = NULL;
	}
	if (!f) {
		perror("coherence: cannot write the report");
		unlink(temporary);
	}
}
