def sharing_plan(cpus):
    if len(set(cpus)) < 2:
        raise ValueError("two CPUs are needed")
    return [
        ask([OWN], threads=2, cpus=[0, 1]),
        ask([SHARED], threads=2, cpus=[0, 1]),
    ]


def sharing_factor(results):
    if any(r["cpu_changes"] for r in results) or not results[1]["handovers"]:
        raise ValueError("the threads did not stay where they were put")
    return results[1]["ns"] / results[0]["ns"]
