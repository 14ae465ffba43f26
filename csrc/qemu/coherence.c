/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * coherence.c - a QEMU TCG plugin that counts what `perf c2c` samples.
 *
 * It follows every access to memory, keeps the state of every cache line
 * (directory.h), and counts in a marked region, for each vCPU, line and
 * instruction, the loads and stores that found the line modified in another
 * vCPU's cache (HITM) or took shared copies away. It counts all of them, in
 * any guest, and needs no performance counters. It keeps the vCPUs in step
 * (pace.h), so that a run can be repeated.
 *
 * The guest marks its region by instructions that do nothing anywhere else:
 *
 *   xchg %bx,%bx   begin; every line is in nobody's cache
 *   xchg %cx,%cx   this vCPU has finished one operation
 *   xchg %dx,%dx   end; the report is written
 *
 * What was touched before the region is not remembered. So the first access
 * of the region to a line is a cold miss, never a HITM, and what set-up code
 * left modified is not held against the region. The price is at most one HITM
 * a line; the workloads repeat an operation hundreds of times.
 *
 * Instrumented code runs several times slower, so nothing is instrumented
 * until a block that contains the begin mark is about to run: then the plugin
 * resets itself, by which QEMU stops all vCPUs and forgets what it has
 * translated, and comes back with everything instrumented, before the mark is
 * executed. At the end it goes the same way back if it can: QEMU before 8.0
 * keeps pointers to what a reset frees, so there it stays, and looks away.
 *
 * The counters are summed at the end mark, once no vCPU is in the middle of
 * counting (see enter()); when the mark has been executed, the file is there.
 *
 * What counts as an access: an atomic read-modify-write (a lock prefix, or
 * xchg with memory) is one store; every other instruction's loads and stores
 * count as it makes them, a string instruction's each by itself; an access
 * across the end of a line is one to either. Device registers are left out.
 * Instructions are counted by the block as it begins: one that faults counts
 * again, as do iterations of a string instruction. Interrupts are not taken
 * out: keep ticks away from the measured CPUs (nohz_full=).
 *
 * Under qemu-user a vCPU is a thread, and addresses are virtual. A process
 * that the program forks is not followed.
 *
 * Arguments: out=FILE quantum=N (0: off) line=BYTES region=marks|all
 * watch=ADDRESS+ADDRESS+... time=A+B+... tick=ADDRESS (see clock.h) late=N
 * clock=guest (see late.h) trace=N (see trace.h)
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin_api.h"

#include "directory.h"
#include "pace.h"

#define CT_ABI 1
#define CT_WATCHES 64
#define CT_QUANTUM_MAX 1000000000ull

QEMU_PLUGIN_EXPORT int qemu_plugin_version = CT_QEMU_API;

struct ct_vcpu {
	_Alignas(128) _Atomic bool busy; /* its thread is counting right now */
	struct ct_cache cache;
	uint64_t ops;
	uint64_t watched[CT_WATCHES];
};

enum ct_phase {
	CT_OUTSIDE,  /* nothing is instrumented */
	CT_ARMED,    /* everything is; the region has not begun */
	CT_INSIDE,
	CT_FINISHED, /* the region is over, and is being summed up */
};

static struct {
	char out[4096];
	unsigned shift; /* log2 of the line size */
	bool system, all;
	unsigned n_watches;
	uint64_t watch[CT_WATCHES];
	uint64_t tick; /* where the timer's interrupt is entered; 0: not known */
	uint64_t late; /* how many times slower QEMU's timers are in a region */
	bool guest;    /* they follow the region's clocks there, and are late outside */
	uint64_t trace; /* so many operations of each vCPU, step by step */
} options;

static struct ct_vcpu *vcpus;
static struct ct_pacer pacers[CT_CPUS];
static struct ct_pace pace = { .pacer = pacers };
static _Atomic int phase;
static _Atomic bool resetting;
static _Atomic bool instrumented;
static bool fence; /* the host has no membarrier() */
static qemu_plugin_id_t plugin_id;
static pid_t process;
static char target[32];

