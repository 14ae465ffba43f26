# SPDX-License-Identifier: MIT
"""overlay-creds: each system call on an overlay counts a reference on one set of credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from contended import stats
from contended.cases import Study, timed
from contended.cases.evidence import Evidence, RunProbe, lab, ratio
from contended.cases.host import Host, Seen, Traced, crowd, slower
from contended.errors import ContendedError
from contended.measure import today
from contended.measure.results import Measurement
from contended.measure.running import Running
from contended.register import Case
from contended.simulate import recorded
from contended.simulate.curves import Series, Sweep, times
from contended.simulate.locks import LOCKREF_COUNTERS
from contended.simulate.machines import Parameter
from contended.simulate.predict import Draw, Ground, Predicted, Value, cannot
from contended.simulate.program import Memory, Program
from contended.simulate.validate import Modelled
from contended.simulate.workload import MS, Scenario, Setup, Work

SLUG = "overlay-creds"
_KEPT, _FILE = "struct cred", "d_lockref"
_SITES = {
    name.replace("_", "-"): name
    for name in ("override_creds", "revert_creds", "generic_permission")
}
_COUNTERS = {function: 3 + n for n, function in enumerate(_SITES.values())}
_COPIED = ("init_groups", "root_user", "init_ucounts")  # counted with each copy of credentials


def _creds(setup: Setup, p: Program, memory: Memory) -> None:
    """Check access to one file on an overlay, as Linux 6.1 does it; "files-" are less alike."""
    name = setup.variant.removeprefix("files-")
    operation = recorded.load(SLUG).of("after" if name == "after" else "before")
    kept = memory.word(1)  # what moves of the line that is laid out first is counted
    lines = {} if name == "after" else {operation.line(_KEPT): kept}
    if setup.variant != name:
        lines[operation.line(_FILE)] = memory.own()[0]
        operation = operation.without(_COPIED)
    apart = f"{_KEPT} + 0: usage" if name == "own-line" else ""
    replay = recorded.Replay(operation, setup.lock, lines=lines, apart=apart, found=_COUNTERS)
    replay.put(p, memory, setup.work["faccessat"])


_CALL = "faccessat(2) of one file on tmpfs by one thread: 2-CPU AMD EPYC guest, Linux 6.18; "
_CALL += "overlayfs adds to it"
_APART = "each with a file of its own, and no copy of its credentials, as since Linux 6.3"
CHECKS = Scenario(
    name=SLUG,
    variants={
        "before": "count a reference on the credentials' own line",
        "own-line": "count it on a line of its own",
        "after": "count nothing",
        "files-before": f"as before, {_APART}",
        "files-after": f"as after, {_APART}",
    },
    phases={"start": 0.5 * MS, "run": 2 * MS},
    counters=LOCKREF_COUNTERS,
    works={"faccessat": Work(1000, Parameter("measured", _CALL, 500, 3000))},
    build=_creds,
)


BY_SITE = replace(CHECKS, counters={**CHECKS.counters, **_COUNTERS})
"""The same, with what each function found modified, which sweeps need not keep."""


def remote_share(counts: Mapping[str, int]) -> float:
    """Of the transfers of the credentials' line, the part that came from another socket."""
    return counts["first_far"] / counts["first"]


def _predictions(case: Case) -> Iterator[Predicted]:
    here = Ground(CHECKS, "2x20-smt", 80)
    remote, local = case.figure("remote-hitm"), case.figure("local-hitm")
    for figure in (remote, local):
        yield from cannot(
            figure, "a number of samples: it depends on how long and how often they were taken"
        )
    far, near = remote.value("before").low, local.value("before").low
    ends = (far / (far + near),) * 2
    yield here.value(
        remote,
        "before, remote share",
        lambda draw: remote_share(here.phase("before", "run", draw).counts),
        "of all HITM on the line, those that came from the other socket; the guess: from any CPU",
        naive=lambda _: timed.elsewhere(here.machine, here.cpus),
        published=ends,
        unit="part",
    )
    why = "of one file's access checks; the report's server does more, and loads alone are sampled"
    there = replace(here, scenario=BY_SITE)
    for value in case.figure("hitm-sites").values:
        yield there.value(
            case.figure("hitm-sites"),
            value.name,
            _site_share(there, value.name),
            why,
            naive=_each_alike,
        )


def _site_share(here: Ground, site: str) -> Value:
    """Of the credentials' lines that came modified, the part in per cent that a function had."""

    def of(draw: Draw) -> float:
        counts = here.phase("before", "run", draw).counts
        return 100 * counts[_SITES[site]] / sum(counts[name] for name in _SITES.values())

    return of


def _each_alike(_: Draw) -> float:
    return 100 / len(_SITES)


