# SPDX-License-Identifier: MIT
"""What speaks to each published figure: the one table that the scoreboard is made from.

A figure has evidence from a model in userspace, from the kernel lab, or from both; where it has
none, the table says why. A probe names a run and what to read from it, never a number. Where its
number is the published quantity itself, in the same unit, `of` names the published value and the
two are compared; other probes show the mechanism at this machine's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREDICTED = "predicted-and-published"
BEYOND = "beyond-this-machine"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Throughput over throughput, repeat by repeat.

    Attributes:
        what: In words.
        run: The measurement's label: `results/<slug>/<run>.json`.
        top: Variant and phase.
        base: Variant and phase.
        threads: How many.
    """

    what: str
    run: str
    top: tuple[str, str]
    base: tuple[str, str]
    threads: int = 2
    of: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """What part of the counters `among` is `counter`."""

    what: str
    run: str
    variant: str
    counter: str
    among: tuple[str, ...]
    phase: str
    threads: int = 2
    of: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """A counter, for each operation."""

    what: str
    run: str
    variant: str
    counter: str
    threads: int = 1
    of: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """The median of what the model timed itself, in milliseconds."""

    what: str
    run: str
    variant: str
    threads: int = 2
    of: str = ""


@dataclass(frozen=True, slots=True)
class Slope:
    """The exponent of counters, summed, over runs `<prefix>-<size>`."""

    what: str
    prefix: str
    variant: str
    counters: tuple[str, ...]
    of: str = ""


@dataclass(frozen=True, slots=True)
class Chains:
    """How many chains there must be if a lookup takes as many steps as it does.

    With N mounts on c even chains, 1 + (N - 1) / 2c.
    """

    what: str
    run: str
    variant: str
    of: str = ""


@dataclass(frozen=True, slots=True)
class Lab:
    """What an outcome of the case's kernels saw.

    Attributes:
        what: In words.
        variant: The kernel.
        metric: The outcome's.
        run: Of the case's file; None takes the first that looks at the metric.
        percent: Whether to show it as a percentage.
        pattern: For an outcome about text: a regular expression whose group is the number.
    """

    what: str
    variant: str
    metric: str
    run: str | None = None
    percent: bool = False
    pattern: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class LabWait:
    """The median wait in a run of the kernel lab, in milliseconds."""

    what: str
    variant: str
    run: str
    label: str
    of: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """HITM per operation at the instructions of one kernel function, from a recorded profile."""

    what: str
    profile: str
    variant: str
    symbol: str
    of: str = ""