/* The regions reported so far: JSON objects with commas between them. */
static char *regions;

static bool inside(void)
{
	return atomic_load_explicit(&phase, memory_order_acquire) == CT_INSIDE;
}

/*
 * Whoever counts says so first, and then looks whether the region is still on:
 * no count is lost and none comes late. Between the two the host's CPU must
 * not reorder, but a fence at each access is dear, so who ends the region
 * makes all other CPUs execute one, with membarrier().
 */
static inline bool enter(struct ct_vcpu *vcpu)
{
	if (!inside())
		return false;
	if (fence)
		atomic_store(&vcpu->busy, true);
	else
		atomic_store_explicit(&vcpu->busy, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (inside())
		return true;
	atomic_store_explicit(&vcpu->busy, false, memory_order_release);
	return false;
}

static inline void leave(struct ct_vcpu *vcpu)
{
	atomic_store_explicit(&vcpu->busy, false, memory_order_release);
}

/* After the region's end: wait until nobody is counting any more. */
static void settle(void)
{
	ct_pace_end(&pace);
	if (!fence)
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (unsigned i = 0; i < atomic_load(&pace.pacers); i++)
		while (atomic_load_explicit(&vcpus[i].busy, memory_order_acquire))
			sched_yield();
}

#include "clock.h"
#include "late.h"
#include "idle.h"
#include "trace.h"
#include "tsc.h"
#include "report.h"

/* --- what runs with the guest --- */

/*
 * The pointer that a callback gets holds the instruction's address. Bit 62 of
 * a canonical address repeats bit 63, so there is room for one flag.
 */
#define ATOMIC_FLAG (1ull << 62)

static void *pack(uint64_t pc, bool atomic)
{
	return (void *)(uintptr_t)(atomic ? pc ^ ATOMIC_FLAG : pc);
}

static inline void count_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr,
				uint64_t pc, enum ct_kind kind)
{
	const bool store = kind != CT_LOAD;
	struct ct_cache *cache = &vcpus[vcpu].cache;
	const uint64_t line = 1ull << options.shift, next = (vaddr | (line - 1)) + 1;
	const uint64_t over = (vaddr & (line - 1)) + (1ull << qemu_plugin_mem_size_shift(info));
	const bool kernel = options.system && pc >> 63;
	uint64_t address = vaddr, second = next;
	bool crosses = over > line;

	if (options.system) {
		struct qemu_plugin_hwaddr *at = qemu_plugin_get_hwaddr(info, vaddr);

		if (!at || qemu_plugin_hwaddr_is_io(at))
			return;
		address = qemu_plugin_hwaddr_phys_addr(at);
		if (crosses) { /* the next page may be anywhere */
			at = qemu_plugin_get_hwaddr(info, next);
			crosses = at && !qemu_plugin_hwaddr_is_io(at);
			if (crosses)
				second = qemu_plugin_hwaddr_phys_addr(at);
		}
	}
	if (store)
		cache->counts.stores[kernel]++;
	else
		cache->counts.loads[kernel]++;
	ct_access(cache, vcpu, options.shift, address, vaddr, pc, kernel, store);
	if (crosses)
		ct_access(cache, vcpu, options.shift, second, next, pc, kernel, store);
	askers[vcpu].foresight.line = address >> options.shift;
	if (ct_traced(vcpu))
		ct_trace(vcpu, address, pc, kind);
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	uint64_t pc = (uintptr_t)data;
	const bool store = qemu_plugin_mem_is_store(info);
	const bool atomic = (pc >> 62 & 1) != pc >> 63;

	if (atomic) {
		/* QEMU may show its two halves, or both as one store. */
		if (!store)
			return;
		pc ^= ATOMIC_FLAG;
	}
	if (enter(&vcpus[vcpu])) {
		askers[vcpu].came = false;
		count_access(vcpu, info, vaddr, pc,
			     atomic ? CT_ATOMIC :
			     store  ? CT_STORE :
				      CT_LOAD);
		/* Ways were measured from access to access: they have this one in them. */
		if (ct_timing && atomic && !askers[vcpu].in_tick && !askers[vcpu].came)
			atomic_fetch_add_explicit(&pacers[vcpu].done, machine.rmw,
						  memory_order_relaxed);
		if (ct_timing && atomic)
			askers[vcpu].fence = atomic_load_explicit(&pacers[vcpu].done,
								  memory_order_relaxed);
		leave(&vcpus[vcpu]);
	}
}

