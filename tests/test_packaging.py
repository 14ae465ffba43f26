# SPDX-License-Identifier: MIT
"""pyproject.toml, constraints.txt and environment.yml name the same packages, and they fit."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

CONDA_NAMES = {"playwright": "playwright-python"}
"""Names that conda-forge gives to packages which are called otherwise in pyproject.toml."""


def declared(root: Path) -> dict[str, Requirement]:
    """Everything that pyproject.toml asks for: itself, every extra, the build backend."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        lines += extra
    return {canonicalize_name(r.name): r for r in map(Requirement, lines)}


def pinned(root: Path) -> dict[str, Version]:
    """What constraints.txt pins, by name."""
    pins: dict[str, Version] = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (clause,) = requirement.specifier
            assert clause.operator == "==", f"not a pin: {line}"
            assert canonicalize_name(requirement.name) not in pins, f"twice: {line}"
            pins[canonicalize_name(requirement.name)] = Version(clause.version)
    return pins


def test_every_declared_package_is_pinned_within_its_bounds(root: Path) -> None:
    pins = pinned(root)
    for name, requirement in declared(root).items():
        assert name in pins, f"constraints.txt does not pin {name}"
        assert requirement.specifier.contains(pins[name]), f"{requirement} but pinned {pins[name]}"


def test_the_pins_are_closed_and_none_is_idle(root: Path) -> None:
    """Following what the installed packages require reaches every pin and nothing beyond."""
    pins = pinned(root)
    todo, reached = list(declared(root)), set[str]()
    extras = {name: requirement.extras for name, requirement in declared(root).items()}
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            wanted = extras.get(name) or {""}
            if requirement.marker and not any(
                requirement.marker.evaluate({"extra": extra}) for extra in wanted
            ):
                continue
            child = canonicalize_name(requirement.name)
            if requirement.extras - set(extras.get(child, ())):
                extras[child] = set(extras.get(child, ())) | requirement.extras
                reached.discard(child)
            assert child in pins, f"{name} needs {child}, which constraints.txt does not pin"
            assert requirement.specifier.contains(pins[child], prereleases=True), (
                f"{name} needs {requirement}, pinned is {pins[child]}"
            )
            todo.append(child)
    assert pins.keys() - reached == set(), "pinned, but nothing needs it"


def test_what_is_installed_is_what_is_pinned(root: Path) -> None:
    """Only in the environment that make builds: another one may hold other versions."""
    if Path(sys.prefix) == root / ".venv":
        pins = pinned(root)
        assert {n: metadata.version(n) for n in pins} == {n: str(v) for n, v in pins.items()}
    else:
        pytest.skip("not running in .venv: use make test")


def test_constraints_name_no_host_and_no_hash(root: Path) -> None:
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert not [line for line in text.splitlines() if "--" in line and line[0] != "#"]
    assert "sha256" not in text


def test_conda_route_has_the_same_packages_and_bounds(root: Path) -> None:
    environment = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    entries = environment["dependencies"]
    assert entries.pop() == {"pip": ["-e ."]}, "the package itself, last"
    conda = {r.name: str(r.specifier) for r in map(Requirement, entries)}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert conda.pop("python") == project["requires-python"]
    conda.pop("pip")
    assert conda == {
        CONDA_NAMES.get(name, name): str(requirement.specifier)
        for name, requirement in declared(root).items()
    }


@pytest.mark.parametrize(
    ("python", "says"),
    [("no-such-python", "no no-such-python on PATH"), ("old", "needs Python 3.11")],
)
def test_venv_script_refuses_in_one_line(
    root: Path, tmp_path: Path, python: str, says: str
) -> None:
    # Stands in for a Python 3.9: fails the version test, and says its version when asked.
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\ncase $2 in *version_info*) exit 1;; esac\necho 3.9.2\n")
    old.chmod(0o755)
    program = str(old) if python == "old" else python
    done = subprocess.run(
        [root / "tools" / "venv.sh", program, tmp_path / "venv"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert not (tmp_path / "venv").exists()


def test_ci_installs_what_the_doctor_names(root: Path) -> None:
    """No second list of system packages: it would drift."""
    script = (root / ".ci" / "run").read_text(encoding="utf-8")
    assert "contended.doctor --packages" in script
    assert "chromium" not in script
    assert "make --no-print-directory test" in script
