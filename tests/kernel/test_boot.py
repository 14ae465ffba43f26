# SPDX-License-Identifier: MIT
"""Machines: what a guest says is heard, every bad end has its own error, and none is left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from labtools import alive, gone, machines, path_with, report, script
from support import eventually, one_line

from contended.errors import ContendedError, UsageError
from contended.kernel import boot as boots
from contended.kernel import qemu, vm
from contended.kernel.boot import boot
from contended.kernel.build import Kernel
from contended.kernel.qemu import Boot
from contended.kernel.vm import VirtualMachine

pytest_plugins = ("labfixtures",)
pytestmark = pytest.mark.usefixtures("no_vm_left")

Ask = Callable[..., Boot]

FAKE = Kernel("t", "before", "base", "0", Path("/nonexistent"), Path("/nonexistent"), "", "", "")


def test_a_guest_is_heard_and_the_machine_ends(asked: Ask) -> None:
    report = boot(asked(vcpus=2))
    assert report.hello["cpus"] == 2
    assert "tiny_init is here" in report.console
    assert 0 < report.boot_s <= report.wall_s
    assert qemu.version()[0].isdigit()


def test_many_processors_come_up(asked: Ask) -> None:
    report = boot(asked(vcpus=64, deadline_s=300))
    assert report.hello["cpus"] == 64


def test_the_guest_has_a_good_clock_on_a_busy_host(asked: Ask) -> None:
    if qemu.tsc_khz() is None:
        pytest.skip("this host has no time stamp counter that can be read")
    stop = time.monotonic() + 4
    busy = [
        subprocess.Popen([sys.executable, "-c", f"import time\nwhile time.monotonic()<{stop}: 0"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        report = boot(asked("count"))
    finally:
        for each in busy:
            each.wait()
    assert "TSC unstable" not in report.console
    # Without a time stamp counter the clock goes in steps of 10 ms.
    assert report.results[0]["ns"] % 10_000_000 != 0


def test_instructions_for_time_are_the_same_each_time(asked: Ask) -> None:
    first, second = (boot(asked("count", icount=True)).results[0]["ns"] for _ in range(2))
    # some instructions for each of 1,000,000 turns, and no more than timer ticks in between
    assert 2_000_000 < first < 50_000_000
    assert second == pytest.approx(first, rel=0.01)


def test_the_guest_waits_and_hears_a_byte(asked: Ask) -> None:
    with VirtualMachine(asked("hold")) as machine:
        lines = machine.lines()
        assert [next(lines)["type"], next(lines)["type"]] == ["hello", "hold"]
        assert machine.qmp("query-status")["running"] is True
        memory = machine.qmp("human-monitor-command", **{"command-line": "xp /1gx 0x100000"})
        assert "0x" in memory
        with pytest.raises(ContendedError, match="refuses no-such"):
            machine.qmp("no-such-command")
        machine.send(b"A")
        assert [line["type"] for line in lines] == ["heard", "bye"]
        assert not alive(machine.process.pid)


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("error", vm.GuestError, "the guest says: no such workload"),
        ("status", vm.GuestError, "ended with status 1"),
        ("nonsense", vm.GuestError, "line 1 of the guest makes no sense: .what.."),
        ("no-hello", vm.GuestError, "hello comes first"),
        ("old", vm.GuestError, "speaks version 0"),
        ("exit", vm.GuestPanic, "the kernel panicked: Attempted to kill init!"),
        ("early-reset", vm.GuestPanic, "restarted before it was done"),
        ("late-reset", vm.GuestPanic, "restarted before it was done"),
    ],
)
def test_bad_ends(asked: Ask, how: str, kind: type[ContendedError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        boot(asked(how))
    assert "\n" not in str(caught.value)


def test_a_panic_shows_the_console(asked: Ask) -> None:
    with pytest.raises(vm.GuestPanic) as caught:
        boot(asked("exit"))
    assert "tiny_init is here" in caught.value.console
    assert "Kernel panic" in caught.value.__notes__[0]


def test_a_panic_that_does_not_restart_is_no_hang(asked: Ask) -> None:
    started = time.monotonic()
    with pytest.raises(vm.GuestPanic):
        boot(asked("exit", cmdline="panic=0", deadline_s=300))
    assert time.monotonic() - started < 200


@pytest.mark.parametrize("how", ["hang", "mute"])
def test_a_guest_that_hangs_is_ended_at_the_deadline(asked: Ask, how: str) -> None:
    with pytest.raises(vm.GuestHang, match=r"said nothing for .* tiny_init is here") as caught:
        boot(asked(how, deadline_s=25))
    assert "\n" not in str(caught.value)


def test_a_kernel_that_is_none(asked: Ask, tmp_path: Path) -> None:
    image = tmp_path / "bzImage"
    image.write_bytes(b"no kernel at all" * 1000)
    fine = asked()
    with pytest.raises(qemu.LostVm, match="exit status 1") as caught:
        boot(replace(fine, kernel=replace(fine.kernel, image=image)))
    assert "\n" not in str(caught.value)


def test_a_kernel_with_a_hole(asked: Ask, tmp_path: Path) -> None:
    """It has the header of a kernel, and nothing that works behind it."""
    fine = asked(deadline_s=10)
    whole = fine.kernel.image.read_bytes()
    image = tmp_path / "bzImage"
    image.write_bytes(whole[:20480] + bytes(len(whole) - 20480))
    with pytest.raises((vm.GuestPanic, vm.GuestHang, qemu.LostVm)) as caught:
        boot(replace(fine, kernel=replace(fine.kernel, image=image)))
    assert "console is empty" in str(caught.value)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_killed_qemu_is_a_lost_machine_and_no_finding(asked: Ask, number: signal.Signals) -> None:
    with VirtualMachine(asked("hang")) as machine:
        lines = machine.lines()
        assert next(lines)["type"] == "hello"
        os.kill(machine.process.pid, number)
        with pytest.raises(qemu.LostVm, match="QEMU ended before the guest was done"):
            next(lines)


def test_a_machine_is_lost_between_two_commands(asked: Ask) -> None:
    with VirtualMachine(asked("hold")) as machine:
        lines = machine.lines()
        while next(lines)["type"] != "hold":
            pass
        os.kill(machine.process.pid, signal.SIGKILL)
        with pytest.raises(qemu.LostVm):
            machine.qmp("query-status")
        with pytest.raises(qemu.LostVm):
            machine.send(b"x")


def test_no_machine_outlives_an_exception(asked: Ask) -> None:
    pids = []

    def fail(machine: VirtualMachine) -> None:
        with machine:
            next(machine.lines())
            pids.append(machine.process.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(VirtualMachine(asked("hang")))
    assert pids
    assert not alive(pids[0])


def test_ctrl_c_ends_the_machine(asked: Ask) -> None:
    pids = []

    def interrupted(machine: VirtualMachine) -> None:
        with machine:
            for _ in machine.lines():
                pids.append(machine.process.pid)
                threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        interrupted(VirtualMachine(asked("hang")))
    assert pids
    assert not alive(pids[0])


def test_no_machine_outlives_a_process_that_is_killed(asked: Ask) -> None:
    one = asked("hang")
    code = (
        "import sys\nfrom pathlib import Path\nfrom contended.kernel import build, qemu, vm\n"
        f"image = Path({str(one.kernel.image)!r})\n"
        "k = build.Kernel('t', 'b', 'base', '0', image, image, '', '', '')\n"
        f"b = qemu.Boot(kernel=k, initrd=Path({str(one.initrd)!r}), accel='tcg', vcpus=1,\n"
        "    args={'how': 'hang'}, deadline_s=90)\n"
        "with vm.VirtualMachine(b) as m:\n"
        "    lines = m.lines(); next(lines); print(m.process.pid, flush=True); next(lines)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert alive(pid)
        process.kill()
    assert eventually(lambda: not alive(pid))


def test_a_console_that_never_stops_is_bounded(asked: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "CONSOLE_HEAD", 10_000)
    monkeypatch.setattr(vm, "CONSOLE_TAIL", 20_000)
    report = boot(asked("flood", cmdline="printk.devkmsg=on", deadline_s=200))
    assert "tiny_init is here" in report.console
    assert "left out" in report.console
    assert len(report.console) < 31_000


def test_a_kernel_that_floods_its_console_is_stopped(
    asked: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm, "CONSOLE_MOST", 100_000)
    before = machines()
    with pytest.raises(vm.GuestFlood, match=r"printed more than 0\.1 MB .* and was stopped"):
        boot(asked("flood", cmdline="printk.devkmsg=on", deadline_s=200))
    assert gone(before)


def test_no_qemu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(qemu.NoQemu, match="apt-get install qemu-system-x86"):
        boot(Boot(kernel=FAKE, initrd=Path("/nonexistent")))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"vcpus": 0}, "at least 1"),
        ({"vcpus": 2, "icount": True}, "one vCPU"),
        ({"args": {"run": "a b"}}, "no blanks"),
        ({"args": {"a=b": "c"}}, "no blanks"),
        ({"accel": "magic"}, "no accelerator 'magic'"),
        ({"accel": "kvm", "icount": True, "vcpus": 1}, "only with TCG"),
        ({"accel": "kvm", "plugin": "x.so", "vcpus": 1}, "only with TCG"),
    ],
)
def test_wrong_calls(
    fields: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", path_with(script(tmp_path / "bin", "exit 1")))
    one = Boot(**{"kernel": FAKE, "initrd": Path("/none"), "accel": "tcg", **fields})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=words):
        boot(one)


def test_a_qemu_that_refuses_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = 'echo "qemu: -machine microvm: unsupported" >&2; exit 1'
    monkeypatch.setenv("PATH", path_with(script(tmp_path / "bin", words)))
    with pytest.raises(qemu.LostVm, match="microvm: unsupported") as caught:
        boot(Boot(kernel=FAKE, initrd=Path("/none"), accel="tcg"))
    one_line(f"{caught.value}\n")


def test_a_qemu_for_which_there_is_no_memory_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", path_with(script(tmp_path / "bin", "kill -9 $$")))
    with pytest.raises(qemu.LostVm, match=r"SIGKILL \(out of memory.*fewer CPUs") as caught:
        boot(Boot(kernel=FAKE, initrd=Path("/none"), accel="tcg"))
    one_line(f"{caught.value}\n")


# What a machine with KVM looks like, and one on which it opens and hangs.
HANGS_WITH_KVM = """
case "$*" in
*--version*) echo "QEMU emulator version 0.0 (test)"; exit 0;;
*"-accel kvm"*) exec sleep 600;;
esac
exec {qemu} "$@"
"""
WORKS_WITH_KVM = """
case "$*" in *--version*) echo "QEMU emulator version 0.1 (test)"; exit 0;; esac
for one; do shift; [ "$one" = kvm ] && one=tcg,thread=multi; set -- "$@" "$one"; done
exec {qemu} "$@"
"""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Something that opens like /dev/kvm, and a cache that knows nothing of it."""
    file = tmp_path / "kvm"
    file.touch()
    monkeypatch.setattr(boots, "DEVICE", file)
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "cache"))
    return file


