/* SPDX-License-Identifier: MIT */
/* As if compiled against a later abi.h. */
#include "harness.h"

const struct ct_model *ct_model(void)
{
	static const struct ct_model model = { .abi = CT_ABI + 1, .slug = "other-abi" };

	return &model;
}
