/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * shell.h - a reader at the console of a lab kernel.
 */
#pragma once

/* Returns when the reader leaves. */
void shell(void);
