# SPDX-License-Identifier: MIT
"""pyproject.toml, constraints.txt and environment.yml name the same packages, and they fit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from coursefixtures import use_sandbox
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from contended import cli, tree
from contended.commands import simulate
from contended.course import boxes, sandbox

CONDA_NAMES = {"playwright": "playwright-python"}
"""Names that conda-forge gives to packages which are called otherwise in pyproject.toml."""
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


def declared(root: Path, extras: list[str] | None = None) -> dict[str, Requirement]:
    """What pyproject.toml asks for: itself, these extras (default: all), the build backend."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra, wanted in project["project"]["optional-dependencies"].items():
        lines += wanted if extras is None or extra in extras else []
    return {canonicalize_name(r.name): r for r in map(Requirement, lines)}


def pinned(root: Path, python: str = "") -> dict[str, Version]:
    """What constraints.txt pins, by name, for a version of Python; default this one."""
    pins: dict[str, Version] = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (clause,) = requirement.specifier
            assert clause.operator == "==", f"not a pin: {line}"
            assert canonicalize_name(requirement.name) not in pins, f"twice: {line}"
            if needed(requirement, python):
                pins[canonicalize_name(requirement.name)] = Version(clause.version)
    return pins


def needed(requirement: Requirement, python: str = "", extra: str = "") -> bool:
    """Whether a requirement's marker holds, under a version of Python; default this one."""
    known = {"extra": extra}
    if python:
        known |= {"python_version": python, "python_full_version": f"{python}.0"}
    return requirement.marker is None or requirement.marker.evaluate(known)


def supported(root: Path) -> list[str]:
    """The versions of Python that pyproject.toml allows: 3.11, ..."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = SpecifierSet(project["requires-python"])
    return [f"3.{minor}" for minor in range(100) if bounds.contains(f"3.{minor}.0")]


def test_every_declared_package_is_pinned_within_its_bounds(root: Path) -> None:
    pins = pinned(root)
    for name, requirement in declared(root).items():
        assert name in pins, f"constraints.txt does not pin {name}"
        assert requirement.specifier.contains(pins[name]), f"{requirement} but pinned {pins[name]}"


@pytest.mark.parametrize("python", SUPPORTED)
def test_the_pins_are_closed_and_none_is_idle(root: Path, python: str) -> None:
    """Following what the installed packages require reaches every pin and nothing beyond."""
    pins, here = pinned(root, python), pinned(root)
    todo, reached = list(declared(root)), set[str]()
    extras = {name: requirement.extras for name, requirement in declared(root).items()}
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        if name not in here:
            continue  # another Python needs it, so it is not here to be asked
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            wanted = extras.get(name) or {""}
            if not any(needed(requirement, python, extra) for extra in wanted):
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


def test_records_do_not_tell_where_they_were_made(root: Path) -> None:
    place = re.compile(r'"/(?:home|opt|private|root|srv|tmp|usr|Users|var|work)/[^"]*')
    found = {
        file.name: told[0]
        for file in sorted((root / "results").rglob("*.json"))
        if (told := place.search(file.read_text(encoding="utf-8")))
    }
    assert not found


def test_constraints_name_no_host_and_no_hash(root: Path) -> None:
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert not [line for line in text.splitlines() if "--" in line and line[0] != "#"]
    assert "sha256" not in text


@pytest.mark.parametrize(
    ("file", "extras"),
    [("environment.yml", ["book"]), ("environment-dev.yml", ["book", "course", "dev"])],
)
def test_conda_route_has_the_same_packages_and_bounds(
    root: Path, file: str, extras: list[str]
) -> None:
    environment = yaml.safe_load((root / file).read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    entries = environment["dependencies"]
    package, *rest = entries.pop()["pip"]
    assert package == "-e .", "the package itself"
    conda = {r.name: str(r.specifier) for r in map(Requirement, [*entries, *rest])}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SpecifierSet(conda.pop("python")) == SpecifierSet(project["requires-python"])
    conda.pop("pip")
    assert conda == {
        CONDA_NAMES.get(name, name): str(requirement.specifier)
        for name, requirement in declared(root, extras).items()
    }


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a wheel of this tree is installed, without what it depends on."""
    work = tmp_path_factory.mktemp("wheel")
    for name in ("src", "csrc", "labs", "patches", "results", "docs", "LICENSES"):
        skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(root / name, work / "tree" / name, ignore=skip)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md"):
        shutil.copy(root / name, work / "tree")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile"]
    command = [*pip, *offline, "--target", str(work / "there"), str(work / "tree")]
    subprocess.run(command, check=True, env={**os.environ, "PIP_NO_CACHE_DIR": "1"})
    shutil.rmtree(work / "tree")
    return work / "there"


