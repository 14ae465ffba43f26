/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * panic.h - ends that the host must cope with.
 */
#pragma once
#include "guest.h"

/* What only pid 1 can do wrong; returns if that is not asked for. */
void panic_before_fork(void);
