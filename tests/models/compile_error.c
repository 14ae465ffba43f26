/* SPDX-License-Identifier: MIT */
#include "harness.h"

static int error_handler(void) { return 0; } /* a warning that has the word in it */

int broken = this_is_not_declared;
