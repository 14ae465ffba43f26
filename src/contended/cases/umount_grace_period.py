# SPDX-License-Identifier: MIT
"""umount-grace-period: a lazy umount whose caller waits for readers that nobody saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contended import register, stats
from contended.cases import Study, waited
from contended.cases.evidence import Evidence, RunProbe, lab_wait, wait
from contended.cases.host import Host, Seen
from contended.cases.timed import Time
from contended.measure import results, today
from contended.measure.running import Running
from contended.register import Case, Published
from contended.simulate import grace
from contended.simulate.chart import marks
from contended.simulate.curves import Knob, Series, Sweep
from contended.simulate.draws import latin
from contended.simulate.machines import MachineModel
from contended.simulate.predict import Predicted, said
from contended.simulate.workload import Row, Workload

SLUG = "umount-grace-period"
IN_A_ROW = "umounts-in-a-row"
FILE_OF_ROW = "waits-row-preempt"
#: As the author's employer configures kernels: suse2024config. It is the kernel's own default, too.
HZ_OF_ROW = 250
_LIVE_DRAWS = 40
_BUSY = grace.Rcu().busy


class Umounts(Workload):
    """Lazy umounts, one after the other: no line is fought over, so an operation is a wait."""

    def _phases(
        self, variant: str, box: MachineModel, cpus: int, seed: int, **options: Any
    ) -> dict[str, Row]:
        """So many `draws`; with a `busy` part of the CPUs there is one phase, so called."""
        draws, given = options.get("draws", grace.DRAWS), options.get("busy")
        usual = {"idle": 0.0, "half-busy": 0.5, "busy": 1.0}
        found = {}
        for phase, busy in (usual if given is None else {"busy": given}).items():
            rcu = grace.Rcu(busy=busy)
            times = sorted(grace.umounts_ns(variant, cpus, rcu=rcu, seed=seed, draws=draws))
            found[phase] = {
                "ops_per_s": 10**9 * draws / sum(times),
                "ns_per_op": sum(times) / draws,
                "transfers_per_op": float("nan"),
                "ops": draws,
                "p50_ms": times[draws // 2] / 1e6,
                "p99_ms": times[draws * 99 // 100] / 1e6,
                "extrapolated": cpus > box.cpus,
            }
        return found


UMOUNTS = Umounts(
    name=SLUG,
    variants={
        "before": "the caller waits for a normal grace period",
        "expedited": "the caller waits for an expedited one, as without RT",
        "call-rcu": "a callback releases after the grace period",
        "no-wait": "nobody waits: wrong",
    },
)


def _predictions(case: Case) -> Iterator[Predicted]:
    for figure in case.published:
        if figure.id == IN_A_ROW:
            yield from _in_a_row(figure)
            continue
        for value in figure.values:
            # a plain umount waits with the patch as without it
            yield _umounts(figure, value.name, "before" if _is_plain(figure) else value.name)
        if _is_plain(figure):
            yield _control(figure, *(value.name for value in reversed(figure.values)))


def _is_plain(figure: Published) -> bool:
    """Whether it is of the control, which waits with the patch as without it."""
    return figure.id.startswith("plain-umount")


def _drawn() -> Iterator[tuple[int, int, grace.Rcu]]:
    """For each draw a seed, a number of CPUs, 4 to 64, and the parameters."""
    known = {key: (each.low, each.high) for key, each in grace.PARAMETERS.items()}
    del known["wait_ticks"]  # follows from hz
    rates = [hz for hz in grace.RATES if known["hz"][0] <= hz <= known["hz"][1]]
    for seed, drawn in enumerate(latin(known | {"hz": (0.0, len(rates)), "cpus": (4.0, 65.0)})):
        cpus = int(drawn.pop("cpus"))
        yield seed, cpus, grace.Rcu(**drawn | {"hz": rates[int(drawn["hz"])]})  # type: ignore[arg-type]


def _control(figure: Published, patched: str, before: str) -> Predicted:
    """What the patch does to a plain umount: nothing, but each is a mean of so many."""
    seen, runs = [], figure.runs or 1
    for seed, cpus, rcu in _drawn():
        one, other = (
            sum(grace.umounts_ns("before", cpus, rcu=rcu, seed=each, draws=runs))
            for each in (2 * seed, 2 * seed + 1)
        )
        seen.append(one / other)
    name, why = f"{patched}/{before}", "two means of the same wait; the guess: as long"
    published = figure.ratio(patched, before, spread=True)
    guesses = [1.0] * len(seen)
    return said(figure, name, seen, guesses, why, ("", 64), published=published, unit="ratio")


def _umounts(figure: Published, name: str, variant: str) -> Predicted:
    """A mean of as many umounts as were timed, whatever the size: 4 to 64 CPUs.

    The guess is that nobody waits: everything else that the command does. Where nobody does wait,
    that is all there is, and it was taken from such rows.
    """
    seen, guesses, runs = [], [], figure.runs or 1
    for seed, cpus, rcu in _drawn():
        times = grace.umounts_ns(variant, cpus, rcu=rcu, seed=seed, draws=runs)
        seen.append(sum(times) / (runs * 10**6))
        guesses.append(rcu.call_us / 1000)
    if variant != "before":
        why = "nobody waits, and what is left went into the simulation as a parameter"
        return said(figure, name, seen, [], why, ("", 64), kind="fitted")
    why = "the report's machine and its load are not known: 4 to 64 CPUs, idle to busy; the guess: "
    why += "nobody waits"
    return said(figure, name, seen, guesses, why, ("", 64))


def _in_a_row(figure: Published) -> Iterator[Predicted]:
    """One umount after the other, on one CPU and on four, which the source tells."""
    known = {key: (each.low, each.high) for key, each in grace.PARAMETERS.items()}
    del known["wait_ticks"], known["hz"]
    seen: dict[str, list[float]] = {"1-cpu": [], "4-cpus": [], "expedited": []}
    guesses = []
    for seed, drawn in enumerate(latin(known | {"call_us": (10.0, 100.0)})):
        rcu = grace.Rcu(hz=HZ_OF_ROW, **drawn)
        for name, times in seen.items():
            variant = "expedited" if name == "expedited" else "before"
            ns = grace.umounts_ns(variant, 1 if name == "1-cpu" else 4, rcu=rcu, seed=seed)
            times.append(sum(ns) / (len(ns) * 10**6))
        guesses.append(rcu.call_us / 1000)
    why = "how often its kernel ticks is not told: 250 times, as its author's employer has it; "
    why += "everything else is assumed to take 10 to 100 µs; the guess: nobody waits"
    for name, times in seen.items():
        yield said(figure, name, times, guesses, why, ("", 1 if name == "1-cpu" else 4))
    times = [four / one for four, one in zip(seen["4-cpus"], seen["1-cpu"], strict=True)]
    published = figure.ratio("4-cpus", "1-cpu", spread=True)
    why = "the same kernel with four CPUs and with one; the guess: as long"
    name, guesses = "4-cpus/1-cpu", [1.0] * len(times)
    yield said(figure, name, times, guesses, why, ("", 4), published=published, unit="ratio")


def _waits(*names: str) -> tuple[RunProbe, ...]:
    return tuple(RunProbe(f"{name}: median wait, model", wait("umounts", name)) for name in names)


def _lab_waits(label: str, *names: str) -> tuple[RunProbe, ...]:
    reads = [(name, lab_wait(name, "normal", label)) for name in names]
    return tuple(RunProbe(f"{name}: median umount", read) for name, read in reads)


#: The lab's configurations, with normal grace periods: those that a real-time kernel has by default
#: (rcu_normal_after_boot in kernel/rcu/update.c), and all of the reports' are real-time kernels.
CONFIGURED = ("hz-100", "hz-250", "hz-1000", "preempt")
SEVERAL = (4, 16, 64)  #: CPUs: how many the reports' machines have is not told.
ROW = ("row-preempt",)  #: see HZ_OF_ROW; its one CPU waits, so it could be preempted


#: How a real-time kernel may tick, and on how many CPUs; no report tells either.
COMMANDS = ("command-rt-100", "command-rt-250", "command-rt")
FEW = (4, 8, 16)
FILE_OF_COMMANDS = "waits-command-rt"
#: The guest's command where nobody waits, by `waits-command`: a part of what is timed.
OWN_MS = 0.27


def _guest_time(label: str) -> Time:
    """Commands as `perf stat` repeats them, and what a real one does more than the guest's."""
    rest = grace.Rcu().call_us / 1000 - OWN_MS
    return waited.waits(
        *("before", "before", label, COMMANDS, FEW), rest_ms=rest, file=FILE_OF_COMMANDS
    )


