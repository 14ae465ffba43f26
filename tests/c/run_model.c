/* SPDX-License-Identifier: MIT */
/*
 * Runs every variant of a model once, without Python, so that sanitizers see
 * C only: cc -DMODEL='"models/x.c"' -fsanitize=... run_model.c; then
 * ./a.out THREADS OPS SLICE_NS [name=value ...]. Exits 1 if a run fails.
 * Says "good", and of each phase what was counted.
 */
#include MODEL

#include <inttypes.h>

int main(int argc, char **argv)
{
	static struct ct_result result;
	const struct ct_model *model = ct_model();
	int64_t params[64];
	int32_t cpus[64];
	uint32_t n = 0;
	cpu_set_t allowed;
	int bad = 0;

	if (argc < 4 || model->n_params > ct_array_size(params))
		return 2;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE && n < ct_array_size(cpus); cpu++)
		if (CPU_ISSET(cpu, &allowed))
			cpus[n++] = cpu;
	for (uint32_t i = 0; i < model->n_params; i++) {
		const size_t len = strlen(model->params[i].name);

		params[i] = model->params[i].initial;
		for (int a = 4; a < argc; a++)
			if (!strncmp(argv[a], model->params[i].name, len) &&
			    argv[a][len] == '=')
				params[i] = atoll(argv[a] + len + 1);
	}
	for (uint32_t v = 0; v < model->n_variants; v++) {
		const struct ct_config config = {
			.variant = v,
			.threads = (uint32_t)atoi(argv[1]),
			.slices = 3,
			.sched = CT_SCHED_OTHER,
			.pin = 1,
			.cpus = cpus,
			.params = params,
			.think_ns = v % 2 ? 50 : 0,
			.warmup_ns = 1000000,
			.ops = (uint64_t)atoll(argv[2]),
			.slice_ns = (uint64_t)atoll(argv[3]),
		};

		bad |= ct_measure(&config, &result);
		printf("%s: %s\n", model->variants[v].name,
		       result.error[0] ? result.error : "good");
		for (uint32_t p = 0; p < model->n_phases && !result.error[0]; p++) {
			const struct ct_phase *phase = &result.phases[p];

			printf("%s %u: ops=%" PRIu64, model->variants[v].name, p,
			       phase->ops);
			for (uint32_t c = 0; c < model->n_counters; c++)
				printf(" %s=%" PRIu64, model->counters[c].name,
				       phase->counts[c]);
			printf("\n");
		}
	}
	return bad != 0;
}
