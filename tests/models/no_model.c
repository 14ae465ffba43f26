/* SPDX-License-Identifier: MIT */
/* Compiles, but describes no model. */
#include "harness.h"
