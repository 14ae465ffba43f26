/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fake_qemu.c - the side of QEMU that the plugin sees, to play traces to it.
 *
 *   fake_qemu trace VCPUS MODE ARGUMENT...   events from standard input:
 *       begin|end|op CPU        the marks
 *       load|store CPU PC ADDRESS BYTES
 *       turn CPU PC ADDRESS BYTES   a further turn of a string instruction that stores
 *       atomic CPU PC ADDRESS   a locked instruction, seen as one store
 *       halves CPU PC ADDRESS   the same, seen as a load and a store
 *       ask CPU PC ADDRESS      a store by a thread of its own, which waits for its line
 *       have CPU                until that has come, and is stored to
 *       block CPU PC N          N instructions that touch no memory
 *       idle CPU                the vCPU halts
 *       iret CPU PC             it returns from an interrupt
 *       crash CPU               writes where nothing is
 *       nap CPU                 20 ms; prints how long it was, in nanoseconds, by
 *                               the host's clock, by what the plugin makes of it, and
 *                               by the time stamp counter
 *       doze CPU                the vCPU halts, and its own thread sleeps
 *       stir CPU                and is woken, but comes to no block
 *       nod CPU                 and sleeps again, without a word
 *       want CPU                or waits for a lock that somebody else has
 *       poll NS                 the main loop waits for a timer; prints how many other
 *                               events there were, and how long it was to the guest
 *       ring CPU                makes an event for that
 *   fake_qemu random VCPUS OPS LINES ARGUMENT...   a thread for each vCPU loads
 *       and stores at random, all at once
 *   fake_qemu turns VCPUS OPS ARGUMENT...   the threads take turns to increment
 *       a word
 *   fake_qemu stuck 2 OPS ARGUMENT...   one thread waits for the other to leave
 *       its block, as QEMU does before an exclusive section
 *
 * MODE is system or user. Memory from 0xf0000000 on is a device's. PC 0x77 is
 * an address of no instruction, to be watched.
 */
#include "qemu/coherence.c"

#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>

#define BLOCK 16

struct qemu_plugin_insn {
	uint64_t pc;
	uint8_t bytes[8];
	size_t size;
	qemu_plugin_vcpu_mem_cb_t on_access;
	void *access_data;
	qemu_plugin_vcpu_udata_cb_t on_run[4];
	void *run_data[4];
	unsigned n_run;
};

struct qemu_plugin_tb {
	size_t n;
	struct qemu_plugin_insn insn[BLOCK];
	qemu_plugin_vcpu_udata_cb_t on_run;
	void *data;
};

struct qemu_plugin_hwaddr {
	uint64_t address;
};

static qemu_plugin_vcpu_tb_trans_cb_t translate_cb;
static qemu_plugin_vcpu_simple_cb_t idle_cb, init_cb, exit_cb;
static qemu_plugin_vcpu_syscall_cb_t syscall_cb;
static qemu_plugin_udata_cb_t atexit_cb;
static qemu_plugin_simple_cb_t reset_cb;
static _Thread_local struct qemu_plugin_hwaddr where;

/* --- what the plugin calls --- */

#define REGISTER(event, type)                                                       \
	void qemu_plugin_register_##event##_cb(qemu_plugin_id_t id, type cb)        \
	{                                                                           \
		(void)id;

REGISTER(vcpu_init, qemu_plugin_vcpu_simple_cb_t) init_cb = cb; }
REGISTER(vcpu_exit, qemu_plugin_vcpu_simple_cb_t) exit_cb = cb; }
REGISTER(vcpu_idle, qemu_plugin_vcpu_simple_cb_t) idle_cb = cb; }
REGISTER(vcpu_syscall, qemu_plugin_vcpu_syscall_cb_t) syscall_cb = cb; }
REGISTER(vcpu_tb_trans, qemu_plugin_vcpu_tb_trans_cb_t) translate_cb = cb; }

void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_udata_cb_t cb, void *data)
{
	(void)id, (void)data;
	atexit_cb = cb;
}

