# SPDX-License-Identifier: MIT
"""Operations step by step: which of those traced is the usual, and that it is still so."""

from __future__ import annotations

import pytest

from contended import cli
from contended.errors import ContendedError
from contended.kernel import source, steps
from contended.profile import plugin
from contended.profile.coherence import CacheLine, Counts, Origin, Profile, Side, Site, Thing
from contended.profile.entries import Frame
from contended.simulate import recorded

pytest_plugins = ("labfixtures",)
NONE = Counts(0, 0, 0, 0, 0)
SHARED, OWN, READ = 0x1000, 0x2000, 0x3000
SITES = ((SHARED, 8, 1, "get"), (SHARED, 8, 2, "put"), (OWN, 0, 3, "mine"), (READ, 0, 4, "ask"))


def region(*traces: tuple[int, list[tuple[int, int, int]]]) -> plugin.Region:
    rows = dict.fromkeys((SHARED, OWN, READ))
    at = {address: n for n, address in enumerate(rows)}
    return plugin.Region(
        complete=True,
        cpus=(),
        lines=tuple(plugin.LineRow(0, 0, 0, 0, 0, address, address) for address in rows),
        sites=tuple(
            plugin.SiteRow(0, 0, 0, 0, 0, at[line], offset, pc, True)
            for line, offset, pc, _ in SITES
        ),
        directory=plugin.Directory(0, 0, 0, 0),
        pcs=(),
        traces=tuple(
            plugin.Trace(cpu, 1000 + n, tuple(plugin.Step(*step) for step in found))  # type: ignore[arg-type]
            for n, (cpu, found) in enumerate(traces)
        ),
    )


def profile() -> Profile:
    lines = {
        address: CacheLine(
            address,
            address,
            NONE,
            tuple(
                Site(offset, pc, True, NONE, (Frame(name, "", 0),), Thing("variable", f"v{line:x}"))
                for line, offset, pc, name in SITES
                if line == address
            ),
        )
        for address in (SHARED, OWN, READ)
    }
    side = Side(0, NONE)
    origin = Origin(
        qemu="", kernel="", build_id="", vcpus=2, quantum=0, line=64, workload="", waits=0
    )
    return Profile("before", "", 0, 4, side, side, tuple(lines.values()), {}, origin)


USUAL = [(5, 2, 1), (10, 0, 0), (12, 0, 2), (20, 3, 0), (30, 1, 2)]
UNLUCKY = [(10, 0, 0), (12, 0, 2), (15, 0, 2), (30, 1, 2)]


def test_the_usual_operation_is_what_most_did_on_lines_that_several_write() -> None:
    found = steps.usual(region((0, USUAL), (1, UNLUCKY), (1, USUAL), (0, USUAL)), profile())
    # mine is written by both, but ask only reads
    assert [(a.at, a.function, a.kind, a.line) for a in found.accesses] == [
        (5, "mine", "store", 0),
        (10, "get", "load", 1),
        (12, "get", "atomic", 1),
        (30, "put", "atomic", 1),
    ]
    assert found.alike == 0.75
    assert found.instructions == 1002, "the middle one of those alike"
    assert found.accesses[1].thing == "v1000"
    alone = steps.usual(region((0, USUAL), (1, USUAL[1:]), (0, USUAL)), profile())
    assert "mine" not in {a.function for a in alone.accesses}, "one CPU's alone"
    text = str(found)
    assert "before: 1002 instructions; 75% of the operations took these steps" in text


def test_without_two_alike_there_is_none() -> None:
    with pytest.raises(ContendedError, match="no two of 2 operations took the same steps"):
        steps.usual(region((0, USUAL), (1, UNLUCKY)), profile())
    with pytest.raises(ContendedError, match="no two of 0 operations"):
        steps.usual(region(), profile())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gone"], "no kernel variants of 'gone'"),
        (["mount-hash", "--variants", "gone"], "no variant 'gone'"),
        (["mount-hash", "--run", "gone"], "no run 'gone'"),
        (["mount-hash", "--set", "ops"], "not like"),
        (["mount-hash", "--json", "/nowhere/x.json"], "/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it began")

    monkeypatch.setattr(source, "find", fail)
    try:
        status = cli.main(["kernel", "steps", *arguments])
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    assert status
    said = capsys.readouterr().err.strip().splitlines()
    assert says in said[-1]


@pytest.mark.check
@pytest.mark.usefixtures("no_vm_left")
def test_the_kernel_takes_the_recorded_steps() -> None:
    """In their order; how many instructions lie between may differ by a tick."""
    source.find()
    (live,) = steps.steps("dentry-false-sharing", wanted=["before"]).operations
    kept = recorded.load("dentry-false-sharing").of("before")
    assert [(a.function, a.kind, a.line) for a in live.accesses] == [
        (a.function, a.kind, a.line) for a in kept.accesses
    ]
    assert live.instructions == pytest.approx(kept.instructions, rel=0.02)
