def work_plan():
    return [ask([*16 * [MULTIPLY], KEEP], cpus=[0])]


def work_ns(results):
    return results[0]["ns"] / results[0]["ops"]
