# SPDX-License-Identifier: MIT
"""Course plans: their minutes are those of the chapters and labs that they name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

CORE = {0: 15, 11: 55, 12: 25}
"""Minutes of a chapter's core, where they are not 30."""


def weeks(root: Path) -> list[list[str]]:
    text = (root / "docs" / "course-plan.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0].isdigit()]


def test_there_are_four_weeks_and_ten(root: Path) -> None:
    assert [int(row[0]) for row in weeks(root)] == [*range(1, 5), *range(1, 11)]


def test_the_minutes_are_the_chapters_and_the_labs(root: Path) -> None:
    for week, read, do, minutes, question in weeks(root):
        chapters = [int(n) for n in re.findall(r"notebooks/(\d\d)-", read)]
        need = sum(CORE.get(n, 30) for n in chapters)
        for slug in re.findall(r"lab `([\w-]+)`", do):
            lab = tomllib.loads((root / "labs" / slug / "lab.toml").read_text())
            need += lab.get("minutes") or lab["lab"]["minutes"]
        need += 30 * ("*Further in*" in do)
        need += 15 * ("--share" in do) + 15 * ("vfs.md" in read)
        assert int(minutes) == need, f"week {week}: {read}"
        assert question.endswith("?")


@pytest.mark.parametrize("number", range(13))
def test_the_chapters_say_so_themselves(root: Path, number: int) -> None:
    (file,) = (root / "notebooks").glob(f"{number:02}-*.ipynb")
    assert f"{CORE.get(number, 30)} minutes" in file.read_text()


def test_the_image_is_built_from_what_is_there(root: Path) -> None:
    """No second list of packages, nobody is root, and each target of make exists."""
    text = (root / "Containerfile").read_text()
    assert "contended.doctor --packages" in text
    assert text.index("USER reader") < text.index("CMD")
    rules = (root / "Makefile").read_text()
    for target in re.findall(r'make"?,? "?([a-z]+)', text.partition("USER")[2]):
        assert re.search(rf"(?m)^{target}:", rules), target
    assert (root / "binder" / "postBuild").stat().st_mode & 0o111