def _patched(label: str, name: str) -> Time:
    """Of a patched 6.1, which is no real-time kernel: its calls, some time after the mounts."""
    rest = grace.Rcu().call_us / 1000
    return waited.waits(name, name, label, CONFIGURED, SEVERAL, rest_ms=rest)


def _row(name: str, runs: tuple[str, ...], cpus: int) -> Time:
    """What else the command does is at most what an expedited umount takes, all in all."""
    all_of_it = register.get(SLUG).figure(IN_A_ROW).value("expedited").middle
    rest_ms = 0.0 if name == "expedited" else all_of_it
    return waited.waits(name, "before", "plain", runs, (cpus,), rest_ms=rest_ms, file=FILE_OF_ROW)


def _lazy(*names: str) -> Evidence:
    return Evidence(
        userspace=_waits(*names),
        kernel=_lab_waits("lazy", *names),
        timed=(_guest_time("lazy"),),
        note=_COMMANDS,
    )


_TICKS = (
    "The wait is timer ticks and not work, so even a translated kernel shows its order; how many "
    "ticks is a property of the kernel's configuration and load, which the report does not give."
)
_COMMANDS = _TICKS + (
    " Timed are commands on a real-time kernel, repeated as perf stat repeats them, with 100, 250 "
    "and 1000 ticks a second and 4, 8 and 16 CPUs; that these would be the rows was decided when "
    "the same commands had been seen on 6.1."
)
_PATCHED = (
    "What is patched, and the quotient, are of calls on 6.1, which the patches are for: 4, 16 and "
    "64 CPUs, three boots of each configuration. "
)
_ONLY_LAZY = "The model has lazy umounts only: a plain one is its `before`."


