# SPDX-License-Identifier: MIT
"""The doctor: what it finds, what it says, and that it runs before anything is installed."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contended import doctor, packages
from contended.kernel import fetch


def broken(**changes: object) -> doctor.Report:
    """A report in which one package of each kind is missing."""
    table = (
        doctor.Package("there", "a", ("book",), True, command="sh"),
        doctor.Package("gone", "b", ("book", "test"), True, command="no-such-command"),
        doctor.Package(
            "browser", "c", ("test",), False, file="/no/such/file", elsewhere="try the attic"
        ),
    )
    findings = {package: package.there() for package in table}
    return doctor.Report(findings, (doctor.Check("compiler", True, True, "fine"),))


POLICY = """\
gone:
  Installed: (none)
  Candidate: 1.2-3
  Version table:
     1.2-3 500
        500 http://deb.debian.org/debian trixie/main amd64 Packages
browser:
  Installed: (none)
  Candidate: (none)
  Version table:
"""


def here(policy: str = POLICY, release: str = "debian 13", manager: bool = True) -> packages.System:
    """A system whose apt-cache says this."""
    title = release.title()
    if not manager:
        return packages.System(release, title, False, False, {})
    return packages.System(release, title, True, *packages._policy(policy))


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    """What the system said is kept for one run of the doctor."""
    packages.system.cache_clear()
    yield
    packages.system.cache_clear()


def test_this_machine_is_ready() -> None:
    """The tests compile C, so what the book needs is here; and the report is whole."""
    seen = doctor.report()
    assert seen.blockers("book") == ()
    assert {check.name for check in seen.checks} == {
        "Python",
        "C compiler",
        "CPUs",
        "SCHED_FIFO",
        "cache directory",
        *("governor", "boost", "SMT", "CPU quota", "steal", "other load"),
    }
    cpus = next(check for check in seen.checks if check.name == "CPUs")
    assert cpus.detail.startswith(f"{len(os.sched_getaffinity(0))} allowed")


def test_each_package_is_detected_in_one_way() -> None:
    for package in doctor.PACKAGES:
        ways = [package.command, package.file, package.module, package.header]
        assert ways.count("") == 3, package
        assert package.purpose
        assert package.needed_for


def test_a_header_is_where_the_compiler_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found, lost = (
        doctor.Package("dev", "a", ("book",), False, header=h) for h in ("stdio.h", "no/such.h")
    )
    assert found.there()
    assert not lost.there()
    monkeypatch.setenv("CC", "/no/such/cc")
    assert not found.there()


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "system", here)
    seen = broken()
    assert [p.name for p in seen.missing] == ["gone", "browser"]
    assert seen.apt_get().strip("'").endswith("apt-get install gone"), "apt-get knows no browser"
    assert seen.blockers("book") == ("gone",)
    text = seen.to_text()
    assert "MISSING" in text
    assert "no (optional)" in text
    assert f"To add what is missing:  {seen.apt_get()}\n" in text
    assert "browser: Debian 13 has no such package; try the attic\n" in text
    assert "make book: cannot run without gone" in text
    value = json.loads(seen.to_json())
    assert value["blockers"]["test"] == ["gone"]
    assert value["elsewhere"] == ["browser: Debian 13 has no such package; try the attic"]
    assert value["apt_get_first"] == ""


def test_the_line_is_what_this_user_must_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert packages.as_root("apt-get update") == "apt-get update"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert packages.as_root("apt-get update") == "sudo apt-get update"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert packages.as_root("apt-get update") == "su -c 'apt-get update'"


def named(system: packages.System) -> dict[str, str]:
    return {package.name: system.name(package) for package in packages.PACKAGES}


@pytest.mark.parametrize(
    ("release", "lacking"),
    [
        ("debian 12", set()),
        ("debian 13", {"linux-source-6.1"}),
        ("debian", {"linux-source-6.1"}),
        ("ubuntu 24.04", {"linux-source-6.1", "chromium", "linux-perf"}),
    ],
)
def test_without_lists_what_is_known_is_named(
    release: str, lacking: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's image has no lists; an installed package alone is not one."""
    installed = (
        "make:\n  Installed: 4.3\n  Candidate: 4.3\n  Version table:\n"
        " *** 4.3 100\n        100 /var/lib/dpkg/status\n"
    )
    for policy in ("", installed):
        system = here(policy, release)
        assert not system.listed
        assert {name for name, found in named(system).items() if not found} == lacking
    monkeypatch.setattr(packages, "system", lambda: here("", release))
    assert "apt-get update" in packages.advice(packages.PACKAGES).refresh
    assert "apt-get update" in broken().to_text()
    assert packages.advice([]) == packages.Advice("", "", ())


def test_a_stub_that_fetches_a_snap_is_no_browser() -> None:
    def policy(version: str) -> str:
        return (
            "chromium-browser:\n  Installed: (none)\n"
            f"  Candidate: {version}\n  Version table:\n     {version} 500\n"
            "        500 http://archive.ubuntu.com/ubuntu noble/universe amd64 Packages\n"
        )

    assert named(here(policy("2:1snap1-0ubuntu2"), "ubuntu 24.04"))["chromium"] == ""
    assert named(here(policy("150.0-1"), "mint 22"))["chromium"] == "chromium-browser"


