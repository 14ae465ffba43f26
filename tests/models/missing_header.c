/* SPDX-License-Identifier: MIT */
#include <no_such_library/anywhere.h>
#include "harness.h"
