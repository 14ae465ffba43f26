# SPDX-License-Identifier: MIT
"""The coherence plugin: exact against an oracle, under threads, in QEMU, and in its refusals.

`tests/c/fake_qemu.c` plays the part of QEMU, so that every access is known.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ctools import C, compile_c, execute

from contended import tree
from contended.errors import UsageError
from contended.profile import plugin

KERNEL = 0xFFFFFFFF81000000
HOT = 32  # CT_HOT_EVENTS
EVENTS = ("hitm_loads", "hitm_stores", "invalidations")


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("fake") / "fake_qemu", C / "fake_qemu.c", "-O2")


def play(fake: Path, where: Path, lines: list[str], *arguments: str, vcpus: int = 4) -> Any:
    """Play a trace; the report's raw regions, after all checks."""
    out = where / "report.json"
    run = subprocess.run(
        [str(fake), "trace", str(vcpus), "system", f"out={out}", *arguments],
        input="\n".join(lines),
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return plugin.parse(out.read_bytes())


# --- a simple oracle: one dictionary of lines, one access after the other ---


@dataclass
class Oracle:
    """The model of directory.h as one would write it on a blackboard."""

    vcpus: int
    shift: int = 6
    owner: dict[int, tuple[str, set[int]]] = field(default_factory=dict)
    cpu: list[dict[str, list[int]]] = field(default_factory=list)
    line: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(counter))
    # each vCPU's sites begin with their first event
    sites: dict[tuple[int, int, int], dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("loads", "stores", *EVENTS)
        self.cpu = [{name: [0, 0] for name in names} for _ in range(self.vcpus)]

    def access(self, cpu: int, pc: int, address: int, size: int, store: bool) -> None:
        physical = translate(address)
        if physical >= 0xF0000000:
            return
        kernel = pc >> 63
        self.cpu[cpu]["stores" if store else "loads"][kernel] += 1
        self.touch(cpu, pc, physical, store)
        last = address + size - 1
        if last >> self.shift != address >> self.shift:
            self.touch(cpu, pc, translate(last >> self.shift << self.shift), store)

    def touch(self, cpu: int, pc: int, address: int, store: bool) -> None:
        line = address >> self.shift
        state, holders = self.owner.get(line, ("nobody", set()))
        event = None
        if state == "modified" and cpu not in holders:
            event = "hitm_stores" if store else "hitm_loads"
        elif store and holders - {cpu}:
            event = "invalidations"
        if store:
            self.owner[line] = ("modified", {cpu})
        elif cpu not in holders:
            self.owner[line] = ("clean", holders | {cpu})
        kind = "stores" if store else "loads"
        counts = self.line[line]
        counts[kind] += 1
        if event:
            self.cpu[cpu][event][pc >> 63] += 1
            counts[event] += 1
            site = self.sites.setdefault((cpu, address, pc), counter())
            site[event] += 1
            site[kind] += 1
        elif sum(counts[e] for e in EVENTS) >= HOT and (cpu, address, pc) in self.sites:
            self.sites[cpu, address, pc][kind] += 1

    def by_site(self) -> dict[tuple[int, int], dict[str, int]]:
        """All vCPUs' together."""
        total: dict[tuple[int, int], dict[str, int]] = defaultdict(counter)
        for (_, address, pc), counts in self.sites.items():
            for name, count in counts.items():
                total[address, pc][name] += count
        return total


def counter() -> dict[str, int]:
    return dict.fromkeys(("loads", "stores", *EVENTS), 0)


def translate(address: int) -> int:
    physical = address & 0xFFFFFFFF
    return physical ^ 0x3000 if physical >> 12 in (5, 6) else physical


def compare(region: plugin.Region, oracle: Oracle) -> None:
    for got, expected in zip(region.cpus, oracle.cpu, strict=True):
        for name, (user, kernel) in expected.items():
            assert getattr(got, name) == plugin.Split(user, kernel), name
    lines = {n: c for n, c in oracle.line.items() if any(c[e] for e in EVENTS)}
    assert {
        row.address: {k: v for k, v in asdict(row).items() if k not in ("address", "vaddr")}
        for row in region.lines
    } == {n << oracle.shift: c for n, c in lines.items()}
    names = ("loads", "stores", *EVENTS)
    assert {
        (region.lines[s.line].address + s.offset, s.pc): {n: getattr(s, n) for n in names}
        for s in region.sites
    } == oracle.by_site()
    assert all(s.kernel == bool(s.pc >> 63) for s in region.sites)


def random_trace(seed: int, vcpus: int, events: int, oracle: Oracle) -> list[str]:
    dice = random.Random(seed)
    lines = ["begin 0"]
    # Few lines that all want, some that are private, two pages that are not where they seem,
    # devices, and both halves of the address space.
    pcs = [0x401000, 0x401007, KERNEL + 0x10, KERNEL + 0x20]
    for _ in range(events):
        cpu, pc, size = dice.randrange(vcpus), dice.choice(pcs), dice.choice((1, 2, 4, 8))
        base = dice.choice((0x1000, 0x1040, 0x5FC0, 0x6FC0, 0x10000 + 0x1000 * cpu, 0xF0001000))
        address = base + dice.randrange(64)
        if pc >> 63:
            address += 0xFFFF888000000000
        kind = dice.choice(("load", "load", "store", "atomic", "halves"))
        if kind in ("load", "store"):
            lines.append(f"{kind} {cpu} {pc:x} {address:x} {size}")
        else:
            size = 8
            lines.append(f"{kind} {cpu} {pc:x} {address:x}")
        oracle.access(cpu, pc, address, size, kind != "load")
    return [*lines, "end 0"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("vcpus", [1, 2, 4, 128, 256])
def test_random_traces_agree_with_the_oracle(
    fake: Path, tmp_path: Path, seed: int, vcpus: int
) -> None:
    shift = (6, 5, 7)[seed % 3]
    oracle = Oracle(vcpus, shift)
    lines = random_trace(seed, vcpus, 3000, oracle)
    report = play(fake, tmp_path, lines, "quantum=0", f"line={1 << shift}", vcpus=vcpus)
    assert report.line == 1 << shift
    (region,) = report.regions
    compare(region, oracle)
    assert bool(region.hitm) == (vcpus > 1)


def one_region(fake: Path, where: Path, *lines: str) -> plugin.Region:
    report = play(fake, where, ["begin 0", *lines, "end 0"], "quantum=0")
    region: plugin.Region = report.regions[0]
    return region


def sums(region: plugin.Region) -> tuple[int, ...]:
    return tuple(sum(getattr(cpu, name).total for cpu in region.cpus) for name in EVENTS)


def test_an_atomic_on_a_modified_line_is_one_hitm(fake: Path, tmp_path: Path) -> None:
    """Seen as one store, or as a load and a store: the same."""
    for kind in ("atomic", "halves"):
        region = one_region(fake, tmp_path, "store 0 400 1000 8", f"{kind} 1 401 1000")
        assert sums(region) == (0, 1, 0)
        assert region.cpus[1].stores.total == 1
        assert region.cpus[1].loads.total == 0


def test_a_plain_read_modify_write_is_a_load_and_an_invalidation(
    fake: Path, tmp_path: Path
) -> None:
    lines = ("store 0 400 1000 8", "load 1 401 1000 8", "store 1 401 1000 8")
    assert sums(one_region(fake, tmp_path, *lines)) == (1, 0, 1)


def test_a_store_to_an_exclusive_line_modifies_it(fake: Path, tmp_path: Path) -> None:
    lines = ("load 0 400 1000 8", "store 0 401 1000 8", "load 1 402 1000 8")
    assert sums(one_region(fake, tmp_path, *lines)) == (1, 0, 0)
    lines = ("load 0 400 1000 8", "load 1 401 1000 8", "store 0 402 1000 8")
    assert sums(one_region(fake, tmp_path, *lines)) == (0, 0, 1)
    lines = ("load 0 400 1000 8", "store 1 401 1000 8", "load 1 402 1000 8")
    assert sums(one_region(fake, tmp_path, *lines)) == (0, 0, 1)


def test_the_first_access_of_a_region_is_no_hitm(fake: Path, tmp_path: Path) -> None:
    before = ["store 0 400 1000 8", "begin 0", "end 0", "store 0 400 1000 8"]
    report = play(
        fake, tmp_path, [*before, "begin 0", "load 1 401 1000 8", "op 1", "end 0"], "quantum=0"
    )
    first, second = report.regions
    assert sums(first) == sums(second) == (0, 0, 0)
    assert (first.ops, second.ops, second.cpus[1].ops) == (0, 1, 1)


def test_an_access_across_lines_touches_both(fake: Path, tmp_path: Path) -> None:
    """Also across pages that are apart: 0x5000 is at 0x6000, and the other way round."""
    region = one_region(
        fake, tmp_path, "store 0 400 103c 8", "load 1 401 1000 8", "load 1 402 1040 8"
    )
    assert sums(region) == (2, 0, 0)
    region = one_region(fake, tmp_path, "store 0 400 4ffc 8", "load 1 401 5000 8")
    assert [line.address for line in region.lines] == [0x6000]


def test_devices_are_left_out(fake: Path, tmp_path: Path) -> None:
    region = one_region(fake, tmp_path, "store 0 400 f0000000 8", "load 1 401 f0000000 8")
    assert sums(region) == (0, 0, 0)
    assert region.cpus[0].stores.total == 0


def test_instructions_and_watched_addresses_are_counted(fake: Path, tmp_path: Path) -> None:
    lines = ["block 0 400 5", "begin 0", "block 0 400 5", f"block 1 {KERNEL:x} 3", "block 0 402 2"]
    report = play(fake, tmp_path, [*lines, "end 0"], "quantum=0", "watch=0x402+0x77")
    (region,) = report.regions
    assert [(w.pc, w.executions) for w in region.pcs] == [(0x402, 2), (0x77, 0)]
    # the end mark's block is counted as it begins; the begin mark's began before the region
    assert region.cpus[0].instructions == plugin.Split(5 + 2 + 1, 0)
    assert region.cpus[1].instructions == plugin.Split(0, 3)


def test_operations_are_kept_step_by_step(fake: Path, tmp_path: Path) -> None:
    """Not the first, and nothing that was never an event, nor what has not ended."""
    other = ["store 1 500 1000 8", "load 1 501 2000 8"]
    one = [
        *("block 0 400 7", "load 0 401 1004 4", "load 0 402 3000 8", "block 0 403 6"),
        *("atomic 0 404 2008", "store 0 405 1000 8", "block 0 406 3", "op 0"),
    ]
    lines = ["begin 0", *one, *other, *one, *other, *one, *other, *one, *one, *one[:3], "end 0"]
    report = play(fake, tmp_path, lines, "quantum=0", "trace=2", "line=64")
    (region,) = report.regions
    assert [trace.cpu for trace in region.traces] == [0, 0]
    for trace in region.traces:
        found = []
        for at, number, kind in trace.steps:
            site = region.sites[number]
            found.append((at, region.lines[site.line].address + site.offset, site.pc, kind))
        assert found == [(8, 0x1004, 0x401, 0), (16, 0x2008, 0x404, 2), (17, 0x1000, 0x405, 1)]
        assert trace.instructions == 21
    (region,) = play(fake, tmp_path, lines, "quantum=0").regions
    assert region.traces == ()


def test_a_string_instruction_is_one_step_however_often_it_turns(
    fake: Path, tmp_path: Path
) -> None:
    """A kernel that zeroes a page takes 4096 turns; what it executes is one instruction."""
    turns = [f"turn 0 401 {0x3000 + byte:x} 1" for byte in range(1, 40)]
    one = ["block 0 400 7", *turns, "block 0 402 2", "atomic 0 404 2008", "op 0"]
    other = ["store 1 501 2000 8"]
    report = play(
        fake,
        tmp_path,
        ["begin 0", *one, *other, *one, *other, *one, *other, "end 0"],
        *("quantum=0", "trace=2", "line=64"),
    )
    (region,) = report.regions
    assert [[step.instructions for step in trace.steps] for trace in region.traces] == [[10], [10]]
    assert [trace.instructions for trace in region.traces] == [11, 11]
    assert region.cpus[0].instructions.total == 3 * (7 + 39 + 2 + 1 + 1) + 1, "there each is one"


def test_user_mode_counts_virtual_addresses(fake: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    trace = f"store 0 {KERNEL:x} 5000 8\nload 1 401 5000 8\n"
    run = subprocess.run(
        [str(fake), "trace", "2", "user", f"out={out}", "quantum=0", "region=all"],
        input=trace,
        text=True,
        check=False,
    )
    assert run.returncode == 0
    report = plugin.load(out)
    assert (report.mode, report.vcpus) == ("user", 2)
    (region,) = report.regions
    assert region.complete
    assert [line.address for line in region.lines] == [0x5000]
    assert region.cpus[0].stores == plugin.Split(1, 0)


def test_a_region_that_did_not_end_is_marked(fake: Path, tmp_path: Path) -> None:
    report = play(fake, tmp_path, ["begin 0", "store 0 400 1000 8"], "quantum=0")
    assert [region.complete for region in report.regions] == [False]
    with pytest.raises(plugin.BadReport, match="region 1 was not finished"):
        plugin.load(tmp_path / "report.json")


def test_no_region_is_said(fake: Path, tmp_path: Path) -> None:
    report = play(fake, tmp_path, ["store 0 400 1000 8", "end 0"], "quantum=0")
    assert report.regions == ()
    with pytest.raises(plugin.BadReport, match="0 marked regions instead of 1"):
        plugin.load(tmp_path / "report.json")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("colour=red", "unknown argument 'colour=red'"),
        ("quantum", "not key=value"),
        ("quantum=5x", "quantum=5x"),
        ("quantum=-1", "quantum=-1"),
        ("quantum=5", "quantum=5"),
        ("trace=101", "trace=101"),
        ("trace=x", "trace=x"),
        ("line=48", "line=48"),
        ("line=8192", "line=8192"),
        ("region=some", "region=some"),
        ("watch=0x10+", "watch=0x10+"),
        ("watch=zero", "watch=zero"),
        ("out=", "out="),
    ],
)
def test_bad_arguments_are_refused(fake: Path, tmp_path: Path, argument: str, said: str) -> None:
    run = execute(fake, "trace", "2", "system", f"out={tmp_path / 'x'}", argument)
    assert run.returncode == 1
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_too_many_vcpus_and_a_missing_file_are_refused(fake: Path, tmp_path: Path) -> None:
    run = execute(fake, "trace", "257", "system", f"out={tmp_path / 'x'}")
    assert run.returncode == 1
    assert "at most 256" in run.stderr
    run = execute(fake, "trace", "257", "user", f"out={tmp_path / 'x'}")
    assert run.returncode == 1
    assert "more than 256" in run.stderr
    assert "out=FILE is missing" in execute(fake, "trace", "2", "system").stderr


# --- threads ---

SANITIZERS = pytest.mark.parametrize(
    "flags",
    [
        ("-O2",),
        ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        ("-g", "-O1", "-fsanitize=thread"),
    ],
    ids=["plain", "asan-ubsan", "tsan"],
)


def alternation_holds(region: plugin.Region) -> bool:
    """Exact in any interleaving, on every line that is loaded and stored.

    A HITM load makes a modified line shared, an invalidation a shared one modified, and between
    two of one kind there is one of the other. Only the first of all may be either: a line that
    was loaded before it was stored starts clean.
    """
    return all(abs(line.hitm_loads - line.invalidations) <= 1 for line in region.lines)


@SANITIZERS
@pytest.mark.parametrize("quantum", ["0", "200"])
def test_threads_lose_no_count(tmp_path: Path, flags: tuple[str, ...], quantum: str) -> None:
    fake = compile_c(tmp_path / "fake_qemu", C / "fake_qemu.c", *flags)
    out = tmp_path / "report.json"
    run = execute(fake, "random", "4", "20000", "6", f"out={out}", f"quantum={quantum}")
    assert run.returncode == 0, run.stderr
    assert not run.stderr
    (region,) = plugin.load(out).regions  # load() compares vCPUs, lines and sites
    assert [cpu.ops for cpu in region.cpus] == [20000] * 4
    accesses = [cpu.loads.total + cpu.stores.total for cpu in region.cpus]
    assert accesses == [20000] * 4
    assert sum(line.loads + line.stores for line in region.lines) == 80000
    assert region.hitm > 0
    assert alternation_holds(region)


@SANITIZERS
def test_turns_have_one_hitm_each(tmp_path: Path, flags: tuple[str, ...]) -> None:
    fake = compile_c(tmp_path / "fake_qemu", C / "fake_qemu.c", *flags)
    out = tmp_path / "report.json"
    run = execute(fake, "turns", "4", "4000", f"out={out}", "quantum=0")
    assert run.returncode == 0, run.stderr
    assert not run.stderr
    (region,) = plugin.load(out).regions
    # of the two accesses of a turn the load is the HITM; the very first finds nothing
    assert sums(region) == (3999, 0, 3999)


def test_a_directory_that_is_not_atomic_is_caught(tmp_path: Path) -> None:
    """The same test sees it when a change is a read and a write."""
    fake = mistaken(
        tmp_path,
        # a pause in the middle, because two threads rarely meet by themselves
        (
            "while (!atomic_compare_exchange_weak(&e->word, &word, next));",
            "while (0); usleep(1); atomic_store(&e->word, next);",
        ),
    )

    def holds(number: int) -> bool:
        out = tmp_path / f"report-{number}.json"
        run = execute(fake, "random", "4", "3000", "2", f"out={out}", "quantum=0")
        assert run.returncode == 0, run.stderr
        (region,) = plugin.load(out).regions
        return alternation_holds(region)

    # A busy host may run the threads one after the other, and then there is nothing to see.
    assert not all(holds(number) for number in range(20))


def test_the_oracle_catches_a_wrong_directory(tmp_path: Path) -> None:
    for number, change in enumerate(
        [
            ("*event = CT_HITM;", "*event = CT_INVALIDATION;"),
            ("events += CT_EVENT;", "events += 0;"),
            (": held &&", ": CT_OWNER(word) <= CT_CPUS &&"),
        ]
    ):
        where = tmp_path / str(number)
        where.mkdir()
        fake = mistaken(where, change)
        oracle = Oracle(4)
        report = play(fake, where, random_trace(1, 4, 3000, oracle), "quantum=0")
        with pytest.raises(AssertionError):
            compare(report.regions[0], oracle)


def mistaken(where: Path, *changes: tuple[str, str]) -> Path:
    """The fake with a directory.h in which each `old` became `new`."""
    folder = where / "qemu"
    folder.mkdir()
    for file in plugin.sources().iterdir():
        text = file.read_text()
        for old, new in changes if file.name == "directory.h" else ():
            assert text.count(old) == 1, f"directory.h: {old!r}: bring this mistake up to date"
            text = text.replace(old, new)
        (folder / file.name).write_text(text)
    # found before csrc because quoted names are looked for there first
    return compile_c(
        where / "fake_qemu", C / "fake_qemu.c", "-O2", "-Wno-unused", f"-iquote{where}"
    )


def test_nobody_runs_ahead(fake: Path, tmp_path: Path) -> None:
    """With a quantum all threads are interleaved, however long their time slices are."""
    out = tmp_path / "report.json"
    run = execute(fake, "random", "4", "50000", "1", f"out={out}", "quantum=100")
    assert run.returncode == 0, run.stderr
    (region,) = plugin.load(out).regions
    # 50000 operations of two instructions are 1000 windows
    assert sum(cpu.waits for cpu in region.cpus) > 500
    # in each window the line changes hands at least once
    assert region.hitm > 1000


def test_a_waiter_gives_way_to_an_exclusive_section(fake: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    run = execute(fake, "stuck", "2", "300", f"out={out}", "quantum=100")
    assert run.returncode == 0, run.stderr
    (region,) = plugin.load(out).regions
    assert region.cpus[1].escapes > 0
    assert region.cpus[0].escapes == 0


def test_the_plugin_compiles_for_newer_interfaces(tmp_path: Path) -> None:
    for api in plugin.KNOWN_APIS:
        fake = tmp_path / f"fake{api}"
        compile_c(fake, C / "fake_qemu.c", f"-DCT_QEMU_API={api}")
        report = play(
            fake, tmp_path, ["begin 0", "store 0 400 1000 8", "atomic 1 401 1000", "end 0"]
        )
        assert report.plugin_api == api
        assert sums(report.regions[0]) == (0, 1, 0)


# --- the Python side ---


def good_report(fake: Path, where: Path) -> Any:
    play(
        fake,
        where,
        ["begin 0", "store 0 400 1000 8", "load 1 401 1000 8", "end 0"],
        "quantum=0",
        "watch=0x77",
    )
    return json.loads((where / "report.json").read_text())


def test_reports_that_do_not_fit_are_refused(fake: Path, tmp_path: Path) -> None:
    good = good_report(fake, tmp_path)
    assert plugin.parse(json.dumps(good).encode()).regions[0].hitm == 1

    def changed(change: str) -> bytes:
        report = json.loads(json.dumps(good))
        exec(change, {"r": report, "g": report["regions"][0]})
        return json.dumps(report).encode()

    with pytest.raises(plugin.BadReport, match="version 2"):
        plugin.parse(changed("r['abi'] = 2"))
    for change in (
        "del r['vcpus']",
        "r['more'] = 1",
        "r['mode'] = 'both'",
        "g['complete'] = 1",
        "g['cpus'][0]['ops'] = -1",
        "g['cpus'][0]['loads'] = 3",
        "g['lines'][0]['hitm_loads'] += 1",
        "g['sites'][0]['hitm_loads'] = True",
        "g['sites'].clear()",
        "g['sites'][0]['line'] = 7",
        "g['directory'] = []",
        "g['pcs'][0].pop('pc')",
    ):
        with pytest.raises(plugin.BadReport, match="damaged"):
            plugin.parse(changed(change))


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(plugin.BadReport, match="left no report"):
        plugin.load(tmp_path / "none")
    (tmp_path / "half").write_text('{"abi":1')
    with pytest.raises(plugin.BadReport, match="damaged"):
        plugin.load(tmp_path / "half")


def test_options_are_checked_and_escaped() -> None:
    value = plugin.option(Path("/a,b/c.so"), Path("x"), watch=(16, 32))
    assert value == "/a,,b/c.so,out=x,quantum=2000,line=64,watch=0x10+0x20"
    for quantum in (3, -1):
        with pytest.raises(UsageError):
            plugin.option(Path("p"), Path("x"), quantum=quantum)
    with pytest.raises(UsageError):
        plugin.option(Path("p"), Path("x"), watch=range(65))


def program(where: Path, text: str) -> Path:
    path = where / "qemu"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_qemu_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = 'test "$1" = --version && { echo QEMU emulator version 8.1; exit; }'
    no_plugins = program(tmp_path, f"{version}; echo '-plugin: invalid option' >&2; exit 1")
    with pytest.raises(plugin.NoPlugins, match=r"loads no plugins .*invalid option"):
        plugin.ask(no_plugins, "system")
    (tmp_path / "static.c").write_text(
        '#include <stdio.h>\nint main(void) { return puts("QEMU emulator version 8.1") < 0; }\n'
    )
    static = compile_c(tmp_path / "static", tmp_path / "static.c", "-static")
    with pytest.raises(plugin.NoPlugins, match="linked statically, as Debian's is from 13 on"):
        plugin.ask(static, "user")
    newer = program(tmp_path, f"{version}; echo 'supports only up to version 99' >&2; exit 1")
    with pytest.raises(plugin.NoPlugins, match="version 99 of the plugin interface"):
        plugin.ask(newer, "system")
    newer = program(tmp_path, f"{version}; echo 'supports only up to version 4' >&2; exit 1")
    assert plugin.ask(newer, "user").api == 4
    with pytest.raises(plugin.NoPlugins, match="is it QEMU"):
        plugin.ask(program(tmp_path, "exit 0"), "user")
    monkeypatch.setenv("PATH", str(tmp_path))
    plugin.find.cache_clear()
    with pytest.raises(plugin.NoPlugins, match="apt-get install qemu-user"):
        plugin.find("user")
    plugin.find.cache_clear()


# --- under QEMU's user mode ---


def test_a_program_under_qemu_user(tmp_path: Path) -> None:
    """Two threads take turns: each turn one HITM, on that line and no other of the program's."""
    try:
        qemu = plugin.find("user")
    except plugin.NoPlugins as reason:
        pytest.skip(str(reason))
    turns = compile_c(tmp_path / "turns", C / "user_turns.c", "-O1", "-static", "-D_GNU_SOURCE")
    out = tmp_path / "out,put.json"
    value = plugin.option(plugin.build(qemu), out, quantum=100)
    run = execute(qemu.path, "-plugin", value, turns, "1000")
    assert run.returncode == 0, run.stderr
    words = {k: int(v, 16) for k, v in (x.split("=") for x in run.stdout.split())}
    (region,) = plugin.load(out).regions
    assert region.ops == 2000
    lines = {line.address: line for line in region.lines}
    # the first of 2000 turns finds the line in nobody's cache; a turn that comes before the last
    # one's was recorded, as the host had stopped that thread, is not seen
    shared = lines[words["turn"] & -64]
    assert 1980 <= shared.hitm_loads + shared.hitm_stores <= 1999
    assert words["padded0"] & -64 not in lines
    assert words["padded1"] & -64 not in lines


def test_a_program_without_marks_has_no_region(tmp_path: Path) -> None:
    try:
        qemu = plugin.find("user")
    except plugin.NoPlugins as reason:
        pytest.skip(str(reason))
    source = tmp_path / "nothing.c"
    source.write_text("int main(void) { return 0; }\n")
    nothing = compile_c(tmp_path / "nothing", source, "-static")
    out = tmp_path / "report.json"
    for whole in (False, True):
        value = plugin.option(plugin.build(qemu), out) + (",region=all" if whole else "")
        assert execute(qemu.path, "-plugin", value, nothing).returncode == 0
        report = plugin.parse(out.read_bytes())
        assert len(report.regions) == int(whole)
    assert report.regions[0].cpus[0].instructions.user > 1000
    assert report.regions[0].hitm == 0  # one vCPU


def test_the_compiled_plugin_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path))
    qemu = plugin.Qemu(Path("qemu"), "0", 1)
    made = plugin.build(qemu)
    stamp = made.stat().st_mtime_ns
    assert made.is_relative_to(tree.cache_dir())
    assert plugin.build(qemu) == made
    assert made.stat().st_mtime_ns == stamp
    assert plugin.build(plugin.Qemu(Path("qemu"), "0", 4)) != made
    assert sorted(p.name for p in made.parent.iterdir()) == ["coherence.so"]