void qemu_plugin_reset(qemu_plugin_id_t id, qemu_plugin_simple_cb_t cb)
{
	(void)id;
	reset_cb = cb;
}

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  qemu_plugin_vcpu_udata_cb_t cb,
					  enum qemu_plugin_cb_flags flags, void *data)
{
	(void)flags;
	tb->on_run = cb;
	tb->data = data;
}

void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    qemu_plugin_vcpu_udata_cb_t cb,
					    enum qemu_plugin_cb_flags flags, void *data)
{
	(void)flags;
	insn->on_run[insn->n_run] = cb;
	insn->run_data[insn->n_run++] = data;
}

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      qemu_plugin_vcpu_mem_cb_t cb,
				      enum qemu_plugin_cb_flags flags,
				      enum qemu_plugin_mem_rw rw, void *data)
{
	(void)flags, (void)rw;
	insn->on_access = cb;
	insn->access_data = data;
}

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb)
{
	return tb->n;
}

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index)
{
	return (struct qemu_plugin_insn *)&tb->insn[index];
}

uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb)
{
	return tb->insn[0].pc;
}

uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn)
{
	return insn->pc;
}

size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn)
{
	return insn->size;
}

#if CT_QEMU_API < 3
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn)
{
	return insn->bytes;
}
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size)
{
	const size_t n = size < insn->size ? size : insn->size;

	memcpy(to, insn->bytes, n);
	return n;
}
#endif

/* Our access information: the size's logarithm, and 1 << 8 for a store. */
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info)
{
	return info & 0xff;
}

bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info)
{
	return info >> 8;
}

/* Pages are where the kernel's direct map says, but 0x5000 and 0x6000 change places. */
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t vaddr)
{
	(void)info;
	where.address = vaddr & 0xffffffff;
	if (where.address >> 12 == 5 || where.address >> 12 == 6)
		where.address ^= 0x3000;
	return &where;
}

bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *at)
{
	return at->address >= 0xf0000000;
}

uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *at)
{
	return at->address;
}

/* --- what runs the guest --- */

enum kind { LOAD, STORE, ATOMIC, HALVES, MARK_BEGIN, MARK_OP, MARK_END, PLAIN, IRET, PAUSE, TURN };

static struct qemu_plugin_tb translated(uint64_t pc, enum kind kind, size_t n)
{
	static const uint8_t bytes[][4] = {
		[LOAD] = { 3, 0x48, 0x8b, 0x07 },	[STORE] = { 3, 0x48, 0x89, 0x07 },
		[ATOMIC] = { 3, 0xf0, 0xff, 0x07 },	[HALVES] = { 3, 0x48, 0x87, 0x07 },
		[MARK_BEGIN] = { 3, 0x66, 0x87, 0xdb }, [MARK_OP] = { 3, 0x66, 0x87, 0xc9 },
		[MARK_END] = { 3, 0x66, 0x87, 0xd2 },	[PLAIN] = { 1, 0x90, 0, 0 },
		[IRET] = { 2, 0x48, 0xcf, 0 },		[PAUSE] = { 2, 0xf3, 0x90, 0 },
		[TURN] = { 2, 0xf3, 0xaa, 0 },
	};
	struct qemu_plugin_tb tb;

	for (;;) {
		memset(&tb, 0, sizeof(tb));
		tb.n = n;
		for (size_t i = 0; i < n; i++) {
			tb.insn[i].pc = pc + i;
			tb.insn[i].size = bytes[kind][0];
			memcpy(tb.insn[i].bytes, bytes[kind] + 1, 3);
		}
		translate_cb(1, &tb);
		if (!reset_cb)
			return tb;

		const qemu_plugin_simple_cb_t done = reset_cb;

		reset_cb = NULL;
		translate_cb = NULL;
		done(1);
	}
}

static void access_memory(const struct qemu_plugin_tb *tb, unsigned vcpu, uint64_t address,
			  unsigned shift, bool store)
{
	if (tb->insn[0].on_access)
		tb->insn[0].on_access(vcpu, shift | (unsigned)store << 8, address,
				      tb->insn[0].access_data);
}