/* What moves a string costs by its bytes, in however many turns QEMU makes of it. */
static void on_string(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	const uint64_t bytes = 1ull << qemu_plugin_mem_size_shift(info);

	on_access(vcpu, info, vaddr, data);
	if (qemu_plugin_mem_is_store(info) && enter(&vcpus[vcpu])) {
		if (!askers[vcpu].in_tick)
			atomic_fetch_add_explicit(&pacers[vcpu].done, ct_string_time(vcpu, bytes),
						  memory_order_relaxed);
		leave(&vcpus[vcpu]);
	}
}

/*
 * What a block's callback gets: how many instructions, how many of them pauses,
 * whose, and whether it is a further turn of a string instruction.
 */
static void *pack_block(size_t n, size_t pauses, bool turn, bool kernel)
{
	return (void *)(uintptr_t)((uint64_t)turn << 63 | (uint64_t)pauses << 32 | n << 1 | kernel);
}

static void on_block(unsigned int vcpu, void *data)
{
	const uint64_t n = (uint32_t)(uintptr_t)data >> 1;
	const uint64_t pauses = (uintptr_t)data << 1 >> 33;
	const bool turn = (uintptr_t)data >> 63;
	uint64_t spent = n;

	if (!enter(&vcpus[vcpu]))
		return;
	vcpus[vcpu].cache.counts.instructions[(uintptr_t)data & 1] += n;
	tracers[vcpu].turns += turn;
	if (ct_timing) {
		spent = ct_block_time(vcpu, turn ? 0 : n, pauses);
		ct_moved(vcpu);
	}
	if (options.guest && !atomic_load_explicit(&pacers[vcpu].running, memory_order_relaxed))
		ct_late_wake(vcpu);
	if (pace.quantum)
		ct_pace_block(&pace, &pacers[vcpu], spent);
	leave(&vcpus[vcpu]);
}

/* A timer tick begins: its entry is a block's. */
static void on_tick(unsigned int vcpu, void *data)
{
	askers[vcpu].in_tick = true;
	on_block(vcpu, data);
}

/* It has ended, or left the CPU to somebody else, who returns from his own call. */
static void on_return(unsigned int vcpu, void *data)
{
	(void)data;
	askers[vcpu].in_tick = false;
}

/* Where time is kept: an instruction that may want a line is about to run. */
static void on_instruction(unsigned int vcpu, void *data)
{
	if (enter(&vcpus[vcpu])) {
		ct_before(vcpu, (uintptr_t)data);
		leave(&vcpus[vcpu]);
	}
}

static void on_begin(unsigned int vcpu, void *data)
{
	int armed = CT_ARMED;

	(void)vcpu, (void)data;
	if (atomic_load(&phase) == CT_ARMED)
		ct_pace_begin(&pace);
	if (atomic_compare_exchange_strong(&phase, &armed, CT_INSIDE))
		ct_late(options.late, options.guest);
	else
		fprintf(stderr, "coherence: a region begins inside of another: ignored\n");
}

static void on_operation(unsigned int vcpu, void *data)
{
	(void)data;
	if (enter(&vcpus[vcpu])) {
		ct_trace_end(vcpu);
		vcpus[vcpu].ops++;
		if (ct_timing)
			ct_done(vcpu);
		leave(&vcpus[vcpu]);
	}
}

