# SPDX-License-Identifier: MIT
"""The field guide's commands, on kernels of the lab with and without the bug.

The commands are those of docs/host.md, and stand nowhere else. Which kernels are compared, under
what load, and what in the commands' words tells them apart, is in `patches/observe.toml`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from contended import __version__, machine, records, register, tree
from contended.errors import ContendedError, UsageError, pick
from contended.kernel import boot, build, guest, qemu, readings, run, source, store, variants
from contended.kernel.make import Progress
from contended.measure.results import number
from contended.records import Record
from contended.show.table import columns

SCHEMA = 1
PAGE = Path("docs", "host.md")
CONFIG: variants.Config = "observe"
TOOLS = ("bpftrace", "perf", "pahole")  #: Of this system, with their libraries, in the guest.
Side = Literal["sick", "healthy"]

_SCRIPT = """\
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
mkdir -p /m
mount -t debugfs debugfs /sys/kernel/debug
while [ ! -e /tmp/done ]; do
	{{ {load}
	}} >/tmp/load 2>&1 || {{ cat /tmp/load; echo "=== the load failed"; break; }}
	sleep 0.3
done &
{commands}
touch /tmp/done
wait
"""
_COMMAND = """\
cat >/tmp/command <<'=== command'
{command}
=== command
sh /tmp/command >/tmp/said 2>&1  # and no terminal, on which some print in colours
status=$?
echo "=== begin"
cat /tmp/said
echo "=== end $status"
stty icanon  # as it is, but waits until that is out: the kernel's log would be mixed into it
"""


@dataclass(frozen=True, slots=True)
class Sign:
    """What tells a kernel with the bug from one without: a metric of what a command has said.

    It is sick from `sick` on, away from `healthy`, and healthy up to that.
    """

    command: int  #: Which of the page's section, from 1.
    metric: str  #: As `readings.read` has it.
    what: str
    sick: float
    healthy: float

    def is_(self, side: Side, value: float) -> bool:
        """Whether a value is on that side."""
        bound = self.sick if side == "sick" else self.healthy
        more = (self.sick > self.healthy) == (side == "sick")
        return value >= bound if more else value <= bound


@dataclass(frozen=True, slots=True)
class Pair:
    """A kernel that is sick and one that is healthy, by variants' names, under the same load.

    One of them may be missing, and `why` then says so.
    """

    load: str  #: Shell commands that are run over and over.
    signs: tuple[Sign, ...]
    sick: str = ""
    healthy: str = ""
    cmdline: str = ""  #: Of the sick one, besides the variant's.
    vcpus: int = 2
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A command of the page, and what it said."""

    command: str
    status: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One boot: the commands on one kernel of a pair, numbered from 0 in the case's order."""

    slug: str
    pair: int
    side: Side
    variant: str
    cmdline: str
    build_id: str
    wall_s: float
    said: dict[int, Said]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations(Record):
    """What was seen, and on what."""

    seen: list[Observed]
    linux: str
    tools: dict[str, str]
    qemu: str
    cpu: str
    started: str
    contended: str = __version__
    commit: str | None = field(default_factory=machine.commit)
    schema: int = SCHEMA

    def __str__(self) -> str:
        """A line for each sign on each kernel."""
        rows = [["case", "kernel", "", "seen", "what", "holds"]]
        pairs = watched()
        for one in self.seen:
            head = [one.slug, f"{one.variant} {one.cmdline}".strip(), one.side]
            for sign, value, holds in judged(pairs[one.slug][one.pair], one):
                rows.append([*head, number(value), sign.what, "yes" if holds else "NO"])
                head = ["", "", ""]
        return columns(rows)

    @property
    def held(self) -> bool:
        """Whether each command told its kernel for what it is."""
        pairs = watched()
        return all(h for one in self.seen for *_, h in judged(pairs[one.slug][one.pair], one))


def load(path: Path) -> Observations:
    """Read what was saved; raises ContendedError if it is nothing such."""
    return records.load(Observations, path, "observations", SCHEMA, "run it again")


def commands(slug: str) -> list[str]:
    """The commands of a case's section of the page, without sudo."""
    file = tree.home() / PAGE
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ContendedError(f"cannot read {file}: {error.strerror}") from error
    section = text.partition(f"\n(seen-{slug})=\n")[2].partition("\n(seen-")[0]
    return [
        found.replace("sudo ", "").strip()
        for found in re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
    ]


def watched() -> dict[str, tuple[Pair, ...]]:
    """The pairs of each case; a mistake in the file is a UsageError."""
    file = variants.folder() / "observe.toml"
    found = {}
    for slug, content in records.toml(file).items():
        where = f"{file}: {slug}"
        there = commands(register.get(slug).slug)
        pairs = tuple(records.made(Pair, each, where) for each in content)
        for pair in pairs:
            variants.load(slug).pick(filter(None, (pair.sick, pair.healthy)))
            if not (pair.sick and pair.healthy) and not pair.why:
                raise UsageError(f"{where}: a pair of one has to say why")
            for sign in pair.signs:
                if not 1 <= sign.command <= len(there):
                    raise UsageError(f"{where}: the page has no command {sign.command}")
        found[slug] = pairs
    return found


