def compare_plan(old, new, cpu):
    return [ask(body, cpus=[cpu]) for _ in range(11) for body in (old, new)]


def speed_up(results):
    return sum(r["ns"] for r in results[::2]) / sum(
        r["ns"] for r in results[1::2]
    )