static void on_watched(unsigned int vcpu, void *data)
{
	if (enter(&vcpus[vcpu])) {
		vcpus[vcpu].watched[(uintptr_t)data]++;
		leave(&vcpus[vcpu]);
	}
}

static void after_reset(qemu_plugin_id_t id);

static void request_reset(void)
{
	if (!atomic_exchange(&resetting, true))
		qemu_plugin_reset(plugin_id, after_reset);
}

static void on_end(unsigned int vcpu, void *data)
{
	int now = CT_INSIDE;

	(void)vcpu, (void)data;
	if (!atomic_compare_exchange_strong(&phase, &now, CT_FINISHED))
		return;
	settle();
	ct_late(options.guest ? options.late : 1, false);
	add_region(true);
	write_report();
	atomic_store(&phase, CT_ARMED);
	if (CT_QEMU_API > 1)
		request_reset();
}

static void on_idle(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	if (options.guest)
		ct_late_sleep(vcpu);
	ct_leave(&pace, &pacers[vcpu]);
	if (ct_timing && atomic_load(&pace.on))
		ct_arbitrate();
}

static void on_syscall(qemu_plugin_id_t id, unsigned int vcpu, int64_t number, uint64_t a1,
		       uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6,
		       uint64_t a7, uint64_t a8)
{
	(void)number, (void)a1, (void)a2, (void)a3, (void)a4;
	(void)a5, (void)a6, (void)a7, (void)a8;
	on_idle(id, vcpu);
}

static void on_new_vcpu(qemu_plugin_id_t id, unsigned int vcpu)
{
	uint32_t n = atomic_load(&pace.pacers);

	(void)id;
	if (vcpu >= CT_CPUS) {
		fprintf(stderr, "coherence: more than %d vCPUs or threads\n", CT_CPUS);
		_exit(1);
	}
	while (n <= vcpu && !atomic_compare_exchange_weak(&pace.pacers, &n, vcpu + 1))
		;
}

/* --- what runs when QEMU translates --- */

enum mark { NO_MARK, BEGIN, OPERATION, END };

static enum mark mark_of(const uint8_t *bytes, size_t length)
{
	if (length != 3 || bytes[0] != 0x66 || bytes[1] != 0x87)
		return NO_MARK;
	return bytes[2] == 0xdb ? BEGIN :
	       bytes[2] == 0xc9 ? OPERATION :
	       bytes[2] == 0xd2 ? END : NO_MARK;
}

/* A lock prefix, or xchg with memory, which locks by itself. */
static bool is_atomic(const uint8_t *bytes, size_t length)
{
	size_t i = 0;

	for (; i < length; i++) {
		const uint8_t b = bytes[i];

		if (b == 0xf0)
			return true;
		if (!(b == 0x66 || b == 0x67 || b == 0xf2 || b == 0xf3 || b == 0x2e || b == 0x36 ||
		      b == 0x3e || b == 0x26 || b == 0x64 || b == 0x65 || (b & 0xf0) == 0x40))
			break;
	}
	return i + 1 < length && (bytes[i] & 0xfe) == 0x86 && bytes[i + 1] >> 6 != 3;
}

static bool is_pause(const struct qemu_plugin_insn *insn)
{
	uint8_t bytes[2];

	return ct_insn_bytes(insn, bytes, sizeof(bytes)) == 2 && bytes[0] == 0xf3 &&
	       bytes[1] == 0x90;
}

/*
 * A repeated move or store of a string. QEMU until 10 ends a block behind it, and each further turn
 * is a block of its own; from then on it turns within the block.
 */
static bool is_string(const uint8_t *bytes, size_t length)
{
	bool repeated = false;
	size_t i;

	for (i = 0; i + 1 < length; i++) {
		repeated |= bytes[i] == 0xf3;
		if (bytes[i] != 0xf3 && bytes[i] != 0x66 && (bytes[i] & 0xf0) != 0x40)
			return false;
	}
	return repeated && ((bytes[i] & 0xfe) == 0xa4 || (bytes[i] & 0xfe) == 0xaa);
}

