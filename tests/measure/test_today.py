# SPDX-License-Identifier: MIT
"""Today's kernel: what is counted is right, nothing is left on the machine, refusals are plain."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support import CPUS, eventually, one_line, our_mounts, raced, two_cpus

from contended.errors import ContendedError, UsageError
from contended.measure import TooFewCpus, today
from contended.measure.results import Measurement
from contended.show import lesson

KINDS = today._CALLS


def everybody_s() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


@pytest.fixture(scope="module")
def _allowed() -> None:
    try:
        today.umount_latency(repeats=1, calls=1)
    except today.NotAllowed as refusal:
        pytest.skip(str(refusal))


allowed = pytest.mark.usefixtures("_allowed")


def run_python(code: str, *wrap: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*wrap, sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@allowed
def test_mountinfo_counts_mounts_and_reads() -> None:
    before, own = our_mounts(), {everybody_s()}
    got = today.mountinfo([100, 300], repeats=2, reads=2)
    own.add(everybody_s())
    small = today.mountinfo([300], repeats=1, reads=1, buffer=512)
    assert our_mounts() == before
    assert got.metric == "read_us"
    assert got.phases == ["100", "300"]
    per_read = {}
    for count in (100, 300):
        rows = got.samples("mountinfo", phase=str(count))
        assert [row.repeat for row in rows] == [0, 1]
        assert all(row.counts["ops"] == 2 and row.value > 0 for row in rows)
        per_read[count] = rows[0].counts["mounts"] // 2
        # at least a line of forty characters a mount, and the empty read at the end
        assert rows[0].counts["bytes"] > 40 * rows[0].counts["mounts"]
        assert rows[0].counts["reads"] >= 2 * 2
    # the machine's own mounts, the tmpfs, and those made
    assert per_read[100] - 1 - 100 in own
    assert per_read[300] == per_read[100] + 200
    (row,) = small.samples("mountinfo")
    assert row.counts["reads"] > row.counts["bytes"] / 512
    assert row.counts["reads"] > got.samples("mountinfo", phase="300")[0].counts["reads"] / 2


@allowed
def test_reads_of_both_ends_of_the_mounts_are_compared() -> None:
    before = our_mounts()
    got = today.ends(400, repeats=3)
    assert our_mounts() == before
    assert list(got.variants) == ["first", "last"]
    assert got.ratio_at("last", threads=1).pairs == 3
    for name in got.variants:
        for row in got.samples(name):
            assert row.counts["reads"] >= 400 / 2, "reads of a mount or two"
            assert row.counts["ops"] == row.counts["reads"] // 4


@allowed
def test_umount_takes_turns_and_leaves_nothing() -> None:
    before = our_mounts()
    got = today.umount_latency(repeats=3, calls=4)
    assert our_mounts() == before
    assert list(got.variants) == ["umount", "umount-l"]
    for name in got.variants:
        assert got.count(name, "ops") == 3 * 4
        assert 0 <= got.count(name, "slept") <= 3 * 4
        for row in got.samples(name):
            assert row.low <= row.value <= row.high
            assert row.latency_ns["p50"] <= row.latency_ns["max"]
            assert row.latency_ns["max"] == pytest.approx(row.high * 1e3)
    assert got.ratio_at("umount-l", threads=1).pairs == 3


@allowed
def test_bind_cost_times_the_last_mounts_before_each_count() -> None:
    before = our_mounts()
    got = today.bind_cost([60, 200], repeats=2, window=20)
    assert our_mounts() == before
    assert list(got.variants) == ["private", "shared"]
    assert got.phases == ["60", "200"]
    for name in got.variants:
        for phase in got.phases:
            rows = got.samples(name, phase=phase)
            for row in rows:
                assert (row.counts["ops"], row.counts["mounts"]) == (20, int(phase))
                assert row.counts.get("allocated", 20) >= 20
            # of itself the kernel makes one for each; others may have mounted meanwhile
            assert min(row.counts.get("allocated", 20) for row in rows) < 20 + int(phase)
            assert all(row.value > 0 for row in rows)
    assert got.ratio_at("shared", threads=1, phase="200").pairs == 2


@allowed
@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_each_kind(kind: str) -> None:
    before = our_mounts()
    try:
        got = today.calls([kind], [1], repeats=2, slices=2, slice_ms=5)
    except today.NotAllowed as refusal:
        assert kind in ("access-overlay", "access-own-overlay")  # a kernel may be without overlayfs
        pytest.skip(str(refusal))
    assert our_mounts() == before
    rows = got.samples(kind, threads=1)
    assert len(rows) == 2
    assert all(row.counts["ops"] >= 2 * 50 and row.value > 0 for row in rows)


@allowed
def test_crossing_looks_up_files_behind_mounts() -> None:
    before = our_mounts()
    got = today.crossing([30, 90], repeats=3, targets=20, passes=4)
    assert our_mounts() == before
    assert got.phases == ["30", "90"]
    for phase in got.phases:
        rows = got.samples("crossing", phase=phase)
        assert [row.counts for row in rows] == [{"ops": 80, "mounts": int(phase)}] * 3
        assert all(100 < row.value < 1e6 for row in rows)


@allowed
@two_cpus
def test_degrade_has_three_parts_of_one_run() -> None:
    got = today.degrade(repeats=2, slices=2, slice_ms=5)
    assert list(got.variants) == ["calm", "listed", "after"]
    assert got.thread_counts == [len(CPUS)]
    for name in got.variants:
        assert len(got.values(name)) == 2
        assert min(got.values(name)) > 0
    assert got.ratio_at("after", threads=len(CPUS)).pairs == 2


@raced
@allowed
@two_cpus
def test_only_the_walker_is_counted() -> None:
    got = today.walks([1, 2], repeats=2, slices=2, slice_ms=10)
    for name in got.variants:
        alone, both = (got.samples(name, threads=n) for n in (1, 2))
        assert [row.threads for row in both] == [2, 2]
        # of two that count there would be twice the operations
        assert sum(r.counts["ops"] for r in both) < 1.7 * sum(r.counts["ops"] for r in alone)


@allowed
def test_a_limit_ends_what_takes_longer() -> None:
    limit = today.LIMIT_S.set(0.3)
    try:
        with pytest.raises(ContendedError, match=r"did not finish within 0\.3 s"):
            today.umount_latency(repeats=1000, calls=1000)
    finally:
        today.LIMIT_S.reset(limit)


@allowed
@two_cpus
def test_two_processes_start_together() -> None:
    got = today.opens([1, 2], repeats=2, slices=2, slice_ms=10)
    assert got.thread_counts == [1, 2]
    assert len(got.values("open-creat", threads=2)) == 2
    assert len(today.stat_files([2], repeats=1, slices=1, slice_ms=5).variants) == 2


@allowed
def test_a_killed_caller_takes_everything_along() -> None:
    """SIGKILL leaves no time to clean up: no process may stay, and no mount."""
    before = our_mounts()
    mark = f"today-test-{os.getpid()}"
    caller = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from contended.measure import today\n"
            "today.calls(['open-creat'], [1], repeats=1000, slice_ms=1000)",  # an hour, or nearly
        ],
        env={
            **os.environ,
            "CONTENDED_TEST_MARK": mark,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
        stderr=subprocess.DEVNULL,
    )

    def alive() -> list[Path]:
        """The processes that carry the mark and live in another mount namespace than ours."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"CONTENDED_TEST_MARK={mark}".encode() in (place / "environ").read_bytes()
            except OSError:
                continue
            if marked:
                found.append(place)
        return found

    try:
        # the caller, its child, and the process that the child has forked to make the calls
        assert eventually(lambda: caller.poll() is not None or len(alive()) >= 3)
        assert caller.poll() is None
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    assert eventually(lambda: not alive())
    assert our_mounts() == before


