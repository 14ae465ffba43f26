# SPDX-License-Identifier: MIT
"""What `umount PLACE...` executes for each place, of which the system call is a part.

A published row is of the whole command, and the scoreboard's is of the call alone: this is the
experiment that says how much of the difference the command is.
"""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from contended import register
from contended.cases import timed, umount_grace_period
from contended.kernel import boot, build, guest, qemu, source, variants

pytest_plugins = ("labfixtures",)

PLACES = (20, 120, 220, 320)  # so that what it takes to begin with falls out
SCRIPT = """\
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root LD_LIBRARY_PATH={libraries}
for n in {places}; do
	i=0
	while [ $i -lt $n ]; do
		mkdir -p /tmp/m/$i
		mount -t tmpfs tmpfs /tmp/m/$i
		i=$((i + 1))
	done
	before=$({date} +%s%N)
	{umount} /tmp/m/* || echo "=== it fails"
	after=$({date} +%s%N)
	echo "=== $(grep -c " /tmp/m/" /proc/mounts) left after $((after - before)) ns"
	rm -rf /tmp/m
done
"""


def recorded(root: Path) -> list[float]:
    """What `each_ns` was, of the umount that the file names."""
    path = root / "results" / "umount-grace-period" / "command.json"
    return [float(ns) for ns in json.loads(path.read_text())["each_ns"]]


def each_ns() -> list[float]:
    """Of this system's umount in the guest, whose clock counts instructions: ns for each place."""
    programs = umount, date = [which(each) for each in ("umount", "date")]
    kernel = build.build(variants.pick("umount-grace-period/before"), "base", source.find())
    places = " ".join(map(str, PLACES))
    libraries = guest.library_path(*programs)
    script = SCRIPT.format(libraries=libraries, places=places, umount=umount, date=date)
    with guest.tools_initrd(programs, script) as initrd:
        asked = qemu.Boot(
            kernel=kernel,
            vcpus=1,
            args={"run": "shell"},
            cmdline="rcupdate.rcu_expedited=1",
            accel="tcg",
            icount=True,
            deadline_s=300,
            initrd=initrd,
        )
        console = boot.boot(asked).console
    said = [line.split() for line in console.splitlines() if line.startswith("=== ")]
    assert len(said) == len(PLACES), console
    assert all(words[1:3] == ["0", "left"] for words in said), console
    times = [int(words[4]) for words in said]
    return [
        (b - a) / (m - n) for (a, b), (n, m) in zip(pairwise(times), pairwise(PLACES), strict=True)
    ]


def which(name: str) -> Path:
    """This system's program."""
    found = shutil.which(name, path="/usr/bin:/bin")
    assert found, name
    return Path(found).resolve()


@pytest.mark.check
@pytest.mark.usefixtures("no_vm_left")
def test_a_command_is_as_long_as_recorded(root: Path) -> None:
    """Another release of util-linux may do more or less, but not twice as much or half of it."""
    for ours, kept in zip(each_ns(), recorded(root), strict=True):
        assert 0.5 < ours / kept < 2


def test_the_scoreboard_says_how_much_of_a_row_it_is(root: Path) -> None:
    found = umount_grace_period.STUDY.evidence[umount_grace_period.IN_A_ROW]
    kept = recorded(root)
    said = f"executes {min(kept) / 1e3:.0f} to {max(kept) / 1e3:.0f} thousand instructions for each"
    assert said in found.note
    row = register.get(umount_grace_period.SLUG).figure(umount_grace_period.IN_A_ROW)
    published = 1e6 * row.value("expedited").middle
    assert 0.25 < min(kept) / published < max(kept) / published < 0.5  # "a third"
    call = timed.load(umount_grace_period.SLUG, found.timed)["expedited"]
    assert max(call.values) * 1e6 < min(kept)