/* iretq or sysretq */
static bool is_return(const uint8_t *bytes, size_t length)
{
	return (length == 2 && bytes[0] == 0x48 && bytes[1] == 0xcf) ||
	       (length == 3 && bytes[0] == 0x48 && bytes[1] == 0x0f && bytes[2] == 0x07);
}

static void instrument(struct qemu_plugin_tb *tb)
{
	const size_t n = qemu_plugin_tb_n_insns(tb);
	const bool kernel = options.system && qemu_plugin_tb_vaddr(tb) >> 63;
	const bool tick = ct_timing && options.tick && qemu_plugin_tb_vaddr(tb) == options.tick;
	size_t pauses = 0;
	uint8_t first[16];
	const size_t length_of_first =
		ct_insn_bytes(qemu_plugin_tb_get_insn(tb, 0), first, sizeof(first));
	const bool turn = n == 1 && is_string(first, length_of_first);

	for (size_t i = 0; ct_timing && i < n; i++)
		pauses += is_pause(qemu_plugin_tb_get_insn(tb, i));
	qemu_plugin_register_vcpu_tb_exec_cb(tb, tick ? on_tick : on_block, QEMU_PLUGIN_CB_NO_REGS,
					     pack_block(n, pauses, turn, kernel));
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint64_t pc = qemu_plugin_insn_vaddr(insn);
		qemu_plugin_vcpu_udata_cb_t on_mark = NULL;
		uint8_t bytes[16];
		const size_t length = ct_insn_bytes(insn, bytes, sizeof(bytes));

		switch (mark_of(bytes, length)) {
		case BEGIN:
			on_mark = options.all ? NULL : on_begin;
			break;
		case OPERATION:
			on_mark = on_operation;
			break;
		case END:
			on_mark = options.all ? NULL : on_end;
			break;
		case NO_MARK:
			break;
		}
		if (on_mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		for (unsigned w = 0; w < options.n_watches; w++)
			if (options.watch[w] == pc)
				qemu_plugin_register_vcpu_insn_exec_cb(insn, on_watched,
								       QEMU_PLUGIN_CB_NO_REGS,
								       (void *)(uintptr_t)w);
		if (options.tick && is_return(bytes, length))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_return,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (ct_timing)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_instruction,
							       QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(uintptr_t)pc);
		qemu_plugin_register_vcpu_mem_cb(insn,
						 ct_timing && is_string(bytes, length) ? on_string :
											 on_access,
						 QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 pack(pc, is_atomic(bytes, length)));
	}
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	const size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	if (atomic_load(&instrumented)) {
		instrument(tb);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t bytes[3];
		const size_t length = ct_insn_bytes(insn, bytes, sizeof(bytes));

		/*
		 * The block is about to run, but not before QEMU has looked
		 * whether the vCPU is wanted elsewhere, which it now is.
		 */
		if (mark_of(bytes, length) == BEGIN) {
			request_reset();
			return;
		}
	}
}

static void at_exit(qemu_plugin_id_t id, void *data)
{
	int now = CT_INSIDE;

	(void)id, (void)data;
	if (getpid() != process)
		return; /* a fork of the program */
	if (atomic_compare_exchange_strong(&phase, &now, CT_FINISHED)) {
		settle();
		add_region(options.all);
	}
	write_report();
	for (unsigned i = 0; i < atomic_load(&pace.pacers); i++) {
		ct_release(&vcpus[i].cache);
		ct_trace_release(i);
	}
	free(regions);
	regions = NULL;
}

