# SPDX-License-Identifier: MIT
"""Configurations: fragments are merged in order, and what kconfig drops is an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import toy
from toy import Toy

from contended.errors import ContendedError, UsageError
from contended.kernel import make, variants

V = "6.1.192"  # of Linux


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    return toy.make(tmp_path, monkeypatch)


def layer(kit: Toy, name: str, text: str) -> None:
    (kit.home / "patches" / "config" / f"{name}.config").write_text(text)


def test_later_fragments_win(kit: Toy) -> None:
    layer(kit, "base", "# why\nCONFIG_SMP=y\nCONFIG_NR_CPUS=128\nCONFIG_VT=n\n\n")
    layer(kit, "debug", "CONFIG_PROVE_LOCKING=y\n")
    layer(kit, "up", "# CONFIG_SMP is not set\nCONFIG_NR_CPUS=1\n")
    assert make.options("base", V) == {"SMP": "y", "NR_CPUS": "128", "VT": "n"}
    assert make.options("debug", V) == {**make.options("base", V), "PROVE_LOCKING": "y"}
    assert make.options("up", V) == {**make.options("debug", V), "SMP": "n", "NR_CPUS": "1"}


def test_lines_for_some_versions_only(kit: Toy) -> None:
    layer(kit, "base", "CONFIG_SMP=y\n")
    layer(kit, "base.before-6.10", "CONFIG_BASE_FULL=y\n")
    layer(kit, "base.from-6.10", "CONFIG_BASE_SMALL=n\n")
    layer(kit, "debug", "CONFIG_SMP=n\n")
    old, new = {"SMP": "y", "BASE_FULL": "y"}, {"SMP": "y", "BASE_SMALL": "n"}
    # not by their letters: 6.2 comes before 6.10
    seen = {
        v: make.options("base", v) for v in ("5.10.1", "6.2", "6.9.99", "6.10", "6.10.3", "7.2.13")
    }
    assert seen == {
        **dict.fromkeys(("5.10.1", "6.2", "6.9.99"), old),
        "6.10": new,
        "6.10.3": new,
        "7.2.13": new,
    }
    assert make.options("debug", "7.2") == {**new, "SMP": "n"}
    layer(kit, "base.until-6.9", "CONFIG_X=y\n")
    with pytest.raises(UsageError, match=r"base\.until-6\.9\.config is for no range"):
        make.options("base", V)


def test_variable_locations_are_left_out_where_there_is_debug_information(kit: Toy) -> None:
    layer(kit, "base", "CONFIG_DEBUG_INFO_DWARF5=y\n")
    layer(kit, "debug", "CONFIG_DEBUG_INFO_DWARF5=n\nCONFIG_DEBUG_INFO_NONE=y\n")
    (flag,) = make.flags("base", V)
    assert flag.startswith("KCFLAGS=-fno-var-tracking")
    assert make.flags("debug", V) == []


def test_mistakes_are_named(kit: Toy) -> None:
    with pytest.raises(
        UsageError,
        match="no configuration 'fast'; there are: base, users, handles, many, distribution, ",
    ):
        make.options("fast", V)
    layer(kit, "base", "CONFIG_SMP=y\nSMP=y\n")
    with pytest.raises(UsageError, match=r"base\.config:2: 'SMP=y' is no line"):
        make.options("base", V)
    (kit.home / "patches" / "config" / "base.config").unlink()
    with pytest.raises(ContendedError, match=r"cannot read .*base\.config"):
        make.options("base", V)


def test_a_dropped_option_is_an_error(kit: Toy, tmp_path: Path) -> None:
    layer(kit, "base", "CONFIG_BASE=y\n")
    make.configure(kit.source(), "base", tmp_path / "good")
    assert "CONFIG_BASE=y" in (tmp_path / "good" / ".config").read_text()
    layer(kit, "base", "CONFIG_BASE=y\nCONFIG_NEEDS_ACPI=y\nCONFIG_TINY=n\n")
    with pytest.raises(
        ContendedError,
        match=r"Linux 6\.1\.\d+ has no configuration 'base' as asked for: NEEDS_ACPI is n "
        r"instead of y \(base\.config:2\), TINY is y instead of n \(base\.config:3\); a line ",
    ):
        make.configure(kit.source(), "base", tmp_path / "bad")


def test_kconfigs_own_error_is_shown(kit: Toy, tmp_path: Path) -> None:
    makefile = kit.tree / "Makefile"
    makefile.write_text(makefile.read_text() + "tinyconfig: nothing-makes-this\n")
    with pytest.raises(ContendedError, match="make tinyconfig fails"):
        make.configure(kit.source(), "base", tmp_path / "bad")


def test_nothing_of_the_caller_gets_into_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAKEFLAGS", "CROSS_COMPILE", "KCFLAGS", "O", "W", "KBUILD_OUTPUT", "HOSTCC"):
        monkeypatch.setenv(name, "meddling")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    seen = make.environment()
    assert "meddling" not in seen.values()
    assert seen["PATH"] == "/usr/bin:/bin"
    assert seen["KBUILD_BUILD_HOST"] == seen["KBUILD_BUILD_USER"] == "contended"


@pytest.mark.check
@pytest.mark.parametrize("name", [n for n in variants.CONFIGS if make.has("6.1", n)])
def test_the_real_configurations_come_out_as_asked_for(name: str, tmp_path: Path) -> None:
    """`make.configure` itself checks every option against the real kconfig."""
    source = toy.real()
    make.configure(source, name, tmp_path)
    text = (tmp_path / ".config").read_text()
    assert ("CONFIG_SMP=y" in text) == (name != "up")
    assert ("CONFIG_PROVE_RCU=y" in text) == (name in ("debug", "up"))
    assert ("CONFIG_DEBUG_INFO=y" in text) == (name in variants.WITH_DWARF)
    assert ("CONFIG_FUNCTION_PROFILER=y" in text) == (name in variants.WITH_DWARF)
    assert ("CONFIG_KPROBES=y" in text) == (name == "observe")
    users, disk = name in ("users", "selftests"), name == "distribution-disk"
    assert ("CONFIG_USER_NS=y" in text) == users
    assert ("CONFIG_KEYS=y" in text) == (users or disk)  # which encryption asks for
    assert ("CONFIG_EXT4_FS=y" in text) == (disk or name == "selftests")
    assert ("CONFIG_FS_ENCRYPTION=y" in text) == disk
    may_open = name in ("handles", "many") or name.startswith("distribution")
    assert ("CONFIG_FHANDLE=y" in text) == may_open
    assert ("CONFIG_NR_CPUS=256" in text) == name.endswith("many")
    for option in ("CONFIG_SECURITY_APPARMOR=y", "CONFIG_MEMCG=y"):
        assert (option in text) == name.startswith("distribution")
    assert ("CONFIG_INET=y" in text) == name.endswith("network")
    assert ("CONFIG_IMA=y" in text) == (disk or name == "distribution-ima")
    assert ("CONFIG_PREEMPT_RCU=y" in text) == name.startswith("preempt")
    rates = {"hz-250": 250, "hz-1000": 1000, "preempt": 1000, "preempt-250": 250}
    rates["distribution-1000"] = 1000
    assert f"CONFIG_HZ={rates.get(name, 100)}\n" in text
    assert make.hz(name, source.version) == rates.get(name, 100)


@pytest.mark.check
@pytest.mark.parametrize("name", [n for n in variants.CONFIGS if not make.has("6.1", n)])
def test_what_a_release_has_not_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ContendedError, match=rf"has no configuration '{name}' as asked for"):
        make.configure(toy.real(), name, tmp_path)


def test_every_option_says_why(root: Path) -> None:
    """A fragment is read by people: it starts with its licence and has no option without a line
    of explanation above its block."""
    for file in sorted((root / "patches" / "config").glob("*.config")):
        text = file.read_text()
        assert text.startswith("# SPDX-License-Identifier: GPL-2.0-only\n#"), file
        for block in text.split("\n\n"):
            assert re.match(r"# (?!CONFIG)|CONFIG_\w+=y\n# ", block), f"{file}: {block}"
