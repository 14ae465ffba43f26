# SPDX-License-Identifier: MIT
"""Machines that their owners share: what is read, what is refused, what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import PROVENANCE

from contended import cli
from contended.errors import ContendedError
from contended.measure import TooFewCpus, results, share
from contended.measure.results import Failure, Measurement
from contended.show.machines import machines_table
from contended.state import Check

Change = Callable[[dict[str, Any]], object]


def measurement(root: Path, name: str, **changes: Any) -> Measurement:
    return replace(results.load(root / "results" / f"{name}.json"), **changes)


def made(root: Path) -> share.Machine:
    """A machine out of three reference runs."""
    runs = {"overlay-creds": "overlay-creds/run", "mount-hash": "mount-hash/mounts-10000"}
    cases = {slug: measurement(root, name) for slug, name in runs.items()}
    line = measurement(root, "pingpong/matrix")
    return share.assemble("Example", line, cases, {"lockref-degrade": "too few CPUs"})


def test_each_shared_machine_can_be_read_and_shown(root: Path) -> None:
    files = list((root / "results" / "machines").iterdir())
    machines = share.recorded()
    assert len(machines) == len(files) >= 2
    assert len({m.title for m in machines}) == len(machines)
    table = machines_table(machines)
    assert {len(row) for row in table.rows} == {len(machines) + 1}
    assert not [file for file in files if "/home" in file.read_text()]


def test_what_is_shared_is_what_was_measured(root: Path, tmp_path: Path) -> None:
    machine = made(root)
    machine.save(tmp_path / "m.json")
    assert share.load(tmp_path / "m.json") == machine
    run = measurement(root, "overlay-creds/run")
    case = machine.cases["overlay-creds"]
    assert case.widest() == ("after/before", run.ratio_at("after", threads=2))
    assert case.knee("before", "run") == 1, "two threads do less than one"
    text = repr(machines_table([machine]))
    assert "before does most with 1" in text
    assert "note: Example: lockref-degrade: too few CPUs" in text
    assert "umount-grace-period       not measured" in text


def test_the_file_says_nothing_of_its_owner(root: Path) -> None:
    quota = Check("CPU quota", False, False, "1 of 2 CPUs (/sys/fs/cgroup/ann/cpu.max): stopped")
    line = measurement(root, "pingpong/matrix", provenance=replace(PROVENANCE, state=[quota]))
    runs = {"mount-hash": measurement(root, "mount-hash/mounts-10000")}
    machine = share.assemble("", line, runs, {})
    assert machine.title == PROVENANCE.cpu
    assert machine.provenance.disturbed == ["CPU quota: 1 of 2 CPUs: stopped"]


def points(machine: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = machine["cases"]["overlay-creds"]["points"]
    return found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.update(title=" "), "title is empty"),
        (lambda m: m.update(host="box"), "host: "),
        (lambda m: m.update(schema=2), "has schema 2, this version reads 1"),
        (lambda m: m["handovers"].clear(), "no hand-over"),
        (lambda m: m["handovers"][0].update(b=7), "CPUs 0-7 are not of this machine"),
        (lambda m: m["handovers"][0].update(low=-1.0), "hand-over 0-1 is out of order"),
        (lambda m: m["handovers"][0].update(median="fast"), "handovers.0.median: "),
        (lambda m: m["cases"].update(mine=m["cases"]["mount-hash"]), "there is no case 'mine'"),
        (lambda m: m["lacking"].update(mine=""), "there is no case 'mine'"),
        (lambda m: points(m)[0].update(threads=99), "has 99 threads on 2 CPUs"),
        (lambda m: points(m)[0].update(high=0.5), "1 threads: out of order"),
        (lambda m: points(m).clear(), "has not both"),
        (lambda m: m["cases"]["mount-hash"]["ratio"].clear(), "mount-hash compares nothing"),
        (
            lambda m: m["cases"]["mount-hash"]["ratio"]["after/before"][0].update(low=1e9),
            "the ratio is out of order",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    root: Path, tmp_path: Path, change: Change, says: str
) -> None:
    value = json.loads(made(root).to_json())
    change(value)
    file = tmp_path / "m.json"
    file.write_text(json.dumps(value))
    with pytest.raises(ContendedError) as caught:
        share.load(file)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_what_a_machine_lacks_is_said(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, with reference runs in the place of measurements."""
    asked: list[list[int]] = []

    def pingpong(cpus: list[int], **_: object) -> Measurement:
        asked.append(cpus)
        return measurement(root, "pingpong/matrix")

    def measure(slug: str, **_: object) -> Measurement:
        if slug == "overlay-creds":
            return measurement(root, "overlay-creds/run")
        if slug == "mount-hash":
            failures = [Failure("before", 1, 0, "it crashed")]
            return measurement(root, "mount-hash/mounts-10000", failures=failures, ratio={})
        raise TooFewCpus("needs more CPUs")

    monkeypatch.setattr(share, "pingpong", pingpong)
    monkeypatch.setattr(share, "measure", measure)
    monkeypatch.setattr("contended.machine.allowed_cpus", lambda: list(range(64)))
    file = tmp_path / "mine.json"
    assert cli.main(["measure", "--share", str(file), "--title", "Mine"]) == 0
    assert asked == [[0, 1, 2, 3, 15, 31, 47, 63]]
    machine = share.load(file)
    assert machine.title == "Mine"
    assert list(machine.cases) == ["overlay-creds"]
    assert machine.lacking["mount-hash"] == "it crashed"
    assert machine.lacking["mount-propagation"] == "needs more CPUs"
    head = capsys.readouterr().out.splitlines()[0].split("  ")
    assert next(cell.strip() for cell in head if cell) == "Mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mount-hash", "--share", "x.json"], "--share measures all cases"),
        (["--share", "/no/such/folder/x.json"], "there is no folder"),
        ([], "name a SLUG, or --share FILE"),
        (["mount-hash", "--title", "x"], "--title is for --share"),
    ],
)
def test_wrong_calls(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["measure", *arguments]) == 2
    assert says in capsys.readouterr().err