def wrapped(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, **fields: object
) -> Boot:
    """A boot, with a wrapper of QEMU on PATH."""
    one = asked(**fields)
    folder = script(tmp_path / "bin", text.format(qemu=qemu.find()))
    monkeypatch.setenv("PATH", path_with(folder))
    return one


@pytest.mark.parametrize("own_time", [True, False])
def test_a_guest_of_its_own_time_that_has_no_timers_is_booted_again(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, own_time: bool
) -> None:
    spoilt, good = report(console=f"[ 0.8] {boots.NO_TIMERS} on CPU 3\n"), report()
    said = [spoilt, spoilt, good]
    speeds = []

    def once(one: Boot) -> boots.GuestReport:
        speeds.append(one.late)
        return said.pop(0)

    monkeypatch.setattr(boots, "_once", once)
    one = replace(asked(), guest_clock=own_time)
    assert boot(one) == (good if own_time else spoilt)
    assert speeds == ([one.late, 2 * one.late, 4 * one.late] if own_time else [one.late])

    monkeypatch.setattr(boots, "_once", lambda _: spoilt)
    if own_time:
        with pytest.raises(ContendedError, match="too much else to do"):
            boot(one)


def test_kvm_that_hangs_is_found_out_once(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: Path
) -> None:
    monkeypatch.setattr(boots, "DEADLINE_S", 1.0)
    one = wrapped(asked, monkeypatch, tmp_path, HANGS_WITH_KVM, accel="auto")
    assert boot(one).hello
    note = "/dev/kvm opens but the guest did not start within 1 s: using TCG"
    assert boots.choose(one) == ("tcg", note)

    started = time.monotonic()
    assert boots.choose(one)[0] == "tcg"
    assert time.monotonic() - started < 0.9
    with pytest.raises(boots.NoKvm, match="KVM does not work here: /dev/kvm opens but"):
        boot(replace(one, accel="kvm"))


