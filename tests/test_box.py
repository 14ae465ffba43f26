# SPDX-License-Identifier: MIT
"""tools/box.py: the steps of the Containerfile, in order and by their users, or a plain refusal."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def box(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("box", root / "tools" / "box.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_step_of_the_image_is_taken(root: Path, box: ModuleType) -> None:
    text = (root / "Containerfile").read_text()
    script = box.script(text)
    assert script.count("\n") >= text.count("\nRUN ") + 1
    root_s, _, readers = script.partition("chown -R reader")
    assert "doctor --packages" in root_s
    assert "setpriv" not in root_s
    for step in ("make html", "make kernels", "make lab"):
        (line,) = [each for each in readers.splitlines() if step in each]
        assert "setpriv --reuid reader" in line
    subprocess.run(["sh", "-n", "-c", script], check=True)


def test_what_the_steps_do_is_done(box: ModuleType, tmp_path: Path) -> None:
    text = f"""# a comment
FROM debian:12
ARG DEPTH=1
ENV WHERE=here
WORKDIR {tmp_path}
RUN echo "$WHERE $DEPTH" > said \\
    && cat said > again
"""
    for given, said in (((), "here 1\n"), (("DEPTH=2",), "here 2\n")):
        subprocess.run(["sh", "-c", box.script(text, given)], check=True)
        assert (tmp_path / "again").read_text() == said
    with pytest.raises(box.Unknown, match="step 2 is ADD"):
        box.script("FROM debian:12\nADD file .\n")


def test_a_wrong_argument_is_one_line(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "box.py"), "--kernels"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
