# SPDX-License-Identifier: MIT
"""Fixtures of the course's tests: a repository with small labs, and a working sandbox.

A plugin as tests/kernel/labfixtures.py is: `pytest_plugins = ("coursefixtures",)`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import toylabs

from contended.course import sandbox


@pytest.fixture(scope="session")
def boxes() -> None:
    """Skip where no sandbox works."""
    if why := sandbox.problem():
        pytest.skip(why)


@pytest.fixture(scope="session")
def toy_home(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A repository with the small labs."""
    return toylabs.home(tmp_path_factory.mktemp("repository") / "home", root)


@pytest.fixture
def toys(toy_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the one that the package works on."""
    monkeypatch.setenv("CONTENDED_HOME", str(toy_home))
    return toy_home
