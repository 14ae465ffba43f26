# SPDX-License-Identifier: MIT
"""The doctor: what it finds, what it says, and that it runs before anything is installed."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contended import doctor


def broken(**changes: object) -> doctor.Report:
    """A report in which one package of each kind is missing."""
    packages = (
        doctor.Package("there", "a", ("book",), True, command="sh"),
        doctor.Package("gone", "b", ("book", "test"), True, command="no-such-command"),
        doctor.Package("browser", "c", ("test",), False, file="/no/such/file"),
    )
    findings = tuple(doctor.Finding(p, p.there()) for p in packages)
    return doctor.Report(findings, (doctor.Check("compiler", True, True, "fine"),))


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
    assert doctor.package_of_header("urcu/urcu-qsbr.h") == "liburcu-dev"
    assert doctor.package_of_header("no/such.h") is None


def test_missing_packages_are_named_with_the_command() -> None:
    seen = broken()
    assert [p.name for p in seen.missing] == ["gone", "browser"]
    assert seen.apt_get.endswith("apt-get install gone browser")
    assert seen.blockers("book") == ("gone",)
    text = seen.to_text()
    assert "MISSING" in text
    assert "no (optional)" in text
    assert seen.apt_get in text
    assert "make book: cannot run without gone" in text
    assert json.loads(seen.to_json())["blockers"]["test"] == ["gone"]


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
    assert out.split() == [package.name for package in doctor.PACKAGES]


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


def test_old_python_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    check = doctor.check_python()
    assert not check.ok
    assert "needs 3.11" in check.detail


@pytest.mark.parametrize("module", ["doctor.py", "__init__.py"])
def test_runs_before_anything_is_installed(root: Path, module: str) -> None:
    """Old syntax, and nothing but the standard library."""
    source = (root / "src" / "contended" / module).read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module in sys.stdlib_module_names, ast.unparse(node)
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
    # -S and -I: neither site-packages nor the environment's paths.
    call = f"import sys; sys.path.insert(0, {str(root / 'src')!r}); import contended.{module[:-3]}"
    subprocess.run([sys.executable, "-S", "-I", "-c", call], check=True)