static void execute(const struct qemu_plugin_tb *tb, unsigned vcpu, enum kind kind,
		    uint64_t address, unsigned shift)
{
	if (tb->on_run)
		tb->on_run(vcpu, tb->data);
	for (size_t i = 0; i < tb->n; i++)
		for (unsigned k = 0; k < tb->insn[i].n_run; k++)
			tb->insn[i].on_run[k](vcpu, tb->insn[i].run_data[k]);
	if (kind == LOAD || kind == HALVES)
		access_memory(tb, vcpu, address, shift, false);
	if (kind == STORE || kind == HALVES || kind == ATOMIC || kind == TURN)
		access_memory(tb, vcpu, address, shift, true);
}

static void run_one(unsigned vcpu, uint64_t pc, enum kind kind, uint64_t address, unsigned shift,
		    size_t n)
{
	const struct qemu_plugin_tb tb = translated(pc, kind, n);

	execute(&tb, vcpu, kind, address, shift);
	/* Between two blocks QEMU does what was asked of it meanwhile. */
	if (reset_cb)
		translated(pc, PLAIN, 1);
}

static uint64_t now_ns(bool host)
{
	struct timespec now;

	if (host)
		syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	else
		clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void nap(void)
{
	const uint64_t host = now_ns(true), shown = now_ns(false), counter = __rdtsc();

	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);

	const uint64_t counted = __rdtsc() - counter, shown_after = now_ns(false);

	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", now_ns(true) - host, shown_after - shown,
	       counted);
}

/* --- QEMU's main loop, and vCPUs that sleep as QEMU's threads do --- */

static sem_t lies, stirred[CT_CPUS];
static _Atomic char then[CT_CPUS]; /* what it does when it has been woken */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sleeper[CT_CPUS];
static int bell; /* what says that a timer was set anew */

/* A vCPU halts, and a program's thread calls the kernel. */
static void go_idle(unsigned vcpu)
{
	if (idle_cb)
		idle_cb(1, vcpu);
	else
		syscall_cb(1, vcpu, SYS_futex, 0, 0, 0, 0, 0, 0, 0, 0);
}

static void *run_asleep(void *data)
{
	const unsigned vcpu = (unsigned)(uintptr_t)data;

	go_idle(vcpu);
	sleeper[vcpu] = (int)syscall(SYS_gettid);
	sem_post(&lies);
	while (sem_wait(&stirred[vcpu]))
		;
	while (!atomic_load(&then[vcpu])) /* it is woken, and has not come to a block yet */
		__builtin_ia32_pause();
	if (atomic_load(&then[vcpu]) == 'w')
		pthread_mutex_lock(&lock);
	for (;;)
		pause();
	return NULL;
}

/* It has said that it will sleep; on a busy host it does so later. */
static void see_asleep(unsigned vcpu)
{
	while (ct_thread_state(sleeper[vcpu]) != 'S')
		usleep(100);
}

static int doze(unsigned vcpu)
{
	pthread_t thread;

	if (sem_init(&stirred[vcpu], 0, 0) ||
	    pthread_create(&thread, NULL, run_asleep, (void *)(uintptr_t)vcpu) || sem_wait(&lies))
		return -1;
	see_asleep(vcpu);
	return 0;
}

/* As the main loop waits for its next timer. */
static int poll_for(uint64_t ns)
{
	const uint64_t shown = now_ns(false);
	const struct timespec until = { .tv_nsec = (long)ns };
	struct pollfd fd = { .fd = bell, .events = POLLIN };
	const int found = ppoll(&fd, 1, &until, NULL);
	uint64_t rung;

	if (found == 1 && read(bell, &rung, sizeof(rung)) != sizeof(rung))
		return 2;
	printf("%d %" PRIu64 "\n", found, now_ns(false) - shown);
	return 0;
}

/* --- a vCPU that waits for a line while others go on --- */

static struct {
	pthread_t thread;
	struct qemu_plugin_tb tb;
	uint64_t address;
	_Atomic bool stored;
} asking[CT_CPUS];

static void *run_store(void *data)
{
	const unsigned vcpu = (unsigned)(uintptr_t)data;

	execute(&asking[vcpu].tb, vcpu, STORE, asking[vcpu].address, 3);
	atomic_store(&asking[vcpu].stored, true);
	return NULL;
}