def installed(
    wheel: Path, *arguments: str, first: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """Run the installed package's command in a folder that has nothing to do with the tree."""
    place = wheel.parent / "elsewhere"
    place.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    environment.pop("CONTENDED_HOME", None)
    code = f"import sys; {first}; from contended.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("cases", "mount-hash"),
        ("measure measuring --threads 1 --repeats 1 --ops 10", "shared"),
        ("kernel list", "umount-grace-period/no-wait"),
        ("scoreboard", "published numbers"),
        pytest.param(
            "course release out --lab measuring", "measuring.zip", marks=pytest.mark.check
        ),
        ("doctor", "contended measure: ready"),
    ],
)
def test_a_wheel_needs_no_clone(wheel: Path, call: str, says: str) -> None:
    done = installed(wheel, *call.split())
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    assert says in done.stdout
    assert "make book:" not in done.stdout


def test_a_wheel_has_the_page_whose_commands_are_run(wheel: Path) -> None:
    look = "from contended.kernel import observe; print(*observe.commands('overlay-creds'))"
    done = installed(wheel, "--version", first=look)
    assert done.returncode == 0, done.stderr
    assert "bpftrace" in done.stdout


def test_what_an_extra_brings_is_named(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = installed(wheel, "course", "release", "x", first="sys.modules['nbformat'] = None")
    assert done.returncode == 1
    said = "contended: course needs the Python package nbformat: pip install 'contended[course]'"
    assert done.stderr.splitlines() == [said]

    def lacks(parser: object) -> None:
        raise ModuleNotFoundError("no", name="numba")

    monkeypatch.setattr(simulate, "fill", lacks)
    assert cli.main(["simulate", "lockref-degrade"]) == 1
    assert capsys.readouterr().err.endswith("numba: pip install 'contended[book]'\n")


@pytest.mark.parametrize("mode", sandbox.MODES)
def test_a_submission_does_not_see_the_labs_of_a_wheel(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is readable in the box, but not the solutions that a wheel puts below it."""
    packed = tmp_path / "_tree"
    packed.mkdir()
    tmp_path.chmod(0o755)  # in the box somebody else looks
    (packed / "solution.c").write_text("this")
    (tmp_path / "other.c").write_text("that")
    use_sandbox(mode, monkeypatch)

    def seen() -> str:
        command = ["cat", str(tmp_path / "other.c"), str(packed / "solution.c")]
        return sandbox.run(command).stdout.decode()

    monkeypatch.setattr(boxes, "PACKAGE", tmp_path)
    assert seen() == "thatthis"
    monkeypatch.setattr(tree, "PACKED", packed)
    assert seen() == "that"


def test_every_supported_python_is_tried_for_the_pins(root: Path) -> None:
    assert tuple(supported(root)) == SUPPORTED


def program(path: Path, text: str) -> Path:
    """A shell script that stands in for a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def venv(
    root: Path, python: str | Path, place: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run tools/venv.sh in a folder, as make does."""
    return subprocess.run(
        [root / "tools" / "venv.sh", python, ".venv"],
        cwd=place,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], place: Path) -> str:
    """The one line in which the script gave up, and left nothing."""
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert not (place / ".venv").exists()
    return done.stderr


#: What the script asks an interpreter, answered by one that has ensurepip but cannot make anything.
UNABLE = """
case $2 in
*python_version*) echo %s ;;
*ensurepip*) ;;
*) mkdir -p "$3/lib"; echo Traceback; echo "OSError: it broke"; echo; exit 1 ;;
esac"""


@pytest.mark.parametrize("version", ["2.7.18", "3.9.2", "3.10.13", "3.15.0", "3.15.0a1", "4.0.0"])
def test_venv_script_refuses_a_python_out_of_range(
    root: Path, tmp_path: Path, version: str
) -> None:
    says = refused(venv(root, program(tmp_path / "fake", UNABLE % version), tmp_path), tmp_path)
    assert f"needs Python {SUPPORTED[0]} to {SUPPORTED[-1]}, " in says
    assert f"is {version}: name another with make PYTHON=" in says


@pytest.mark.parametrize("version", [*(f"{v}.0" for v in SUPPORTED), "3.11.2", "3.14.0rc2"])
def test_venv_script_that_fails_leaves_one_line_and_nothing_else(
    root: Path, tmp_path: Path, version: str
) -> None:
    """And a supported Python is not refused for its version."""
    says = refused(venv(root, program(tmp_path / "fake", UNABLE % version), tmp_path), tmp_path)
    assert says == "venv.sh: cannot make .venv: OSError: it broke\n"


def test_venv_script_refuses_what_is_no_python(root: Path, tmp_path: Path) -> None:
    says = refused(venv(root, "no-such-python", tmp_path), tmp_path)
    assert "no no-such-python on PATH" in says
    broken = program(tmp_path / "broken", "echo 'pyenv: no such version' >&2; exit 127")
    assert "does not run: name another" in refused(venv(root, broken, tmp_path), tmp_path)


def test_venv_script_says_that_the_disk_is_full(root: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "df", "echo Filesystem; echo /dev/x 100 99 1024 99% /")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = venv(root, program(tmp_path / "fake", UNABLE % "3.13.1"), tmp_path, PATH=path)
    assert "the disk is full (1 MB left): make 3 GB free and run make again" in (
        refused(done, tmp_path)
    )


def own_pip(folder: Path) -> Path:
    """The installed pip as a wheel: Debian's Python may have no other copy of it."""
    files = metadata.files("pip") or []
    wheel = folder / f"pip-{metadata.version('pip')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for file in files:
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                packed.write(str(file.locate()), str(file))
    return wheel