def judged(pair: Pair, one: Observed) -> list[tuple[Sign, float, bool]]:
    """Each sign with its value, and whether it is that of a kernel of this side."""
    found = []
    for sign in pair.signs:
        value = readings.read(sign.metric, one.said[sign.command].text)
        found.append((sign, value, sign.is_(one.side, value)))
    return found


def tools() -> list[Path]:
    """The programs that the commands need; raises ContendedError if one is missing."""
    found = {name: shutil.which(name) for name in TOOLS}
    if missing := [name for name, place in found.items() if not place]:
        names = {"perf": "linux-perf", "pahole": "dwarves"}
        packages = " ".join(names.get(name, name) for name in missing)
        raise ContendedError(f"the field guide's commands need: apt-get install {packages}")
    return [Path(place) for place in found.values() if place]


def observe(
    slugs: Sequence[str] = (),
    sides: Sequence[Side] = ("sick", "healthy"),
    *,
    progress: Progress | None = None,
) -> Observations:
    """Run the page's commands on both kernels of each pair, which are built if need be."""
    programs, every = tools(), watched()
    chosen = {slug: pick(every, slug, "no command is run for a case") for slug in slugs or every}
    started = datetime.now(UTC).isoformat(timespec="seconds")
    origin, tell = source.find(), progress or (lambda *_: None)
    seen = []
    for slug, pairs in chosen.items():
        for index, pair in enumerate(pairs):
            for side in sides:
                if name := pair.sick if side == "sick" else pair.healthy:
                    variant = variants.pick(f"{slug}/{name}")
                    kernel = build.build(variant, CONFIG, origin, progress)
                    tell(f"{variant}: commands of {PAGE}", 0, 0)
                    seen.append(_look(slug, index, pair, side, kernel, variant, programs))
    return Observations(
        seen=seen,
        linux=origin.version,
        tools={each.name: _version(each) for each in programs},
        qemu=qemu.version(),
        cpu=machine.cpu_model(),
        started=started,
    )


def look(
    kernel: build.Kernel,
    commands: Sequence[str],
    programs: Sequence[Path],
    *,
    load: str = "sleep 1",
    cmdline: str = "",
    vcpus: int = 2,
    files: Sequence[guest.Entry] = (),
    deadline_s: float = run.DEADLINE_S[CONFIG],
) -> tuple[list[Said], boot.GuestReport]:
    """Run commands on a kernel under a load; what they said, and the boot.

    Raises ContendedError if the load fails or a command does not end, or as `boot.boot` does.
    """
    blocks = "".join(_COMMAND.format(command=command) for command in commands)
    script = _SCRIPT.format(load=load, commands=blocks)
    with guest.tools_initrd(programs, script, files) as initrd:
        asked = qemu.Boot(
            kernel=kernel,
            vcpus=vcpus,
            args={"run": "shell"},
            cmdline=cmdline,
            accel="tcg",
            deadline_s=deadline_s,
            initrd=initrd,
        )
        report = boot.boot(asked)
    name = f"{kernel.slug}/{kernel.variant}"
    if "=== the load failed" in report.console:
        raise ContendedError(f"{name}: the load fails: {report.console[-500:].strip()}")
    found = re.findall(r"^=== begin\n(.*?)^=== end (\d+)$", report.console, re.M | re.S)
    if len(found) != len(commands):
        raise ContendedError(f"{name}: {len(found)} of {len(commands)} commands came to an end")
    said = [
        Said(command=command, status=int(status), text=text)
        for command, (text, status) in zip(commands, found, strict=True)
    ]
    return said, report


def _look(
    slug: str,
    index: int,
    pair: Pair,
    side: Side,
    kernel: build.Kernel,
    variant: variants.Variant,
    programs: Sequence[Path],
) -> Observed:
    cmdline = " ".join(filter(None, (variant.cmdline, pair.cmdline if side == "sick" else "")))
    there = dict(enumerate(commands(slug), 1))
    numbers = sorted({sign.command for sign in pair.signs})
    asked = [there[number] for number in numbers]
    said, report = look(kernel, asked, programs, load=pair.load, cmdline=cmdline, vcpus=pair.vcpus)
    return Observed(
        slug=slug,
        pair=index,
        side=side,
        variant=variant.name,
        cmdline=cmdline,
        build_id=kernel.build_id,
        wall_s=report.wall_s,
        said=dict(zip(numbers, said, strict=True)),
    )


def _version(program: Path) -> str:
    return store.ask([program, "--version"]).stdout.strip()
