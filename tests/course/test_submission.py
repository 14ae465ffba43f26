# SPDX-License-Identifier: MIT
"""Whatever is handed in is read as far as it goes, and what is wrong with it is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import toylabs

from contended.course import lab, notebook, submission
from contended.course.lab import Lab
from contended.course.submission import Taken

pytest_plugins = ("coursefixtures",)


@pytest.fixture
def sums(toys: Path) -> Lab:
    return lab.load(toys / "labs" / "sums")


def take(about: Lab, folder: Path, content: str | bytes) -> Taken:
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "sums.ipynb").write_bytes(data)
    return submission.take(about, folder)


def test_a_whole_notebook_is_taken_without_a_note(sums: Lab, tmp_path: Path) -> None:
    taken = take(sums, tmp_path, toylabs.sums(toylabs.RIGHT_TOTAL, toylabs.RIGHT_TWICE))
    assert taken.cells == {"total": toylabs.RIGHT_TOTAL, "twice": toylabs.RIGHT_TWICE}
    assert (taken.notes, taken.empty) == ((), False)


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("", "is no notebook"),
        (toylabs.sums()[:-200], "is no notebook"),
        (toylabs.sums().encode("utf-16"), "is not in UTF-8"),
        (b"\xff\xfe\x00", "is not in UTF-8"),
        (b"PK\x03\x04 zipped", "is no notebook"),
        ("[]", "no list of cells"),
        ('{"cells": [1]}', "no list of cells"),
        ('{"worksheets": [], "nbformat": 3}', "no list of cells"),
        ("[" * 200_000, "nested too deeply"),
        (toylabs.book(toylabs.cell("x = 1", "other-lab", student=True)), "of another lab"),
        (toylabs.book(), "of another lab"),
    ],
)
def test_what_is_no_notebook_of_the_lab_is_told(
    sums: Lab, tmp_path: Path, content: str | bytes, note: str
) -> None:
    taken = take(sums, tmp_path, content)
    assert taken.empty
    assert note in " ".join(taken.notes)
    assert taken.cells == notebook.stubs(sums)


def test_an_empty_folder_and_none_at_all(sums: Lab, tmp_path: Path) -> None:
    assert submission.take(sums, tmp_path).notes == ("sums.ipynb is missing.",)
    assert "no folder" in submission.take(sums, tmp_path / "nowhere").notes[0]


def test_a_notebook_of_200_mb_is_not_even_read(sums: Lab, tmp_path: Path) -> None:
    with (tmp_path / "sums.ipynb").open("wb") as stream:
        stream.truncate(200_000_000)
    taken = submission.take(sums, tmp_path)
    assert taken.empty
    assert "200 MB" in taken.notes[0]


def test_a_patch_over_a_megabyte_is_not_even_read(toys: Path, tmp_path: Path) -> None:
    patching = lab.load(toys / "labs" / "patching")
    (tmp_path / "fix.patch").write_bytes(b"+" * 1_200_000)
    taken = submission.take(patching, tmp_path)
    assert taken.files == {}
    assert taken.notes == ("fix.patch has 1.2 MB; at most 1 MB are read.",)


def test_links_pipes_and_folders_are_not_followed(sums: Lab, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sums.ipynb").write_text(toylabs.sums())
    mine = tmp_path / "mine"
    mine.mkdir()
    place = mine / "sums.ipynb"
    place.symlink_to(other / "sums.ipynb")
    assert "is a link" in submission.take(sums, mine).notes[0]
    place.unlink()
    os.mkfifo(place)
    assert "is no file" in submission.take(sums, mine).notes[0]
    place.unlink()
    place.mkdir()
    assert "no file" in submission.take(sums, mine).notes[0]
    link = tmp_path / "link"
    link.symlink_to(other)
    assert "no folder" in submission.take(sums, link).notes[0]


def test_missing_double_and_moved_cells_are_told(sums: Lab, tmp_path: Path) -> None:
    total = toylabs.cell(toylabs.RIGHT_TOTAL, "total", student=True)
    twice = toylabs.cell(toylabs.RIGHT_TWICE, "twice", student=True)
    again = toylabs.cell("def total(numbers): return 0", "total", student=True)
    taken = take(sums, tmp_path, toylabs.book(twice, total, again))
    assert taken.cells == {"total": toylabs.RIGHT_TOTAL, "twice": toylabs.RIGHT_TWICE}
    assert "total is there 2 times" in " ".join(taken.notes)
    assert "not in the lab's order" in " ".join(taken.notes)
    taken = take(sums, tmp_path, toylabs.book(twice))
    assert taken.cells["total"] == notebook.stubs(sums)["total"]
    assert taken.notes == ("The cell total is missing; it was graded as if it were empty.",)


def test_own_cells_are_not_taken_and_the_labs_are_not_called_own(sums: Lab, tmp_path: Path) -> None:
    content = json.loads((sums.folder / "sums.ipynb").read_text())
    taken = take(sums, tmp_path, json.dumps(content))
    assert taken.notes == ()
    content["cells"].append({**toylabs.cell("x = 1"), "id": "mine"})
    taken = take(sums, tmp_path, json.dumps(content))
    assert "cells that you added (1)" in taken.notes[0]


def test_odd_types_where_text_should_be(sums: Lab, tmp_path: Path) -> None:
    content = json.loads(toylabs.sums())
    content["cells"][0]["source"] = [1, "def total(n):\n", None, "    return 3\n", "\ud800"]
    content["cells"][1]["source"] = {"a": 1}
    content["cells"].append({"metadata": {"nbgrader": []}, "source": 7, "cell_type": "code"})
    content["cells"].append({"metadata": None})
    taken = take(sums, tmp_path, json.dumps(content))
    assert taken.cells["total"] == "def total(n):\n    return 3\n?"
    assert taken.cells["twice"] == ""


def test_a_cell_of_a_million_characters_counts_as_empty(sums: Lab, tmp_path: Path) -> None:
    taken = take(sums, tmp_path, toylabs.sums("#" * 1_000_000, toylabs.RIGHT_TWICE))
    assert taken.cells["total"] == notebook.stubs(sums)["total"]
    assert "too long" in taken.notes[0]


def test_the_digest_is_of_what_is_graded(sums: Lab, tmp_path: Path) -> None:
    one = take(sums, tmp_path, toylabs.sums(toylabs.RIGHT_TOTAL)).digest("x")
    assert one == take(sums, tmp_path, toylabs.sums(toylabs.RIGHT_TOTAL) + "\n").digest("x")
    assert one != take(sums, tmp_path, toylabs.sums("x = 1")).digest("x")
    assert one != take(sums, tmp_path, toylabs.sums(toylabs.RIGHT_TOTAL)).digest("y")
