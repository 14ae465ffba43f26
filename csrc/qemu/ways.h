/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ways.h - the machine of virtual time: what things take on it, and how its CPUs lie.
 *
 * It is told in one argument of the plugin (`time=`), by contended.kernel.prices.
 *
 * Part of coherence.c.
 */
#pragma once

#define CT_PARTS 1000 /* chances and factors are in thousandths */

/* Who is next for a line that several wait for, as `Policy` of contended.simulate.caches. */
enum ct_policy {
	CT_FIFO, /* the first who asked */
	CT_CHANCE, /* anybody, the nearer the sooner */
	CT_GROUPED, /* so, but of each group that has not the line only who asked first */
	CT_POLICIES,
};

/* Whether a load of a modified line takes it from its holder. */
enum ct_take {
	CT_LEAVE, /* it leaves it shared between the two */
	CT_TAKE, /* it takes it */
	CT_MIGRATING, /* it takes those that have been read and then changed by one after another */
	CT_TAKES,
};

/* What things take, in picoseconds, and how CPUs lie. */
struct ct_machine {
	uint64_t instruction, rmw, pause;
	uint64_t core, near, cross, far, fill; /* a line's ways, see contended.simulate.caches */
	uint64_t share;	  /* how long one more reader keeps a shared line */
	uint64_t request; /* thousandths of a way: how long a line's holder may go on using it */
	uint64_t policy;  /* of enum ct_policy: who is next */
	uint64_t take;	  /* of enum ct_take */
	uint64_t ahead;	  /* how long before its instruction a load may begin */
	uint64_t smt;	  /* thousandths: an instruction's cost while the core's other thread runs */
	uint64_t sockets, cores, groups, threads;
	uint64_t first; /* this vCPU is the machine's first: who is before it has its ways */
	uint64_t seed;
};

static struct ct_machine machine;

struct ct_place {
	uint64_t core, group, socket;
};

/* As contended.simulate.machines.MachineModel.topology: first one thread of each core. */
static inline struct ct_place ct_place_of(unsigned cpu)
{
	const uint64_t n = cpu >= machine.first ? cpu - machine.first : 0;
	const uint64_t core = n % (machine.sockets * machine.cores);

	return (struct ct_place){ core, core * machine.groups / machine.cores,
				  core / machine.cores };
}

static inline uint64_t ct_way(unsigned from, unsigned to)
{
	const struct ct_place a = ct_place_of(from), b = ct_place_of(to);

	return a.core == b.core	    ? machine.core :
	       a.group == b.group   ? machine.near :
	       a.socket == b.socket ? machine.cross :
				      machine.far;
}

/* Whether a line from the one to the other leaves its socket. */
static inline bool ct_is_far(unsigned from, unsigned to)
{
	return ct_place_of(from).socket != ct_place_of(to).socket;
}

/* The other thread of the same core, or the vCPU itself. */
static inline unsigned ct_sibling(unsigned cpu)
{
	const uint64_t cores = machine.sockets * machine.cores;
	const uint64_t n = cpu - machine.first;

	if (machine.threads < 2 || cpu < machine.first)
		return cpu;
	return (unsigned)(n < cores ? cpu + cores : cpu - cores);
}

static inline bool ct_is_twin(unsigned a, unsigned b)
{
	return a != b && ct_sibling(a) == b;
}
