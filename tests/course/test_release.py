# SPDX-License-Identifier: MIT
"""A student's copy holds the lab, and nothing that would give it away."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

import nbformat
import pytest

from contended.course import lab, notebook, release
from contended.course.lab import Lab
from contended.errors import UsageError

pytest_plugins = ("coursefixtures",)


@pytest.fixture
def own(toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small labs, to be changed."""
    home = tmp_path / "own"
    shutil.copytree(toys, home, symlinks=True)
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    return home / "labs"


def test_a_copy_has_stubs_visible_tests_and_checksums(toys: Path) -> None:
    copy = release.contents(lab.load(toys / "labs" / "sums"))
    assert sorted(copy) == ["lab.toml", "sums.ipynb"]
    book = nbformat.reads(copy["sums.ipynb"].decode(), as_version=4)  # type: ignore[no-untyped-call]
    cells = {notebook.grade_id(cell): cell for cell in book.cells}
    assert "raise NotImplementedError()" in cells["total"].source
    assert "the total of 1 and 2 is 3" in cells["test-total"].source
    assert "secret_answer" not in cells["test-total"].source
    # nbgrader recognises by these what a student has changed.
    assert cells["test-total"].metadata.nbgrader.checksum
    assert book.metadata.contended.lab == "sums"


def test_c_gets_its_stub(toys: Path) -> None:
    copy = release.contents(lab.load(toys / "labs" / "counting"))
    text = copy["count.c"].decode()
    assert "(void)n;" in text
    assert "step_number" not in text
    assert "STUB" not in text


def test_everything_is_written_once_and_the_same(toys: Path, tmp_path: Path) -> None:
    zips = release.run(tmp_path / "out")
    assert [path.name for path in zips] == ["counting.zip", "patching.zip", "sums.zip"]
    first = [path.read_bytes() for path in zips]
    assert [path.read_bytes() for path in release.run(tmp_path / "out")] == first
    with zipfile.ZipFile(io.BytesIO(first[2])) as archive:
        assert sorted(archive.namelist()) == ["sums/lab.toml", "sums/sums.ipynb"]
    released = tmp_path / "out" / "release" / "sums"
    assert sorted(path.name for path in released.iterdir()) == ["lab.toml", "sums.ipynb"]
    # What was released is a lab itself: a student's.
    assert lab.load(released).points == 5


def change(folder: Path, old: str, new: str) -> None:
    (file,) = folder.glob("*.ipynb")
    text = file.read_text()
    assert json.dumps(old)[1:-1] in text
    file.write_text(text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))


def leaks(own: Path, name: str, what: str) -> None:
    with pytest.raises(release.Leak, match=what):
        release.run(own.parent / "out")
    assert not (own.parent / "out" / "release").exists()
    assert not list((own.parent).glob("out/*.zip"))
    about: Lab = lab.load(own / name)
    with pytest.raises(release.Leak):
        release.contents(about)


def test_a_solution_shown_elsewhere_is_a_leak(own: Path) -> None:
    (own / "sums" / "notes.md").write_text("Try this:\n\n  return   sum(n for n in numbers)\n")
    leaks(own, "sums", "notes.md shows a line of a solution")


def test_a_hidden_test_shown_in_a_visible_cell_is_a_leak(own: Path) -> None:
    change(
        own / "sums",
        "raise RuntimeError('never executed in grading')",
        'seen = course.call("total", secret_answer)',
    )
    leaks(own, "sums", "sums.ipynb shows a line")


def test_private_data_copied_into_the_lab_is_a_leak(own: Path) -> None:
    (own / "sums" / "private" / "key.txt").write_text("the answer is four score and seven\n")
    (own / "sums" / "data.txt").write_text("the answer is four score and seven\n")
    leaks(own, "sums", "data.txt shows a line")


def test_c_of_a_solution_in_the_notebook_is_a_leak(own: Path) -> None:
    (own / "counting" / "hint.md").write_text(
        "for (int step_number = 0; step_number < n; step_number++)\n"
    )
    leaks(own, "counting", "hint.md shows a line")


def test_a_marker_without_its_partner_is_a_mistake(own: Path) -> None:
    file = own / "counting" / "count.c"
    file.write_text(file.read_text().replace("/* END SOLUTION */", ""))
    with pytest.raises(UsageError, match="BEGIN SOLUTION near line 6 has no partner"):
        release.run(own.parent / "out")
    change(own / "sums", "### END SOLUTION", "")
    with pytest.raises(UsageError, match="no end solution"):
        release.contents(lab.load(own / "sums"))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('cells = ["total", "twice"]', 'cells = ["total"]', "its student cells are"),
        ("points = 3", "points = 4", "same names, points and order"),
        ('id = "test-twice"', 'id = "other"', "same names, points and order"),
        ("points = 3", "points = 0", "must be 1 or more"),
        ("points = 3", 'points = "3"', "parts.0.points"),
        ('kind = "notebook"', 'kind = "other"', "kind"),
        ("minutes = 5", "", "minutes: Field required"),
        ("minutes = 5", "minutes = 5\nsecond = 1", "second"),
        ("minutes = 5", "minutes = ", "Invalid value"),
        ('id = "test-twice"', 'id = "test-total"', "is there twice"),
        ("points = 2", 'points = 2\nneeds = ["x"]', "'x' is no other part"),
        ("points = 2", 'points = 2\nstep = "builds"', "no step or runs"),
    ],
)
def test_a_mistake_in_a_lab_is_one_line(own: Path, old: str, new: str, what: str) -> None:
    file = own / "sums" / "lab.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(UsageError, match=what) as error:
        release.contents(lab.load(own / "sums"))
    assert "\n" not in str(error.value)
    assert "sums" in str(error.value)


def test_unknown_labs_are_refused(toys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are: counting, patching, sums"):
        release.run(tmp_path / "out", ["x"])
    assert not (tmp_path / "out").exists()


def test_wrong_solutions_must_say_what_they_get(own: Path) -> None:
    about = lab.load(own / "sums")
    (wrong,) = lab.wrong(about)
    assert wrong.points == {"test-total": 0, "test-twice": 2}
    file = own / "sums" / "wrong" / "forgets-the-last" / "expected.toml"
    file.write_text('summary = "x"\n[points]\ntest-total = 0\n')
    with pytest.raises(UsageError, match="must name each part"):
        lab.wrong(about)
    file.write_text("")
    with pytest.raises(UsageError, match="summary: Field required"):
        lab.wrong(about)