static void register_callbacks(void)
{
	qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translate);
	qemu_plugin_register_vcpu_init_cb(plugin_id, on_new_vcpu);
	if (options.system) {
		qemu_plugin_register_vcpu_idle_cb(plugin_id, on_idle);
	} else {
		qemu_plugin_register_vcpu_syscall_cb(plugin_id, on_syscall);
		qemu_plugin_register_vcpu_exit_cb(plugin_id, on_idle);
	}
	qemu_plugin_register_atexit_cb(plugin_id, at_exit, NULL);
}

/* All vCPUs stand still, and nothing is translated: from one way of working to the other. */
static void after_reset(qemu_plugin_id_t id)
{
	int armed = CT_ARMED;

	(void)id;
	if (atomic_compare_exchange_strong(&phase, &armed, CT_OUTSIDE)) {
		atomic_store(&instrumented, false);
	} else {
		atomic_store(&phase, CT_ARMED);
		atomic_store(&instrumented, true);
	}
	atomic_store(&resetting, false);
	register_callbacks();
}

/* --- installing --- */

__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("coherence: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return -1;
}

static bool number(const char *text, int base, uint64_t *value, char **end)
{
	*value = strtoull(text, end, base);
	return *end != text && *text != '-' && *text != '+' && *text != ' ';
}

/* All numbers of struct ct_machine, in its order, with + between them. */
static int take_machine(const char *value)
{
	uint64_t *fields[] = {
		&machine.instruction, &machine.rmw,	&machine.pause,	  &machine.core,
		&machine.near,	      &machine.cross,	&machine.far,	  &machine.fill,
		&machine.share,	      &machine.request, &machine.policy, &machine.take,
		&machine.ahead,	      &machine.smt,	&machine.sockets, &machine.cores,
		&machine.groups,      &machine.threads, &machine.first,	  &machine.seed,
	};
	const size_t n = sizeof(fields) / sizeof(*fields);
	const char *at = value;
	char *end;

	for (size_t i = 0; i < n; i++) {
		if (!number(at, 10, fields[i], &end) || *end != (i + 1 < n ? '+' : 0))
			return refuse("time=%s: give %zu numbers with + between them", value, n);
		at = end + 1;
	}
	if (!machine.instruction || !machine.sockets || !machine.cores || !machine.groups ||
	    !machine.core || !machine.near || !machine.threads || machine.threads > 2 ||
	    machine.groups > machine.cores || machine.policy >= CT_POLICIES ||
	    machine.take >= CT_TAKES || machine.smt < CT_PARTS)
		return refuse("time=%s: no such machine", value);
	ct_shake();
	ct_timing = true;
	return 0;
}

