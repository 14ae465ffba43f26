/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * draw.h - names that nobody knows beforehand, so no kernel can look for them.
 */
#pragma once
#include "guest.h"

#define WORD_BYTES 16

/* A new word of letters in a ring of buffers: good for the next 63 calls. */
const char *drawn_word(void);
/* A number below n, n > 0. */
unsigned drawn_below(unsigned n);
/* This process calls itself by a new word. */
void drawn_process_name(void);