static int ask(unsigned vcpu, uint64_t pc, uint64_t address)
{
	asking[vcpu].tb = translated(pc, STORE, 1);
	asking[vcpu].address = address;
	atomic_store(&asking[vcpu].stored, false);
	if (pthread_create(&asking[vcpu].thread, NULL, run_store, (void *)(uintptr_t)vcpu))
		return -1;
	while (!atomic_load(&pacers[vcpu].asks)) {
		if (atomic_load(&asking[vcpu].stored)) /* it had not to wait */
			return -1;
		sched_yield();
	}
	return 0;
}

static int play(void)
{
	char word[16];
	unsigned vcpu;

	bell = eventfd(0, 0);
	sem_init(&lies, 0, 0);
	pthread_mutex_lock(&lock);

	while (scanf("%15s %u", word, &vcpu) == 2) {
		uint64_t pc = 0, address = 0;
		unsigned bytes = 8;

		if (!strcmp(word, "begin")) {
			run_one(vcpu, 0x100, MARK_BEGIN, 0, 0, 1);
		} else if (!strcmp(word, "end")) {
			run_one(vcpu, 0x200, MARK_END, 0, 0, 1);
		} else if (!strcmp(word, "op")) {
			run_one(vcpu, 0x300, MARK_OP, 0, 0, 1);
		} else if (!strcmp(word, "nap")) {
			nap();
		} else if (!strcmp(word, "crash")) {
			int *volatile nowhere = NULL;

			*nowhere = 0;
		} else if (!strcmp(word, "idle")) {
			go_idle(vcpu);
		} else if (!strcmp(word, "doze")) {
			if (doze(vcpu))
				return 2;
		} else if (!strcmp(word, "stir")) {
			sem_post(&stirred[vcpu]);
		} else if (!strcmp(word, "nod") || !strcmp(word, "want")) {
			atomic_store(&then[vcpu], *word);
			see_asleep(vcpu);
		} else if (!strcmp(word, "ring")) {
			if (write(bell, &(uint64_t){ 1 }, sizeof(uint64_t)) != sizeof(uint64_t))
				return 2;
		} else if (!strcmp(word, "poll")) {
			if (poll_for(vcpu))
				return 2;
		} else if (!strcmp(word, "ask")) {
			if (scanf("%" SCNx64 " %" SCNx64, &pc, &address) != 2 ||
			    ask(vcpu, pc, address))
				return 2;
		} else if (!strcmp(word, "have")) {
			if (pthread_join(asking[vcpu].thread, NULL))
				return 2;
		} else if (!strcmp(word, "iret") || !strcmp(word, "pause")) {
			if (scanf("%" SCNx64, &pc) != 1)
				return 2;
			run_one(vcpu, pc, *word == 'i' ? IRET : PAUSE, 0, 0, 1);
		} else if (!strcmp(word, "block")) {
			if (scanf("%" SCNx64 " %u", &pc, &bytes) != 2 || bytes > BLOCK)
				return 2;
			run_one(vcpu, pc, PLAIN, 0, 0, bytes);
		} else if (!strcmp(word, "load") || !strcmp(word, "store") || !strcmp(word, "turn")) {
			if (scanf("%" SCNx64 " %" SCNx64 " %u", &pc, &address, &bytes) != 3)
				return 2;
			run_one(vcpu, pc, *word == 'l' ? LOAD : *word == 's' ? STORE : TURN, address,
				(unsigned)__builtin_ctz(bytes), 1);
		} else {
			if (scanf("%" SCNx64 " %" SCNx64, &pc, &address) != 2)
				return 2;
			run_one(vcpu, pc, *word == 'a' ? ATOMIC : HALVES, address, 3, 1);
		}
	}
	return 0;
}

/* --- threads --- */

static struct qemu_plugin_tb loading, storing, adding, done_op;
static uint64_t n_ops, n_lines;
static unsigned n_vcpus;
static pthread_barrier_t together;
static _Atomic uint64_t turn;
static _Atomic bool left;

