# SPDX-License-Identifier: MIT
"""The autograder, unpacked as Gradescope does it, and run as it is run there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import formats
import pytest

from contended.cli import main
from contended.course import gradescope, lab

pytest_plugins = ("coursefixtures",)

COUNT = '#include "tick.h"\nvoid count(int n)\n{\n\tfor (int i = 0; i < n; i++)\n\t\ttick();\n}\n'
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="another user is root's to choose")


@pytest.fixture
def autograder(toys: Path, tmp_path: Path) -> Path:
    """The folder /autograder of a new image, before `setup.sh`; nothing is at the zip's root."""
    zipped = tmp_path / "counting.zip"
    assert main(["course", "autograder", "counting", str(zipped)]) == 0
    base = tmp_path / "autograder"
    with zipfile.ZipFile(zipped) as archive:
        assert {"setup.sh", "run_autograder"} <= set(archive.namelist())
        archive.extractall(base / "source")
        for entry in archive.infolist():
            (base / "source" / entry.filename).chmod(entry.external_attr >> 16)
    shutil.copy(base / "source" / "run_autograder", base)
    (base / "submission").mkdir()
    (base / "results").mkdir()
    return base


def execute(base: Path, script: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Run one of its scripts as in the image: nothing of this tree in reach, and no network."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CONTENDED", "PYTHON"))}
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    offline = ["unshare", "--net"] if os.geteuid() == 0 else []
    return subprocess.run(
        [*offline, *before, str(base / script)], cwd=base, env=kept,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def results(base: Path) -> dict[str, Any]:
    return formats.gradescope((base / "results" / "results.json").read_text())


def test_an_autograder_holds_one_lab_and_no_wrong_solutions(autograder: Path) -> None:
    source = autograder / "source"
    assert [path.name for path in (source / "labs").iterdir()] == ["counting"]
    assert not list(source.rglob("wrong"))
    for name in ("setup.sh", "run_autograder"):
        assert (source / name).read_text().startswith("#!/usr/bin/env bash\n")
        assert (source / name).stat().st_mode & stat.S_IXUSR
        subprocess.run(["bash", "-n", str(source / name)], check=True)


@pytest.mark.check
def test_where_all_is_there_nothing_is_installed(autograder: Path) -> None:
    done = execute(autograder, "source/setup.sh")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert not (autograder / "venv").exists()


def test_all_that_the_scripts_install_is_what_they_look_for(autograder: Path) -> None:
    text = (autograder / "source" / "setup.sh").read_text()
    needs = (autograder / "source" / "requirements.txt").read_text().split()
    assert "MODULES" not in text
    assert "nbgrader" in needs
    looked_for = text.partition("'import ")[2].partition("; import sys'")[0]
    assert looked_for
    assert not [need for need in needs if "extra" in need]
    assert gradescope._modules(["pyelftools>=0.29", "jupyter-client"]) == [
        "elftools",
        "jupyter_client",
    ]


@pytest.mark.usefixtures("boxes")
def test_a_submission_is_graded_without_network(autograder: Path) -> None:
    (autograder / "submission" / "count.c").write_text(COUNT)
    done = execute(autograder, "run_autograder")
    assert done.returncode == 0, done.stderr
    found = results(autograder)
    assert found["score"] == 4
    assert "in a sandbox (bubblewrap)" in found["output"]


@pytest.mark.check
@NEEDS_ROOT
def test_where_there_are_no_namespaces_it_is_the_second_mode(
    autograder: Path,
) -> None:
    # As in most containers, root is not the one who may make namespaces. And a folder in a folder.
    (autograder / "submission" / "counting").mkdir()
    (autograder / "submission" / "counting" / "count.c").write_text(COUNT)
    weak = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    done = execute(autograder, "run_autograder", *weak)
    assert done.returncode == 0, done.stderr
    found = results(autograder)
    assert found["score"] == 4
    assert "in a sandbox (landlock)" in found["output"]


def test_what_cannot_be_graded_leaves_no_results(autograder: Path) -> None:
    """Gradescope then tells the instructor; a results.json without points would be a zero."""
    (autograder / "source" / "labs" / "counting" / "lab.toml").write_text("title = 3\n")
    done = execute(autograder, "run_autograder")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "lab.toml" in done.stderr
    assert not list((autograder / "results").iterdir())


def test_a_patch_is_nothing_for_gradescope(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["course", "autograder", "patching", str(tmp_path / "a.zip")]) == 2
    assert "use contended course grade" in capsys.readouterr().err
    assert main(["course", "autograder", "sums", str(tmp_path / "a.tar")]) == 2
    assert main(["course", "autograder", "sums", str(tmp_path / "no" / "a.zip")]) == 2
    assert not list(tmp_path.glob("*a.*"))
    first, again = (gradescope.pack(lab.find("sums"), tmp_path / n) for n in ("1.zip", "2.zip"))
    assert first.read_bytes() == again.read_bytes()
