/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * trace.h - one operation, access by access: the order in which it comes to lines.
 *
 * The tables say how often an instruction found a line elsewhere; a program
 * for a simulator also wants to know what comes first, and how many
 * instructions lie between. So of each vCPU's first operations all accesses
 * are kept, and those reported that are of the tables' lines: where nothing
 * ever happened there is nothing to simulate. An instruction to which nothing
 * happened there is a site as well then, all zeros.
 *
 * Instructions are counted by the block as it begins, so an access is late by
 * what its block has left. A string instruction is one, however often it turns
 * (none, where a block begins with it): a kernel that zeroes a page with it has
 * not executed thousands.
 *
 * Part of coherence.c, whose variables it uses.
 */
#pragma once
#include <stdint.h>

#define CT_TRACE_SKIPS 1      /* operations that find everything cold */
#define CT_TRACE_MAX 100      /* operations */
#define CT_TRACE_STEPS 500000 /* of a vCPU; what does not fit is left out */

enum ct_kind { CT_LOAD, CT_STORE, CT_ATOMIC, CT_END_OF_OPERATION };

struct ct_step {
	uint64_t address, pc;
	uint32_t at; /* instructions since the operation began */
	uint32_t kind;
};

static struct ct_tracer {
	struct ct_step *steps;
	size_t n, max;
	uint64_t begin; /* instructions, when the operation began */
	uint64_t turns; /* of string instructions, in blocks that have nothing else */
} tracers[CT_CPUS];

static inline uint64_t ct_instructions(unsigned cpu)
{
	const struct ct_counts *c = &vcpus[cpu].cache.counts;

	return c->instructions[0] + c->instructions[1] - tracers[cpu].turns;
}

static inline bool ct_traced(unsigned cpu)
{
	return options.trace && vcpus[cpu].ops >= CT_TRACE_SKIPS &&
	       vcpus[cpu].ops < CT_TRACE_SKIPS + options.trace;
}

static void ct_trace(unsigned cpu, uint64_t address, uint64_t pc, enum ct_kind kind)
{
	struct ct_tracer *t = &tracers[cpu];

	if (t->n == t->max) {
		if (t->max >= CT_TRACE_STEPS)
			return;
		t->max = t->max ? 2 * t->max : 4096;
		t->steps = ct_must(realloc(t->steps, t->max * sizeof(*t->steps)));
	}
	t->steps[t->n++] = (struct ct_step){ address, pc,
					     (uint32_t)(ct_instructions(cpu) - t->begin), kind };
}

/* An operation has ended: before it is counted. */
static void ct_trace_end(unsigned cpu)
{
	if (ct_traced(cpu))
		ct_trace(cpu, 0, 0, CT_END_OF_OPERATION);
	tracers[cpu].begin = ct_instructions(cpu);
}

static int by_line(const void *a, const void *b)
{
	const struct ct_site *x = a, *y = b;
	const uint64_t one = x->address >> options.shift, other = y->address >> options.shift;

	return one < other ? -1 : one > other;
}

/* Behind n_sites sorted sites, a site for each step on one of their lines; returns how many. */
static size_t add_traced(struct ct_site *sites, size_t n_sites, unsigned n)
{
	size_t added = 0;

	for (unsigned i = 0; i < n; i++)
		for (size_t k = 0; k < tracers[i].n; k++) {
			const struct ct_step *step = &tracers[i].steps[k];
			const struct ct_site site = {
				.address = step->address,
				.pc = step->pc,
				.kernel = options.system && step->pc >> 63,
			};

			if (step->kind != CT_END_OF_OPERATION &&
			    bsearch(&site, sites, n_sites, sizeof(site), by_line))
				sites[n_sites + added++] = site;
		}
	return added;
}

/* An operation's steps, which end with its end, as far as they are of `sites`; returns how many. */
static size_t put_operation(FILE *f, const struct ct_step *steps, size_t n,
			    const struct ct_site *sites, size_t n_sites)
{
	size_t end = 0;
	bool first = true;

	while (end < n && steps[end].kind != CT_END_OF_OPERATION)
		end++;
	if (end == n)
		return n;
	fprintf(f, "\"instructions\":%" PRIu32 ",\"steps\":[", steps[end].at);
	for (size_t i = 0; i < end; i++) {
		const struct ct_site wanted = { .address = steps[i].address, .pc = steps[i].pc };
		const struct ct_site *site =
			bsearch(&wanted, sites, n_sites, sizeof(*sites), by_address);

		if (!site)
			continue;
		fprintf(f, "%s[%" PRIu32 ",%zu,%" PRIu32 "]", first ? "" : ",", steps[i].at,
			(size_t)(site - sites), steps[i].kind);
		first = false;
	}
	fputs("]}", f);
	return end + 1;
}

/* "traces": of each vCPU its operations; a step is instructions, number of a site, kind. */
static void put_traces(FILE *f, unsigned n, const struct ct_site *sites, size_t n_sites)
{
	bool first = true;

	fputs("\"traces\":[", f);
	for (unsigned i = 0; i < n; i++) {
		const struct ct_tracer *t = &tracers[i];
		size_t last = t->n;

		/* The last one may not have ended, or not have fitted. */
		while (last && t->steps[last - 1].kind != CT_END_OF_OPERATION)
			last--;
		for (size_t at = 0; at < last;) {
			fprintf(f, "%s{\"cpu\":%u,", first ? "" : ",", i);
			at += put_operation(f, t->steps + at, last - at, sites, n_sites);
			first = false;
		}
	}
	fputs("],", f);
}

/* Forget a region. */
static void ct_trace_forget(unsigned cpu)
{
	tracers[cpu].n = 0;
	tracers[cpu].begin = 0;
}

static void ct_trace_release(unsigned cpu)
{
	free(tracers[cpu].steps);
	tracers[cpu] = (struct ct_tracer){ 0 };
}