def test_the_answer_about_kvm_is_kept_until_the_host_starts_anew(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: Path
) -> None:
    monkeypatch.setattr(boots, "DEADLINE_S", 1.0)
    one = wrapped(asked, monkeypatch, tmp_path, HANGS_WITH_KVM, accel="auto")
    memory = tmp_path / "cache" / "kernel" / "kvm.json"
    memory.parent.mkdir(parents=True)
    memory.write_text(json.dumps({"key": boots._key(), "works": True, "why": ""}))
    assert boots.choose(one) == ("kvm", "")
    memory.write_text(json.dumps({"key": "of another start", "works": True, "why": ""}))
    assert boots.choose(one)[0] == "tcg"
    memory.write_text("{")
    assert boots.choose(one)[0] == "tcg"


def test_kvm_that_works_is_used(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: Path
) -> None:
    monkeypatch.setattr(boots, "DEADLINE_S", 60.0)
    one = wrapped(asked, monkeypatch, tmp_path, WORKS_WITH_KVM, accel="auto")
    assert boot(one).hello
    assert boots.choose(one) == ("kvm", "")


def test_a_broken_kernel_says_nothing_of_kvm(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: Path
) -> None:
    monkeypatch.setattr(boots, "DEADLINE_S", 60.0)
    one = wrapped(asked, monkeypatch, tmp_path, WORKS_WITH_KVM, accel="auto")
    accel, note = boots.choose(replace(one, cmdline="init=/none rdinit=/none"))
    assert accel == "kvm", note  # the variant's own command line is not part of the probe
    (tmp_path / "cache" / "kernel" / "kvm.json").unlink()
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    accel, note = boots.choose(replace(one, initrd=empty))
    assert accel == "tcg"
    assert "panicked" in note
    assert not (tmp_path / "cache" / "kernel" / "kvm.json").exists()


def test_no_kvm_here(asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(boots, "DEVICE", tmp_path / "none")
    assert boots.choose(asked(accel="auto")) == ("tcg", "there is no /dev/kvm: using TCG")
    with pytest.raises(boots.NoKvm, match=r"there is no /dev/kvm"):
        boots.choose(asked(accel="kvm"))


def test_counting_instructions_takes_tcg(asked: Ask) -> None:
    accel, note = boots.choose(asked(accel="auto", icount=True))
    assert (accel, note) == ("tcg", "instructions are counted, which needs TCG")


def test_leftovers_are_seen(asked: Ask) -> None:
    """The check at the end of each test works."""
    before = machines()
    with VirtualMachine(asked("hang")) as machine:
        next(machine.lines())
        assert machines() - before == {machine.process.pid}
    assert gone(before)