def _waits_here(kernel: Running) -> Seen:
    """A caller that waits gives up its CPU, and the kernel counts that."""
    seen = today.umount_latency()
    ops, slept = (seen.count("umount-l", name) for name in ("ops", "slept"))
    cost = f"umount -l: {results.number(stats.median(seen.values('umount-l')), 3)} µs, median"
    settings = [s for s in ("rcu_expedited", "rcu_normal") if kernel.setting(s) == "1"]
    with_ = f" (with /sys/kernel/{settings[0]})" if settings else ""
    why = f"control: the caller of umount -l had to wait in {slept} of {ops} calls{with_}"
    return Seen(None if 0 < slept < ops else slept > 0, why, cost)


_HOST = Host(
    control=_waits_here,
    command="sudo bpftrace -e 'kprobe:synchronize_rcu, kprobe:synchronize_rcu_expedited "
    "{ @at[tid] = nsecs; } kretprobe:synchronize_rcu, kretprobe:synchronize_rcu_expedited "
    "/@at[tid]/ { @us[comm] = hist((nsecs - @at[tid]) / 1000); delete(@at[tid]); } "
    "interval:s:10 { clear(@at); exit(); }'",
    size="two CPUs or more; each umount by itself, and most where grace periods are long",
    fixed=False,
)
STUDY = Study(
    host=_HOST,
    workloads=(UMOUNTS,),
    sweep=Sweep(
        UMOUNTS,
        "2x20-smt",
        (
            Series("before", "idle", "waits, machine idle"),
            Series("before", "busy", "waits, machine busy"),
            Series("expedited", "idle", "waits, expedited"),
            Series("call-rcu", "idle", "deferred"),
        ),
        Knob(
            "busy CPUs, part",
            lambda busy: {"draws": _LIVE_DRAWS, "busy": busy},
            factor=False,
            machine=False,
            start=_BUSY,
            lines=(
                Series("before", "busy", "waits"),
                Series("expedited", "busy", "waits, expedited"),
                Series("call-rcu", "busy", "deferred"),
            ),
        ),
        marks(register.get(SLUG).figure("lazy-umount"), "before", "call-rcu", place=False),
        "ms",
    ),
    predictions=_predictions,
    evidence={
        "lazy-umount": _lazy("before", "call-rcu", "queue-rcu-work"),
        "plain-umount": Evidence(
            no_userspace=_ONLY_LAZY,
            kernel=_lab_waits("plain", "before", "call-rcu"),
            timed=(_guest_time("plain"),),
            note="The control: a plain umount waits with the patch as without it. " + _COMMANDS,
        ),
        "plain-umount-2025": Evidence(
            no_userspace=_ONLY_LAZY,
            kernel=_lab_waits("plain", "before", "queue-rcu-work"),
            timed=(
                _guest_time("plain"),
                _patched("plain", "queue-rcu-work"),
                waited.other_wait(
                    "queue-rcu-work/before",
                    "queue-rcu-work",
                    "before",
                    "plain",
                    CONFIGURED,
                    SEVERAL,
                    rest_ms=grace.Rcu().call_us / 1000,
                ),
            ),
            note="The control, a year later. " + _PATCHED + _COMMANDS,
        ),
        "defer-everything": Evidence(
            userspace=_waits("before", "call-rcu"),
            timed=(_guest_time("plain"),),
            no_kernel="The lab has no kernel that defers plain umounts: they must be finished when "
            "the system call returns.",
            note=_COMMANDS,
        ),
        IN_A_ROW: Evidence(
            userspace=_waits("before"),
            kernel=_lab_waits("plain", "before"),
            timed=(
                _row("1-cpu", ROW, 1),
                _row("4-cpus", ROW, 4),
                _row("expedited", ("row-preempt-expedited",), 4),
                waited.more_cpus("4-cpus/1-cpu", "before", "plain", ROW, (4, 1), file=FILE_OF_ROW),
            ),
            note="What is published is of the whole command, which looks up each place as well, "
            "told to the second; timed is the system call, and the rest is what the expedited one "
            "had for all. How much of that is work was counted in the lab's guest: with the call, "
            "util-linux's command executes 37 to 40 thousand instructions for each place. Were "
            "that 0.04 ms, it is a third of the expedited one; what the rest is, of a virtual "
            "machine that has to wake its CPUs, a count cannot tell. How often the author's kernel "
            "ticks is not told; here 250 times, as his employer configures kernels. That was "
            "chosen after the waits with 100, 250 and 1000 ticks had been seen. It could be "
            "preempted: else its one CPU would not have waited. " + _TICKS,
        ),
        "no-wait": _lazy("before", "no-wait"),
        "rcu-work-2025": _lazy("before", "queue-rcu-work"),
    },
)