static void *run_random(void *data)
{
	const unsigned vcpu = (unsigned)(uintptr_t)data;
	uint64_t x = vcpu + 1;

	pthread_barrier_wait(&together);
	execute(&loading, vcpu, LOAD, 0x10000, 3); /* from here on all are running */
	pthread_barrier_wait(&together);
	for (uint64_t i = 1; i < n_ops; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;

		const uint64_t address = 0x10000 + (x >> 33) % n_lines * 64 + (x >> 20 & 7) * 8;

		if (x >> 62 == 0)
			execute(&storing, vcpu, STORE, address, 3);
		else
			execute(&loading, vcpu, LOAD, address, 3);
		execute(&done_op, vcpu, MARK_OP, 0, 0);
	}
	execute(&done_op, vcpu, MARK_OP, 0, 0);
	idle_cb(1, vcpu);
	return NULL;
}

static void *run_turns(void *data)
{
	const unsigned vcpu = (unsigned)(uintptr_t)data;

	pthread_barrier_wait(&together);
	for (uint64_t i = vcpu; i < n_ops; i += n_vcpus) {
		while (atomic_load(&turn) != i)
			sched_yield();
		execute(&loading, vcpu, LOAD, 0x10000, 3);
		execute(&adding, vcpu, ATOMIC, 0x10000, 3);
		execute(&done_op, vcpu, MARK_OP, 0, 0);
		atomic_store(&turn, i + 1);
	}
	idle_cb(1, vcpu);
	return NULL;
}

/* vCPU 0 asks for an exclusive section: it sleeps until vCPU 1 is between two blocks. */
static void *run_stuck(void *data)
{
	const unsigned vcpu = (unsigned)(uintptr_t)data;

	pthread_barrier_wait(&together);
	execute(&done_op, vcpu, MARK_OP, 0, 0);
	pthread_barrier_wait(&together);
	if (vcpu == 0)
		while (!atomic_load(&left))
			usleep(100);
	for (uint64_t i = 0; i < n_ops; i++)
		execute(&loading, vcpu, LOAD, 0x10000, 3);
	atomic_store(&left, true);
	idle_cb(1, vcpu);
	return NULL;
}

static int run_threads(void *(*run)(void *))
{
	pthread_t thread[CT_CPUS];

	run_one(0, 0x100, MARK_BEGIN, 0, 0, 1);
	loading = translated(0x1000, LOAD, 1);
	storing = translated(0x2000, STORE, 1);
	adding = translated(0x3000, ATOMIC, 1);
	done_op = translated(0x4000, MARK_OP, 1);
	idle_cb(1, 0);
	pthread_barrier_init(&together, NULL, n_vcpus);
	for (uintptr_t i = 0; i < n_vcpus; i++)
		if (pthread_create(&thread[i], NULL, run, (void *)i))
			return 2;
	for (unsigned i = 0; i < n_vcpus; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&together);
	run_one(0, 0x200, MARK_END, 0, 0, 1);
	return 0;
}

int main(int argc, char **argv)
{
	const bool trace = argc > 3 && !strcmp(argv[1], "trace");
	const bool random = argc > 4 && !strcmp(argv[1], "random");
	const bool stuck = argc > 3 && !strcmp(argv[1], "stuck");
	qemu_info_t info = { .target_name = "x86_64", .system_emulation = true };
	const int first = random ? 5 : 4;
	int result;

	if (argc < 4)
		return 2;
	n_vcpus = (unsigned)atoi(argv[2]);
	info.version.min = info.version.cur = CT_QEMU_API;
	if (trace && strcmp(argv[3], "system"))
		info.system_emulation = false;
	else
		info.system.smp_vcpus = info.system.max_vcpus = (int)n_vcpus;
	if (!trace)
		n_ops = (uint64_t)atoll(argv[3]);
	if (random)
		n_lines = (uint64_t)atoll(argv[4]);
	result = qemu_plugin_install(1, &info, argc - first, argv + first);
	if (result)
		return 1;
	for (unsigned i = 0; i < n_vcpus; i++)
		init_cb(1, i);
	result = trace ? play() : run_threads(random ? run_random : stuck ? run_stuck : run_turns);
	atexit_cb(1, NULL);
	return result;
}
