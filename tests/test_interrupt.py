# SPDX-License-Identifier: MIT
"""Builds that are broken off at random moments leave nothing, and the next one goes on.

A few, of a toy kernel; `tools/interrupt.py` does as many as one likes, of runs and gradings too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_few_interrupted_builds_are_survived(root: Path) -> None:
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "tools/interrupt.py", "--tries", "6", "--only", "build", "--seed", "3"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{root / 'tests' / 'kernel'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("survived") == 6
    assert "6 tries, seed 3: 0 lost; left at the end: []" in done.stdout
