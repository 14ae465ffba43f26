# SPDX-License-Identifier: MIT
"""Fixtures of the course's tests: a repository with small labs, and a working sandbox.

A plugin as tests/kernel/labfixtures.py is: `pytest_plugins = ("coursefixtures",)`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import toylabs

from contended.course import confine, sandbox


@pytest.fixture(scope="session")
def boxes() -> None:
    """Skip where no sandbox works."""
    if why := sandbox.problem():
        pytest.skip(why)


def use_sandbox(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a test use one of the modes, on a machine that can."""
    why = sandbox.trouble(mode)
    if mode == "landlock" and (os.geteuid() or not confine.landlock()):
        pytest.xfail(why)  # nothing to install would help, so it is no skip
    if why:
        pytest.skip(why)
    monkeypatch.setenv(sandbox.CHOICE, mode)


@pytest.fixture
def landlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox's second mode."""
    use_sandbox("landlock", monkeypatch)


@pytest.fixture(scope="session")
def toy_home(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A repository with the small labs."""
    return toylabs.home(tmp_path_factory.mktemp("repository") / "home", root)


@pytest.fixture
def toys(toy_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the one that the package works on."""
    monkeypatch.setenv("CONTENDED_HOME", str(toy_home))
    return toy_home