def test_an_unknown_package_manager(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packages, "system", lambda: here(release="fedora 43", manager=False))
    seen = broken()
    assert seen.apt_get() == ""
    text = seen.to_text()
    assert "apt-get" not in text
    assert "gone, browser; the line for the package manager of this system (Fedora 43)" in text
    assert doctor.main(["--packages"]) == 0
    assert capsys.readouterr().out == "\n"


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("dnf", "dnf install glibc-devel elfutils-libelf-devel qemu-system-x86-core git"),
        ("pacman", "pacman -S --needed glibc libelf qemu-system-x86 git"),
    ],
)
def test_fedora_and_arch(
    manager: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their own names; what they have not is said, with where it comes from."""
    (tmp_path / manager).write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / manager).chmod(0o755)
    real = shutil.which

    def which(name: str, path: str | None = None) -> str | None:
        return None if name in {"apt-get", "dnf", "pacman"} - {manager} else real(name, path=path)

    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert packages.system().manager == manager
    names = ["libc6-dev", "libelf-dev", "qemu-system-x86", "git", "linux-source-6.1"]
    wanted = [next(p for p in packages.PACKAGES if p.name == name) for name in names]
    advice = packages.advice(wanted)
    assert advice.install.strip("'").endswith(line)
    assert advice.refresh == ""
    (elsewhere,) = advice.elsewhere
    assert elsewhere.startswith("linux-source-6.1: ")
    assert "contended kernel source" in elsewhere


def test_all_but_the_kernel_source_is_named_for_each_manager() -> None:
    ours = {package.name for package in packages.PACKAGES} - {"linux-source-6.1"}
    # Fedora's is called after its release.
    lacking = {"dnf": {"libc6-dev-arm64-cross"}, "pacman": set[str]()}
    for manager, names in packages.ELSEWHERE.items():
        assert names.keys() == ours - lacking[manager]


def test_apt_is_asked_once_and_in_english(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    for name in ("apt-get", "apt-cache"):
        (tmp_path / name).write_text(
            f"#!/bin/sh\necho $LC_ALL $* >>{asked}\ncat <<'.'\n{POLICY.replace('gone', 'gcc')}.\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert packages.system().versions == {"gcc": "1.2-3"}
    broken().to_text()
    (line,) = asked.read_text().splitlines()
    assert line.startswith("C policy gcc libc6-dev ")
    assert "chromium-browser" in line.split()


def test_what_apt_really_says() -> None:
    """On a system with apt: what it names, apt-get can install or has no lists for."""
    done = None
    for _ in range(3):  # the lists may be fetched anew between two questions
        packages.system.cache_clear()
        system = packages.system()
        if not system.apt:
            pytest.skip("no package manager that the doctor knows")
        names = list(filter(None, named(system).values()))
        assert "gcc" in names
        if not system.listed:
            return
        done = subprocess.run(
            ["apt-cache", "show", "--no-all-versions", *names],
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.returncode:
            return
    assert not done, done


def test_what_was_fetched_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path))
    row = next(p for p in packages.PACKAGES if p.fetched)
    row = dataclasses.replace(row, file="/no/such/file")
    assert not row.there()
    tarball = tmp_path / "kernel" / "fetched" / "x" / "linux.tar.xz"
    tarball.parent.mkdir(parents=True)
    tarball.touch()
    assert row.there()
    assert fetch.fetched() == tarball, "the lab looks there as well"


def test_exit_code_says_whether_the_book_can_be_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.main([]) == 0
    assert "make book: ready" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "report", broken)
    assert doctor.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["packages"][1]["there"] is False


def test_packages_are_one_line_for_apt_get(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--packages"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.split() == list(filter(None, named(packages.system()).values()))
    assert "gcc" in out.split()


@pytest.mark.parametrize(
    ("compiler", "says"),
    [("/no/such/cc", "no /no/such/cc"), ("false", "fails"), ("true", "cannot open shared object")],
)
def test_a_compiler_that_does_not_work(
    compiler: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    check = doctor.check_compiler()
    assert not check.ok
    assert check.required
    assert says in check.detail
    assert "\n" not in check.detail


def test_the_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONTENDED_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert doctor.cache_directory() == tmp_path / "contended"
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "mine"))
    assert doctor.check_cache().ok
    assert not (tmp_path / "mine").exists(), "looking must not create it"
    # A file in the way stops root too, which permissions do not.
    (tmp_path / "file").touch(mode=0o755)
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "file" / "cache"))
    check = doctor.check_cache()
    assert not check.ok
    assert "CONTENDED_CACHE" in check.detail


def test_one_cpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    check = doctor.check_cpus()
    assert not check.ok
    assert not check.required
    assert "recorded" in check.detail


@pytest.mark.parametrize(
    ("version", "fits"),
    [((3, 10, 14), False), ((3, 11, 0), True), ((3, 14, 3), True), ((3, 15, 0), False)],
)
def test_another_python_is_said(
    version: tuple[int, int, int], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    check = doctor.check_python()
    assert check.ok == fits
    assert ("needs 3.11 to 3.14; name another with make PYTHON=" in check.detail) != fits


@pytest.mark.parametrize("module", ["doctor.py", "packages.py", "state.py", "__init__.py"])
def test_runs_before_anything_is_installed(root: Path, module: str) -> None:
    """Old syntax, and nothing but the standard library."""
    source = (root / "src" / "contended" / module).read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            ours = {"contended", "contended.packages", "contended.state"}
            top = str(node.module).partition(".")[0]
            assert top in sys.stdlib_module_names or node.module in ours, ast.unparse(node)
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
    # -S and -I: neither site-packages nor the environment's paths.
    call = f"import sys; sys.path.insert(0, {str(root / 'src')!r}); import contended.{module[:-3]}"
    subprocess.run([sys.executable, "-S", "-I", "-c", call], check=True)
