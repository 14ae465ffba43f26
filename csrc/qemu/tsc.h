/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tsc.h - the guest's time stamp counter is QEMU's clock.
 *
 * QEMU's emulator gives a guest the host's counter, whatever its timers
 * follow. Linux lets a process forbid itself the instruction that reads it
 * (PR_SET_TSC): the attempt is then a signal, and its handler answers with
 * late.h's clock, a nanosecond for each tick. The vDSO reads the counter as
 * well, for the functions of libc that ask for the time of day, and gets the
 * true one. Threads inherit this from who creates them, so it has to be done
 * before QEMU creates those of its vCPUs.
 *
 * Part of coherence.c.
 */
#pragma once
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __x86_64__
#include <errno.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <x86intrin.h>

#define CT_VDSO_BYTES 0x4000u

static uint64_t ct_true_tsc(void)
{
	uint64_t value;

	prctl(PR_SET_TSC, PR_TSC_ENABLE);
	value = __rdtsc();
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
	return value;
}

static uint64_t ct_guest_tsc(void)
{
	uint64_t now;

	pthread_mutex_lock(&late.lock);
	now = ct_shown(ct_real());
	pthread_mutex_unlock(&late.lock);
	return now;
}

static void on_refused(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uintptr_t at = (uintptr_t)registers[REG_RIP];
	const uint8_t *code = (const uint8_t *)at;
	const int before = errno;
	unsigned length = 0;
	uint64_t value;

	/* Who reads where there is nothing gets another code, and `code` may not be readable. */
	if (info->si_code == SI_KERNEL)
		length = code[0] == 0x0f && code[1] == 0x31			       ? 2 :
			 code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9 ? 3 :
										0;
	if (!length) {
		signal(number, SIG_DFL); /* and it happens again */
		return;
	}
	/* rdtscp also tells the CPU's number: the vDSO does not look at it, and QEMU has no use of it. */
	value = at - getauxval(AT_SYSINFO_EHDR) < CT_VDSO_BYTES ? ct_true_tsc() : ct_guest_tsc();
	registers[REG_RIP] += length;
	registers[REG_RAX] = (greg_t)(uint32_t)value;
	registers[REG_RDX] = (greg_t)(value >> 32);
	errno = before;
}

/* Returns whether that can be had. */
static bool ct_answer_tsc(void)
{
	struct sigaction how = { .sa_sigaction = on_refused, .sa_flags = SA_SIGINFO };

	return !sigaction(SIGSEGV, &how, NULL) && !prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
}
#else
static bool ct_answer_tsc(void)
{
	return false;
}
#endif