def test_venv_script_takes_pip_from_the_distribution(root: Path, tmp_path: Path) -> None:
    """Debian's python3 without python3-venv, without package lists, and with spaces in names."""
    place, temporary = tmp_path / "my home" / "the project", tmp_path / "my temporary files"
    (place / ".venv" / "half made").mkdir(parents=True)
    temporary.mkdir()
    python = program(
        tmp_path / "debian's python",
        f'case $2 in *ensurepip*) exit 1 ;; *) exec "{sys.executable}" "$@" ;; esac',
    )
    # Only lists of one's own are there: the first download fails, update needs its folder.
    program(
        tmp_path / "bin" / "apt-get",
        'case "$*" in *Lists=*update*) : >"${3#Dir::State::Lists=}/partial/it" ;; '
        "*Lists=*download*) : >python3-pip-whl_1.deb ;; *) exit 100 ;; esac",
    )
    program(
        tmp_path / "bin" / "dpkg-deb",
        'to="$3/usr/share/python-wheels"; test -f "$2" && mkdir -p "$to" && '
        f'cp "{own_pip(tmp_path)}" "$to"',
    )
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = venv(root, python, place, PATH=path, TMPDIR=str(temporary))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (place / ".venv" / "half made").exists()
    pip = subprocess.run(
        [place / ".venv" / "bin" / "pip", "--version"], capture_output=True, text=True, check=True
    )
    assert str(place) in pip.stdout
    assert not list(temporary.iterdir())


def test_ci_installs_what_the_doctor_names(root: Path) -> None:
    """No second list of system packages: it would drift."""
    script = (root / ".ci" / "run").read_text(encoding="utf-8")
    assert "contended.doctor --packages" in script
    assert "chromium" not in script
    assert "make --no-print-directory check" in script
