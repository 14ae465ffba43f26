/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * workloads.c - the table of all workloads, in the order of the help.
 */
#include "work.h"

const struct workload *const workloads[] = {
	&work_open_creat, &work_stat, &work_fstat, &work_open, &work_stat_perturbed,
	&work_faccessat, &work_overlay_read, &work_umount, &work_lazy_busy,
	&work_umount_trees, &work_binds, &work_mountinfo, &work_mount_walk, &work_percpu,
	&work_handle, &work_handle_perturbed, &work_full, &work_full_perturbed,
	&work_getdent, &work_getdent_perturbed, &work_scripts, &work_calls, &work_smoke, &work_fuzz,
	&work_c2c_validate, &work_panic,
	NULL,
};
