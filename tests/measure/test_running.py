# SPDX-License-Identifier: MIT
"""The running kernel, out of made-up trees of /proc and /sys, and this one."""

from __future__ import annotations

import gzip
import platform
from pathlib import Path

import pytest
from madeup import layout, tree

from contended.measure import running

SYMBOLS = """\
0000000000000000 T override_creds
0000000000000000 t m_start
0000000000000000 d mount_hashtable
0000000000000000 t pcpu_alloc_area.constprop.0\t[pcpu]
"""
CONFIG = "CONFIG_SMP=y\nCONFIG_OVERLAY_FS=m\n# CONFIG_PREEMPT_RT is not set\n"


def test_a_kernel_that_shows_all(tmp_path: Path) -> None:
    tree(
        tmp_path,
        proc__sys__kernel__osrelease="4.18.0-553.el8.x86_64\n",
        proc__kallsyms=SYMBOLS,
        proc__filesystems="nodev\ttmpfs\n\text4\nnodev\toverlay\n",
        proc__self__mounts="proc /proc proc rw,nosuid 0 0\n",
        var__log__dmesg="Mount-cache hash table entries: 4096\n",
        sys__kernel__rcu_expedited="1\n",
    )
    layout(tmp_path / "sys/kernel/btf/vmlinux", lockref=("lock_count", "lock"))
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(CONFIG.encode()))
    kernel = running.read(tmp_path, "x86_64")
    assert kernel.notes == ()
    assert (kernel.release, kernel.version) == ("4.18.0-553.el8.x86_64", (4, 18))
    assert list(kernel.members("lockref") or ()) == ["lock_count", "lock"]
    assert kernel.members("no_such") == {}
    assert (kernel.has("m_start"), kernel.has("pcpu_alloc_area")) == (True, True)
    assert (kernel.has("mount_hashtable"), kernel.has("constprop")) == (False, False)
    assert kernel.set("CONFIG_PREEMPT_RT", "CONFIG_OVERLAY_FS") is True
    assert kernel.set("CONFIG_PREEMPT_RT") is False
    assert kernel.file_systems == {"tmpfs", "ext4", "overlay"}
    assert "4096" in kernel.log
    assert (kernel.setting("rcu_expedited"), kernel.setting("rcu_normal")) == ("1", "")


def test_a_kernel_that_shows_nothing_says_so_in_a_line_each(tmp_path: Path) -> None:
    kernel = running.read(tmp_path, "x86_64")
    assert kernel.release == platform.release()
    assert kernel.members("dentry") is None
    assert kernel.has("m_start") is None
    assert kernel.set("CONFIG_SMP") is None
    for words, note in zip(("its types", "configuration", "kallsyms"), kernel.notes, strict=True):
        assert words in note
        assert "\n" not in note


def test_what_is_broken_counts_as_hidden(tmp_path: Path) -> None:
    tree(tmp_path, sys__kernel__btf__vmlinux="no types", proc__config="x")
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(CONFIG.encode())[:30] + b"broken")
    release = tree(tmp_path, proc__sys__kernel__osrelease="6.1.0-1") / "boot"
    kernel = running.read(tmp_path, "x86_64")
    assert kernel.types is None
    assert kernel.config is None
    tree(release, **{"config-6.1.0-1": CONFIG})
    assert running.read(tmp_path, "x86_64").set("CONFIG_SMP") is True


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"architecture": "i686"}, "i686: 32 bits"),
        ({"architecture": "armv7l"}, "armv7l: 32 bits"),
        ({"architecture": "aarch64"}, "the kernel lab is x86-64's"),
        ({"mounts": "proc /proc proc rw,hidepid=2 0 0\n"}, "hidepid=2 hides"),
        ({"mounts": "a / x rw 0 0\nproc /proc proc rw,hidepid=invisible 0 0\n"}, "hidepid=inv"),
        ({"lockdown": "none integrity [confidentiality]\n"}, "bpftrace are refused"),
        ({"lockdown": "none [integrity] confidentiality\n"}, "lockdown (integrity)"),
        ({"realtime": "1\n"}, "real-time"),
    ],
)
def test_what_limits_is_one_line(where: dict[str, str], words: str) -> None:
    usual = {
        "architecture": "x86_64",
        "mounts": "proc /proc proc rw,hidepid=0 0 0\nx /srv x hidepid=2 0 0\n",
        "lockdown": "[none] integrity confidentiality\n",
        "realtime": "0",
    }
    assert running.said(**usual) == []
    (line,) = running.said(**{**usual, **where})
    assert words in line


@pytest.mark.parametrize(
    ("release", "number"),
    [
        ("6.18.44-fc-v669", (6, 18)),
        ("6.1.0-28-amd64", (6, 1)),
        ("3.14 or 3.15", (3, 15)),
        ("6.12-rc1", (6, 12)),
        ("no release", None),
        ("", None),
    ],
)
def test_versions(release: str, number: tuple[int, int] | None) -> None:
    assert running.version(release) == number


def test_this_kernel() -> None:
    kernel = running.read()
    assert kernel.release == platform.release()
    if kernel.types is not None:
        assert "d_lockref" in (kernel.members("dentry") or {})
    if kernel.symbols:
        assert kernel.has("namespace_unlock") or kernel.has("path_openat")