@allowed
def test_mounts_stay_inside_without_a_user_namespace() -> None:
    """Root without user namespaces, in a tree that propagates: nothing may come back out."""
    code = (
        "from pathlib import Path\n"
        "from contended.measure import today\n"
        "Path('/proc/sys/user/max_user_namespaces').write_text('0')\n"
        "look = lambda: Path('/proc/self/mountinfo').read_text()\n"
        "before = look()\n"
        "assert 'shared:' in before\n"
        "got = today.mountinfo([5], repeats=1, reads=1)\n"
        "assert look() == before, look()\n"
        "print(got.count('mountinfo', 'mounts') - len(before.splitlines()))\n"
    )
    wrap = ("unshare", "--user", "--map-root-user", "--mount", "--propagation", "shared")
    probe = subprocess.run([*wrap, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no user namespaces to try this in: {probe.stderr.strip()}")
    run = run_python(code, *wrap)
    assert (run.returncode, run.stdout.strip()) == (0, "6"), run.stderr


def test_a_refusing_kernel_is_one_line() -> None:
    """No user namespaces and no privilege: said in a line, and told from other errors."""
    code = (
        "import sys\n"
        "from contended.measure import today\n"
        "try:\n"
        "    today.opens([1], repeats=1)\n"
        "except today.NotAllowed as refusal:\n"
        "    print(refusal)\n"
        "    sys.exit(7)\n"
    )
    shell = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv "
    shell += '--bounding-set=-sys_admin --inh-caps=-sys_admin "$@"'
    wrap: tuple[str, ...] = ("unshare", "--user", "--map-root-user", "sh", "-c", shell, "sh")
    probe = subprocess.run([*wrap, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        wrap = ()  # this machine refuses of itself, or root is everywhere: see below
    run = run_python(code, *wrap)
    if not wrap and run.returncode == 0:
        pytest.skip(f"cannot take the privilege away here: {probe.stderr.strip()}")
    assert run.returncode == 7, run.stderr
    assert "no private mount namespace" in one_line(run.stdout)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: today.mountinfo([0]), "choose 1 to"),
        (lambda: today.mountinfo([1_000_000]), "choose 1 to"),
        (lambda: today.mountinfo([]), "counts is"),
        (lambda: today.mountinfo([5, 5]), "counts is"),
        (lambda: today.mountinfo([5], buffer=0), "buffer is 0: choose 1 to"),
        (lambda: today.mountinfo([5], repeats=0), "repeats is 0: choose 1 to"),
        (lambda: today.ends(0), "choose 1 to"),
        (lambda: today.ends(8, buffer=9999), "buffer is 9999: choose 1 to"),
        (lambda: today.mountinfo([5], reads=-1), "reads is -1"),
        (lambda: today.umount_latency(repeats=0), "repeats is 0"),
        (lambda: today.umount_latency(calls=0), "calls is 0"),
        (lambda: today.bind_cost([10], window=20), "choose 20 to"),
        (lambda: today.bind_cost([10], window=0), "window is 0"),
        (lambda: today.crossing([10]), "choose 64 to"),
        (lambda: today.crossing(targets=0), "targets is 0"),
        (lambda: today.crossing(passes=0), "passes is 0"),
        (lambda: today.degrade(slices=0), "slices is 0"),
        (lambda: today.opens([]), "threads is"),
        (lambda: today.opens([0]), "threads is"),
        (lambda: today.opens([1], slice_ms=0), "slice_ms is 0"),
        (lambda: today.calls(["fork"]), "open-creat, stat-own"),
        (lambda: today.calls([]), "open-creat, stat-own"),
    ],
)
def test_bad_input_starts_nothing(
    call: Callable[[], Measurement], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    with pytest.raises(UsageError, match=re.escape(says)):
        call()


def test_too_many_processes_are_too_few_cpus() -> None:
    with pytest.raises(TooFewCpus):
        today.opens([len(CPUS) + 1])


def test_the_limit_follows_memory_and_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "/proc/meminfo": ["MemAvailable:   1000000 kB"],
        "/proc/sys/fs/mount-max": ["100000"],
        "/proc/self/mountinfo": [""] * 40,
    }
    monkeypatch.setattr(today, "_lines", lambda file: said[file])
    assert today.mount_limit() == today.MAX_MOUNTS
    said["/proc/sys/fs/mount-max"] = ["1048"]
    assert today.mount_limit() == 1000
    said["/proc/meminfo"] = ["MemAvailable:   4096 kB"]
    assert today.mount_limit() == 4096 * 1024 // 4 // today.BYTES_PER_MOUNT


@allowed
def test_a_slow_child_is_ended() -> None:
    with pytest.raises(ContendedError, match="did not finish"):
        today._ask({"what": "umount", "calls": 1000, "repeats": 1000}, 0.3)


@allowed
def test_a_chapter_shows_the_recorded_run_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lesson, "reference", lambda name: tmp_path / f"{Path(name).name}.json")
    live = today.umount_latency(repeats=1, calls=1)
    live.save(tmp_path / "umount.json")

    def refused() -> Measurement:
        raise today.NotAllowed("this kernel gives us no private mount namespace")

    shown = lesson.live("some-case/umount", refused)
    assert shown == replace(live, recorded=True)
    said = capsys.readouterr().out
    assert "Not measured on this machine" in said
    assert "mount namespaces are allowed" in said
    with pytest.raises(today.NotAllowed):
        lesson.live("some-case/other", refused)
