/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * draw.c - names that nobody knows beforehand.
 */
#include "draw.h"

#include <sys/prctl.h>
#include <sys/syscall.h>

#include "report.h"

unsigned drawn_below(unsigned n)
{
	unsigned value;

	/* Early in a boot there may be no entropy yet: 4 is GRND_INSECURE. */
	if (syscall(SYS_getrandom, &value, sizeof(value), 4) != sizeof(value))
		fail_errno("getrandom");
	return value % n;
}

const char *drawn_word(void)
{
	static char ring[64][WORD_BYTES];
	static unsigned next;
	char *word = ring[next++ % ARRAY_SIZE(ring)];
	const unsigned length = 5 + drawn_below(8);

	for (unsigned i = 0; i < length; i++)
		word[i] = (char)('a' + drawn_below(26));
	word[length] = '\0';
	return word;
}

void drawn_process_name(void)
{
	if (prctl(PR_SET_NAME, drawn_word()))
		fail_errno("name a process");
}