static int take_argument(const char *argument)
{
	const char *value = strchr(argument, '=');
	uint64_t n;
	char *end;

	if (!value)
		return refuse("'%s' is not key=value", argument);
	value++;
	if (!strncmp(argument, "out=", 4)) {
		if (!*value || strlen(value) + sizeof(".tmp") > sizeof(options.out))
			return refuse("out=%s: no name of a file", value);
		strcpy(options.out, value);
	} else if (!strncmp(argument, "quantum=", 8)) {
		if (!number(value, 10, &n, &end) || *end || n > CT_QUANTUM_MAX || (n && n < 10))
			return refuse("quantum=%s: give 0 (off) or 10 to %llu instructions, or "
				      "picoseconds with time=",
				      value, CT_QUANTUM_MAX);
		pace.quantum = n;
	} else if (!strncmp(argument, "time=", 5)) {
		return take_machine(value);
	} else if (!strncmp(argument, "tick=", 5)) {
		if (!number(value, 0, &options.tick, &end) || *end)
			return refuse("tick=%s: give an address", value);
	} else if (!strncmp(argument, "late=", 5)) {
		if (!number(value, 10, &options.late, &end) || *end || !options.late ||
		    options.late > CT_LATE_MAX)
			return refuse("late=%s: give 1 to %llu", value, CT_LATE_MAX);
	} else if (!strncmp(argument, "clock=", 6)) {
		if (strcmp(value, "guest"))
			return refuse("clock=%s: give guest", value);
		options.guest = true;
	} else if (!strncmp(argument, "trace=", 6)) {
		if (!number(value, 10, &options.trace, &end) || *end ||
		    options.trace > CT_TRACE_MAX)
			return refuse("trace=%s: give 0 to %d operations", value, CT_TRACE_MAX);
	} else if (!strncmp(argument, "line=", 5)) {
		if (!number(value, 10, &n, &end) || *end || n < 16 || n > 4096 || n & (n - 1))
			return refuse("line=%s: give a power of two from 16 to 4096 bytes", value);
		options.shift = (unsigned)__builtin_ctzll(n);
	} else if (!strncmp(argument, "region=", 7)) {
		if (strcmp(value, "marks") && strcmp(value, "all"))
			return refuse("region=%s: give marks or all", value);
		options.all = !strcmp(value, "all");
	} else if (!strncmp(argument, "watch=", 6)) {
		for (end = (char *)value - 1; options.n_watches < CT_WATCHES;) {
			if (!number(end + 1, 0, &n, &end))
				return refuse("watch=%s: give addresses with + between them", value);
			options.watch[options.n_watches++] = n;
			if (!*end)
				return 0;
			if (*end != '+')
				return refuse("watch=%s: give addresses with + between them", value);
		}
		return refuse("watch: at most %d addresses", CT_WATCHES);
	} else {
		return refuse(
			"unknown argument '%s'; known: out, quantum, time, tick, late, clock, trace, "
			"line, region, watch",
			argument);
	}
	return 0;
}

/* Zeroed memory that costs nothing until it is touched. */
static void *reserve(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	pace.quantum = 2000;
	options.shift = 6;
	options.system = info->system_emulation;
	for (int i = 0; i < argc; i++)
		if (take_argument(argv[i]))
			return -1;
	if (!*options.out)
		return refuse("out=FILE is missing");
	if (!options.late)
		options.late = 1;
	if (ct_timing && !pace.quantum)
		return refuse("time needs a quantum: picoseconds that a vCPU may be ahead");
	if (options.guest && !ct_timing)
		return refuse("clock=guest needs time=: whose clock is it to be?");
	if (options.guest && !options.system)
		return refuse("clock=guest is of a whole machine");
	if (options.guest && !ct_is_asked())
		return refuse("clock=guest: QEMU has to load this library first (LD_PRELOAD)");
	if (options.guest && !ct_answer_tsc())
		return refuse("clock=guest needs an x86-64 host that may refuse itself rdtsc");
	if (strcmp(info->target_name, "x86_64"))
		return refuse("the marks are x86-64 instructions, but this QEMU runs %s",
			      info->target_name);
	if (options.system && info->system.max_vcpus > CT_CPUS)
		return refuse("%d vCPUs: at most %d are supported", info->system.max_vcpus,
			      CT_CPUS);
	snprintf(target, sizeof(target), "%s", info->target_name);
	if (options.system)
		ct_words = ((unsigned)info->system.max_vcpus + 63) / 64;
	vcpus = reserve(CT_CPUS * sizeof(*vcpus));
	ct_heads = reserve(CT_HEADS * sizeof(*ct_heads));
	if (!vcpus || !ct_heads)
		return refuse("out of memory");
	pace.vcpus = options.system;
	if (options.system)
		atomic_store(&pace.pacers, (uint32_t)info->system.smp_vcpus);
	/* Spinning pays only where whom we wait for has a host CPU. */
	if (options.system && info->system.smp_vcpus <= sysconf(_SC_NPROCESSORS_ONLN))
		pace.spins = 200;
	fence = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
	plugin_id = id;
	process = getpid();
	late.main_loop = pthread_self();
	if (options.guest)
		ct_late(options.late, false);
	if (options.all) {
		atomic_store(&instrumented, true);
		ct_pace_begin(&pace);
		atomic_store(&phase, CT_INSIDE);
	}
	register_callbacks();
	return 0;
}