User = Ratio | Share | Count | Wait | Slope | Chains
Kernel = Lab | LabWait | Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that speaks to one figure.

    Attributes:
        userspace: From the C model; if empty, `no_userspace` says why.
        kernel: From the kernel lab; if empty, `no_kernel` says why.
        note: What to keep in mind when comparing; one or two sentences.
        section: Id of the chapter's section that discusses it.
    """

    userspace: tuple[User, ...] = ()
    kernel: tuple[Kernel, ...] = ()
    note: str
    section: str = PREDICTED
    no_userspace: str = ""
    no_kernel: str = ""


def _slow(what: str, run: str, variant: str) -> Share:
    return Share(what, run, variant, "slow", ("fast", "slow"), "perturbed")


_QUEUE = "perturbed/share.slow(lockref)"
_QUEUES = (
    Lab("before: references that queue while a listing runs", "before", _QUEUE, percent=True),
    Lab("spin: references that queue while a listing runs", "spin", _QUEUE, percent=True),
)
_OPENS = (
    Ratio("throughput, after over before, 2 threads", "opens", ("after", "run"), ("before", "run")),
    Count("before: root references per open", "opens", "before", "root_refs"),
    Count("after: root references per open", "opens", "after", "root_refs"),
)
_TAKEN = (
    Lab("before: references per open", "before", "calls_per_op.__legitimize_path"),
    Lab("after: references per open", "after", "calls_per_op.__legitimize_path"),
)
_CREDS = (
    Ratio("throughput, after over before, 2 threads", "run", ("after", "run"), ("before", "run")),
)
_BORROWED = "hitm_per_op.field(cred.usage).role(overlay)"
_HITM = (
    Lab("before: HITM on the counter per faccessat", "before", _BORROWED),
    Lab(
        "after: HITM on the counter per faccessat",
        "after",
        _BORROWED,
        of="after, of the credentials' line",
    ),
    Lab(
        "overlay-only: override_creds per faccessat", "overlay-only", "calls_per_op.override_creds"
    ),
)


def _waits(*variants: str) -> tuple[Wait, ...]:
    return tuple(Wait(f"{name}: median wait, model", "umounts", name) for name in variants)


def _lab_waits(label: str, *variants: str) -> tuple[LabWait, ...]:
    return tuple(LabWait(f"{name}: median umount", name, "normal", label) for name in variants)


_TICKS = (
    "The wait is timer ticks and not work, so even a translated kernel shows its order; how many "
    "ticks is a property of the kernel's configuration and load, which the report does not give."
)

EVIDENCE: Mapping[tuple[str, str], Evidence] = {
    ("lockref-degrade", "stat-collapse"): Evidence(
        userspace=(
            Ratio(
                "throughput, calm over perturbed, 2 threads with 20 CPUs' queue",
                "phases",
                ("before", "calm"),
                ("before", "perturbed"),
            ),
            _slow("share of the slow path while perturbed", "phases", "before"),
        ),
        kernel=_QUEUES,
        note="A few CPUs cannot keep the queue alive that keeps the lock held, so here the "
        "perturbation has to go on, or stand in for it; the simulated CPUs keep it themselves.",
    ),
    ("lockref-degrade", "spin-24-workers"): Evidence(
        userspace=(
            Ratio(
                "throughput while perturbed, waiting over queueing, 2 threads",
                "phases",
                ("after", "perturbed"),
                ("before", "perturbed"),
            ),
        ),
        kernel=_QUEUES,
        note="What waiting is worth depends on how many visits take the lock for its own sake; "
        "the chapter shows both sides of the crossover.",
    ),
    ("lockref-degrade", "spin-192-workers"): Evidence(
        no_userspace="Two CPUs have no crowd of readers that come back for the line.",
        no_kernel="The lab's emulated machine has no caches, and nothing like 192 CPUs.",
        note="The harm of waiting grows with the number of those who look at one line. The "
        "simulation has its direction and not its depth.",
    ),
    ("lockref-degrade", "spin-700-of-1000"): Evidence(
        userspace=(
            _slow("share of the slow path, 1 look", "spin-1", "after"),
            _slow("share of the slow path, 100 looks", "spin-100", "after"),
            _slow("share of the slow path, 1000 looks", "spin-1000", "after"),
        ),
        kernel=_QUEUES,
        note="How many looks are enough depends on how long a holder stays and on how fast a CPU "
        "looks, so no bound found on one machine holds on another.",
    ),
    ("lockref-degrade", "robot-regressions"): Evidence(
        no_userspace="The robot's workloads are whole system calls, which no model of one word is.",
        no_kernel="A change in throughput needs a clock, and the lab's machine has none to trust.",
        note="Only the stressor that does little but take references can be simulated.",
    ),
    ("dentry-false-sharing", "stat-same-file"): Evidence(
        userspace=(
            Ratio(
                "throughput, after over before, a reader beside a reference taker",
                "separate",
                ("after", "run"),
                ("before", "run"),
            ),
            Ratio(
                "throughput, after over before, readers only (the control)",
                "readers",
                ("after", "run"),
                ("before", "run"),
            ),
        ),
        kernel=(
            Lines("before: HITM in __d_lookup_rcu per stat", "c2c", "before", "__d_lookup_rcu"),
            Lines("after: HITM in __d_lookup_rcu per stat", "c2c", "after", "__d_lookup_rcu"),
        ),
        note="The model shows the whole effect by separating the roles; in a real stat each CPU "
        "does both, so less is gained. The profile counts what is saved: a transfer in each stat.",
    ),
    ("open-creat-unlazy", "open-close-64-mounts"): Evidence(
        userspace=_OPENS,
        kernel=_TAKEN,
        note="The number of references is the same on any machine. What one costs is not: two CPUs "
        "pay a hand-over, eighty pay for the queue.",
    ),
    ("open-creat-unlazy", "aim7-create-close"): Evidence(
        userspace=_OPENS,
        kernel=_TAKEN,
        note="No contended line gives the published ratio; the chapter discusses whether the unit "
        "slipped.",
    ),
    ("overlay-creds", "remote-hitm"): Evidence(
        userspace=_CREDS,
        kernel=_HITM,
        note="Samples of perf c2c depend on how long it listened; what can be compared is whether "
        "the line moves at all, and which part of the moves is remote.",
    ),
    ("overlay-creds", "local-hitm"): Evidence(
        userspace=_CREDS,
        kernel=_HITM,
        note="Samples of perf c2c depend on how long it listened. The lab's profiler counts every "
        "transfer, but knows one distance only: its HITM are neither local nor remote.",
    ),
    ("umount-grace-period", "lazy-umount"): Evidence(
        userspace=_waits("before", "call-rcu", "queue-rcu-work"),
        kernel=_lab_waits("lazy", "before", "call-rcu", "queue-rcu-work"),
        note=_TICKS,
    ),
    ("umount-grace-period", "plain-umount"): Evidence(
        no_userspace="The model has lazy umounts only: a plain one is its `before`.",
        kernel=_lab_waits("plain", "before", "call-rcu"),
        note="The control: a plain umount waits with the patch as without it. " + _TICKS,
    ),
    ("umount-grace-period", "defer-everything"): Evidence(
        userspace=_waits("before", "call-rcu"),
        no_kernel="The lab has no kernel that defers plain umounts: they must be finished when the "
        "system call returns.",
        note=_TICKS,
    ),
    ("umount-grace-period", "no-wait"): Evidence(
        userspace=_waits("before", "no-wait"),
        kernel=_lab_waits("lazy", "before", "no-wait"),
        note=_TICKS,
    ),
    ("umount-grace-period", "rcu-work-2025"): Evidence(
        userspace=_waits("before", "queue-rcu-work"),
        kernel=_lab_waits("lazy", "before", "queue-rcu-work"),
        note=_TICKS,
    ),
    ("percpu-area-map", "allocation-exponent"): Evidence(
        userspace=(
            Slope(
                "before: exponent of steps, allocating",
                "areas",
                "before",
                ("alloc_steps",),
                of="before",
            ),
            Slope(
                "before: exponent of steps, freeing",
                "areas",
                "before",
                ("free_steps",),
                of="before",
            ),
            Slope(
                "after: exponent of steps, both", "areas", "after", ("alloc_steps", "free_steps")
            ),
        ),
        kernel=(
            Lab(
                "today's allocator: exponent of regions looked at",
                "today",
                "slope.calls.pcpu_next_fit_region",
            ),
        ),
        note="Steps are counted, not timed, so the exponent does not depend on the machine. The "
        "allocator itself was replaced long ago: Linux 6.1 cannot show the old one.",
        section=BEYOND,
    ),
    ("mount-propagation", "discarded-mounts"): Evidence(
        userspace=(
            Count(
                "before: copies wasted, 4000 binds", "binds-4000", "before", "wasted", of="before"
            ),
            Count("after: copies wasted, 4000 binds", "binds-4000", "after", "wasted"),
        ),
        kernel=(
            Lab("before: mounts freed again, 1000 binds", "before", "1000/calls.cleanup_mnt"),
            Lab("after: mounts freed again, 1000 binds", "after", "1000/calls.cleanup_mnt"),
        ),
        note="Model and kernel agree to the last mount on N(N - 1)/2 for N binds, which is not "
        "what the letter says of 4000; the chapter works out what may have been meant.",
        section="where-the-two-million-comes-from",
    ),
    ("proc-mounts-seek", "read-exponent"): Evidence(
        userspace=(
            Slope("before: exponent of steps", "mounts", "before", ("walk_steps",), of="before"),
            Slope(
                "after: exponent of steps",
                "mounts",
                "after",
                ("walk_steps", "next_steps"),
                of="after",
            ),
        ),
        kernel=(
            Lab("before: exponent of steps", "before", "slope.calls.mnt_list_next", of="before"),
            Lab("after: exponent of instructions", "after", "slope.ns_per_op", of="after"),
        ),
        note="Steps and instructions are counted, not timed, so the exponent does not depend on "
        "the machine.",
        section=BEYOND,
    ),
    ("mount-hash", "hash-chains"): Evidence(
        userspace=(
            Chains(
                "before: chains that a lookup's steps imply", "mounts-30000", "before", of="before"
            ),
            Chains(
                "after, 2 GiB: chains that a lookup's steps imply",
                "memory-2048",
                "after",
                of="after",
            ),
        ),
        kernel=(
            Lab(
                "before: entries that the kernel reports",
                "before",
                "dmesg",
                pattern=r"entries: (\d+)",
                of="before",
            ),
            Lab(
                "after, 1 GiB: entries that the kernel reports",
                "after",
                "dmesg",
                pattern=r"entries: (\d+)",
            ),
        ),
        note="The table's size follows from the memory, two chains for each megabyte: a guest with "
        "half the memory has half the chains.",
        section=BEYOND,
    ),
}
"""By slug and figure."""
