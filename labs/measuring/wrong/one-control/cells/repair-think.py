def think_plan(cpus):
    times = (0, 20, 50, 100, 200, 500, 2000)
    control = [ask([OWN], threads=2, cpus=cpus[:2]) for _ in range(20)]
    return control + [
        ask([SHARED], threads=2, cpus=cpus[:2], think_ns=t) for t in times
    ]


def think_curve(results):
    import statistics

    own = statistics.median(r["ns"] / r["ops"] for r in results[:20])
    return [
        [r["think_ns"], r["ns"] / r["ops"] / (own + r["think_ns"])]
        for r in results[20:]
    ]