def _borrow(p: Program, memory: Memory) -> None:
    """The C model, before: take, look at the ids beside the count, drop."""
    word = memory.word(1)
    p.add(word, 1)
    p.read(memory.word(beside=word))
    p.add(word, -1)


_CREDS = (RunProbe("throughput, after over before, 2 threads", ratio("run", "after")),)
_BORROWED, _MOVED = (
    "hitm_per_op.field(cred.usage).role(overlay)",
    "HITM on the counter per faccessat",
)
_LENT = r"^struct cred \+ "


def sites(file: str, **costs: float) -> dict[str, float]:
    """By function, its part of the lent credentials' HITM with 80 CPUs, in per cent.

    The median of a record's seeds, or of those that have these `costs`, as `take=1.0`. Raises
    ContendedError if the record is missing or damaged, or has none.
    """
    seen = timed.record(SLUG, file)
    chosen = [each for each in seen.regions if costs.items() <= each["costs"].items()]
    found = {}
    for name in _SITES.values():
        values = timed.by(name, "before", 80, _LENT, name).read(timed.Record(tuple(chosen)))
        if not values:
            raise ContendedError(f"{file} of {SLUG} has no boot by 80 CPUs with {costs}")
        found[name] = stats.median(values)
    return found


_OVERRIDDEN = "overlay-only: override_creds per faccessat"
_HITM = (
    RunProbe(f"before: {_MOVED}", lab("before", _BORROWED)),
    RunProbe(f"after: {_MOVED}", lab("after", _BORROWED)),
    RunProbe(_OVERRIDDEN, lab("overlay-only", "calls_per_op.override_creds")),
)
_LINES = tuple(map(Series, CHECKS.variants))
# a slider tells four lines apart; "files-before" lies on "before" from eight CPUs on
_KNOB = times(CHECKS, "faccessat")._replace(
    lines=tuple(line for line in _LINES if line.variant != "files-before")
)


def _structure(kernel: Running) -> Seen:
    """From 6.14 on override_creds takes no reference and is no function any more."""
    if kernel.set("CONFIG_OVERLAY_FS") is False:
        return Seen(False, "this kernel is without overlayfs")
    if kernel.has("override_creds") is False:
        return Seen(False, "override_creds is no function here: it takes no reference")
    return Seen(None, "override_creds is, or may be, a function: it may take references")


def _accesses(kernel: Running, processes: int, **more: int) -> Measurement:
    if "overlay" not in kernel.file_systems:
        # mounting one would have the kernel load the module, and that is a change
        raise today.NotAllowed("overlayfs is not loaded (modprobe overlay)")
    return today.overlays([processes], **more)


def _control(kernel: Running) -> Seen:
    seen = _accesses(kernel, crowd())
    return slower(
        seen, "access-overlay", "access to own files on one overlay", "on an overlay each"
    )


_HOST = Host(
    structure=_structure,
    control=_control,
    traced=Traced(
        calls="override_creds",
        per="ovl_permission",
        operation=lambda kernel: _accesses(kernel, 1, repeats=1),
        sick=1.4,
        healthy=0.6,
    ),
    command="sudo bpftrace -e 'kprobe:override_creds, kprobe:ovl_permission "
    "{ @[func] = count(); } interval:s:10 { exit(); }'",
)
STUDY = Study(
    host=_HOST,
    workloads=(CHECKS,),
    sweep=Sweep(CHECKS, "2x20-smt", _LINES, _KNOB),
    predictions=_predictions,
    modelled=(Modelled(SLUG, "before", "run", "overlay-creds/run", _borrow),),
    evidence={
        "remote-hitm": Evidence(
            userspace=_CREDS,
            kernel=_HITM,
            timed=(timed.remote("before, remote share", "before", 80, _LENT),),
            note="Samples of perf c2c depend on how long it listened; what can be compared is "
            "which part of the moves is remote.",
        ),
        "local-hitm": Evidence(
            userspace=_CREDS,
            kernel=_HITM,
            note="Samples of perf c2c depend on how long it listened. What a longer look does not "
            "change, how many of them are remote, is a row of the remote ones.",
        ),
        "hitm-sites": Evidence(
            no_userspace="The model is one function.",
            kernel=_HITM,
            timed=tuple(timed.by(of, "before", 80, _LENT, site) for of, site in _SITES.items()),
            note="Samples of perf c2c are of loads, those of atomic changes among them; here loads "
            "and stores count. The report's server does more than check access, and less of that "
            "on one file; here who reads behind the first access mostly finds the line where it "
            "is. The chapter has what was tried: files of their own, deeper paths, and what is not "
            "known of the machine.",
        ),
    },
)
