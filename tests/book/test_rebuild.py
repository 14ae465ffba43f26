# SPDX-License-Identifier: MIT
"""What `make book` prints and leaves behind, on a small book of its own: good, bad and interrupted.

The small book has the tree's own conf.py, and chapters of a line or two.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from contended.book import execute

STATUS = """# Status

```{book-chapters}
```
"""
IMPORTS = "from contended.show.claims import claim, timed\n"
MISSED = IMPORTS + "claim('it \"flies\" {n} times', n=timed(lambda: 0.5, above=1))"
HELD = IMPORTS + "claim('it flies {n} times', n=timed(lambda: 2, above=1))"


@dataclass(frozen=True)
class Book:
    """A small book."""

    tree: Path

    def chapter(self, name: str, title: str, *code: str, prose: str = "") -> Path:
        """Write a chapter."""
        cells: list[dict[str, object]] = [
            {"cell_type": "markdown", "id": "t", "metadata": {}, "source": f"# {title}\n\n{prose}"}
        ]
        cells += [
            {"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": source,
             "outputs": [], "execution_count": None}
            for i, source in enumerate(code)
        ]  # fmt: skip
        notebook = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "P", "language": "python"}
            },
            "cells": cells,
        }
        path = self.tree / "notebooks" / f"{name}.ipynb"
        path.write_text(json.dumps(notebook))
        return path

    def set(self, line: str) -> None:
        """Add a line to its conf.py."""
        conf = self.tree / "conf.py"
        conf.write_text(f"{conf.read_text()}\n{line}\n")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "contended.book"]

    @property
    def env(self) -> dict[str, str]:
        source = Path(__file__).parents[2] / "src"
        return {**os.environ, "PYTHONPATH": str(source)}

    def build(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Build it, as `make book` does if no other command is given."""
        return subprocess.run(
            command or self.command,
            cwd=self.tree,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def page(self, name: str) -> str:
        return (self.tree / "_build/html" / f"{name}.html").read_text()


@pytest.fixture
def small(tmp_path: Path, root: Path) -> Book:
    # a space in the name of every directory that the build works in
    tree = tmp_path / "a book"
    (tree / "docs").mkdir(parents=True)
    (tree / "notebooks").mkdir()
    shutil.copy(root / "conf.py", tree)
    for name in ("_static", "_templates"):
        shutil.copytree(root / "docs" / name, tree / "docs" / name)
    shutil.copy(root / "docs/references.bib", tree / "docs")
    (tree / "docs/status.md").write_text(STATUS)
    toc = "```{toctree}\n:glob:\n\nnotebooks/*\ndocs/status\n```\n"
    (tree / "index.md").write_text(f"# Book\n\n{toc}")
    return Book(tree)


@pytest.mark.check
def test_a_line_for_each_chapter_and_then_where_the_book_is(small: Book, root: Path) -> None:
    small.chapter("00-one", "First", "print('out' + 'put')", MISSED)
    small.chapter("01-two", "Second", HELD)
    done = small.build()
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5, done.stdout
    assert lines[0].startswith("[ 1/2] 00 First ... ran ")
    assert lines[0].endswith(" s, 1 claim about time missed")
    assert lines[1].startswith("[ 2/2] 01 Second ... ran ")
    assert lines[2].startswith("Rendering the pages ... 4 in ")
    assert lines[3].startswith("1 of 2 claims about time missed in this run (see docs/status)")
    assert lines[4] == f"The book is in {small.tree}/_build/html/index.html"
    assert "output" in small.page("notebooks/00-one")
    ran = runpy.run_path(str(root / "benchmarks/book.py"))["executed"]
    assert ran(done.stdout, small.tree) == {"00-one", "01-two"}
    # neither the kernel's warning of its ports nor anything else that it says by itself
    assert "TCP" not in (small.tree / "_build/book.log").read_text()

    again = small.build()
    assert again.returncode == 0
    assert again.stdout.splitlines()[:2] == [
        "[ 1/2] 00 First ... unchanged, 1 claim about time missed",
        "[ 2/2] 01 Second ... unchanged",
    ]
    assert again.stdout.splitlines()[3:] == lines[3:], "claims of runs that are kept count too"
    assert not ran(again.stdout, small.tree)


def test_the_status_page_counts_claims_about_time(small: Book) -> None:
    small.chapter("00-one", "First", MISSED, HELD)
    small.chapter("01-two", "Second", HELD)
    for _ in range(2):  # a fresh build, and one that runs nothing
        assert small.build().returncode == 0
        page = small.page("docs/status")
        assert "1 of 3 claims about time missed in this build." in page
        assert '<a class="reference internal" href="../notebooks/00-one.html">00 First</a>' in page
        assert "it &quot;flies&quot; above 1 times" in page or 'it "flies" above 1 times' in page
        assert page.count("it flies above") == 0, "what held is counted, not told"
    small.chapter("00-one", "First", HELD)
    assert small.build().returncode == 0
    assert "0 of 2 claims about time missed in this build." in small.page("docs/status")


@pytest.mark.check
def test_an_edit_of_prose_is_shown_without_a_run(small: Book) -> None:
    small.chapter("00-one", "First", "print('out' + 'put')", prose="Old prose.")
    assert small.build().returncode == 0
    small.chapter("00-one", "First", "print('out' + 'put')", prose="New prose.")
    done = small.build()
    assert "[ 1/1] 00 First ... unchanged" in done.stdout
    page = small.page("notebooks/00-one")
    assert "New prose." in page
    assert "output" in page


FAILING = """\
seen = {"before": 24, "after": 23}


def same(a, b):
    return a == b


assert all(
    same(steps, 24) for steps in seen.values()
), f"expected 24 steps each, counted {seen}"
print("after")"""

SHOWN = """\
01 Second: failed in code cell 2 of notebooks/01-two.ipynb
    >   8 | assert all(
        9 |     same(steps, 24) for steps in seen.values()
       10 | ), f"expected 24 steps each, counted {seen}"
  AssertionError: expected 24 steps each, counted {'before': 24, 'after': 23}
  Traceback: _build/failed/01-two.txt
  To look into it: make lab, open notebooks/01-two.ipynb and run it up to this cell.
"""


@pytest.mark.parametrize("by", ["make book", pytest.param("sphinx-build", marks=pytest.mark.check)])
def test_a_cell_that_fails_is_shown_and_the_other_chapters_run(small: Book, by: str) -> None:
    small.chapter("00-one", "First", "print(1)")
    small.chapter("01-two", "Second", "print('so' + ' far')", FAILING)
    small.chapter("02-three", "Third", "import os; os.kill(os.getpid(), 9)")
    small.chapter("03-four", "Fourth", "while True:\n    pass")
    small.chapter("04-five", "Fifth", "print('the' + ' last')")
    small.set("chapters_cell_seconds = 12")
    plain = (sys.executable, "-m", "sphinx", "--no-color", ".", "_build/html")
    done = small.build(*(plain if by == "sphinx-build" else ()))
    assert done.returncode == 1
    told = "\n".join(line.rstrip() for line in done.stderr.splitlines())
    assert SHOWN in told
    assert "02 Third: failed in code cell 1" in told
    assert "its Python died" in told
    assert "03 Fourth: failed in code cell 1" in told
    assert "it was still running after 12 seconds" in told
    assert "3 of 5 chapters failed." in told
    for chatter in ("Sphinx version", "sphinx-doc/sphinx/issues", "Traceback (most"):
        assert chatter not in done.stdout + done.stderr
    report = (small.tree / "_build/failed/01-two.txt").read_text()
    assert "---> " in report
    assert "\x1b" not in report
    assert "the last" in small.page("notebooks/04-five")
    assert "so far" in small.page("notebooks/01-two"), "its page shows how far it came"

    small.chapter("01-two", "Second", "print('mended' * 2)")
    for name in ("02-three", "03-four"):
        (small.tree / "notebooks" / f"{name}.ipynb").unlink()
    done = small.build()
    assert done.returncode == 0, done.stderr
    assert "[ 1/3] 00 First ... unchanged" in done.stdout
    assert "[ 2/3] 01 Second ... ran" in done.stdout
    assert "mendedmended" in small.page("notebooks/01-two")
    left = sorted(path.name for path in (small.tree / "_build/chapters").iterdir())
    assert left == ["00-one.json", "01-two.json", "04-five.json"]


@pytest.mark.check
def test_a_warning_fails_every_build_until_it_is_mended(small: Book) -> None:
    small.chapter("00-one", "First", "1", prose="{doc}`nowhere`")
    for _ in range(2):
        done = small.build()
        assert done.returncode == 1
        warning, verdict = done.stderr.splitlines()
        assert "unknown document: 'nowhere'" in warning
        assert verdict.startswith("A warning, which is an error here")
    small.chapter("00-one", "First", "1")
    assert small.build().returncode == 0


def test_what_is_not_a_notebook_is_refused_in_one_line(small: Book) -> None:
    (small.tree / "notebooks/00-one.ipynb").write_text("[]")
    done = small.build()
    assert done.returncode == 1
    assert done.stderr.startswith("notebooks/00-one.ipynb: not a notebook")
    assert done.stderr.count("\n") == 1


@contextlib.contextmanager
def started(small: Book) -> Iterator[subprocess.Popen[str]]:
    """A build whose only chapter hangs, from the moment on when it does."""
    flag = small.tree / "runs"
    small.set("chapters_cell_seconds = 120")  # should these tests themselves be killed
    small.chapter("01-two", "Second", f"open({str(flag)!r}, 'w').close()\nwhile True:\n    pass")
    build = subprocess.Popen(
        small.command,
        cwd=small.tree,
        env=small.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            if flag.exists() or build.poll() is not None:
                break
            time.sleep(0.1)
        yield build
    finally:
        if build.poll() is None:
            build.send_signal(signal.SIGINT)
            build.communicate(timeout=60)


@pytest.mark.check
def test_ctrl_c_leaves_what_ran_and_no_kernel(small: Book) -> None:
    small.chapter("00-one", "First", "print('out' + 'put')")
    with started(small) as build:
        children = Path(f"/proc/{build.pid}/task/{build.pid}/children")
        kernels = [int(pid) for task in children.parent.parent.iterdir()
                   for pid in (task / "children").read_text().split()]  # fmt: skip
        assert kernels
        build.send_signal(signal.SIGINT)
        out, err = build.communicate(timeout=60)
    assert build.returncode in (130, -signal.SIGINT)  # a shell says 130 for both
    assert err == "Stopped. What ran is kept: the next `make book` goes on there.\n"
    assert "Traceback" not in out
    assert not [pid for pid in kernels if Path(f"/proc/{pid}").exists()]
    small.chapter("01-two", "Second", "1")
    done = small.build()
    assert done.returncode == 0, done.stderr
    assert "[ 1/2] 00 First ... unchanged" in done.stdout


@pytest.mark.check
def test_two_builds_of_one_tree_do_not_run_at_once(small: Book) -> None:
    with started(small):
        done = small.build()
    assert done.returncode == 1
    assert done.stderr.startswith("another build of this tree is at work")
    assert done.stderr.count("\n") == 1


@pytest.mark.check
def test_after_a_build_that_was_killed_every_page_is_written_again(small: Book) -> None:
    small.chapter("00-one", "First", "print(1)")
    assert small.build().returncode == 0
    # as it is when a build is killed after it has read the page and before it has written it
    (small.tree / "_build/doctrees/unfinished").touch()
    page = small.tree / "_build/html/notebooks/00-one.html"
    page.write_text("half a page")
    assert small.build().returncode == 0
    assert "First" in page.read_text()


@pytest.mark.check
def test_a_damaged_record_of_a_run_is_run_again(small: Book) -> None:
    small.chapter("00-one", "First", "import os\nprint('process', os.getpid())")
    assert small.build().returncode == 0
    record = small.tree / "_build/chapters/00-one.json"
    before = re.search(r"process \d+", small.page("notebooks/00-one"))
    record.write_text(record.read_text()[:-9])
    done = small.build()
    assert done.returncode == 0, done.stderr
    assert "[ 1/1] 00 First ... ran" in done.stdout
    after = re.search(r"process \d+", small.page("notebooks/00-one"))
    assert before
    assert after
    assert after[0] != before[0], "and its page shows the new run"


# In a mount namespace of its own, so that the disk of the test is nobody else's.
FULL = """
set -e
mount -t tmpfs -o size=3m tmpfs _build
set +e
"$@"
echo "status $?"
mount -o remount,size=200m _build
"$@"
echo "status $?"
"""
READ_ONLY = """
set -e
mount --bind . .
mount -o remount,bind,ro .
cd "$PWD"
set +e
"$@"
echo "status $?"
"""


def in_namespace(small: Book, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script where it may mount."""
    unshare = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no private mount namespaces here")
    return small.build(*unshare, "sh", "-c", script, "sh", *small.command)


@pytest.mark.check
@pytest.mark.parametrize("where", ["in a chapter", "in the pages"])
def test_a_full_disk_is_one_line_and_the_next_run_goes_on(small: Book, where: str) -> None:
    (small.tree / "_build").mkdir()
    small.chapter("00-one", "First", "print('out' + 'put')")
    fill = (
        "open('../_build/much', 'wb').write(bytes(20_000_000))" if where == "in a chapter" else "1"
    )
    small.chapter(
        "01-two",
        "Second",
        fill,
        "import os\nos.path.exists('../_build/much') and os.remove('../_build/much')",
    )
    done = in_namespace(small, FULL)
    assert done.stderr.count("\n") == 1, done.stderr
    assert re.match(r"The disk is full: \d MB are left for _build. Make room", done.stderr)
    assert "status 1\n[ 1/2] 00 First ... unchanged" in done.stdout
    first = done.stdout.partition("status 1")[0]
    assert ("Rendering" in first) == (where == "in the pages"), "no other chapter would fare better"
    assert done.stdout.endswith("status 0\n")


def test_a_read_only_tree_is_one_line(small: Book) -> None:
    small.chapter("00-one", "First", "print('out' + 'put')")
    done = in_namespace(small, READ_ONLY)
    assert done.stdout == "status 1\n"
    assert done.stderr.startswith("Cannot write _build (Read-only file system)")
    assert done.stderr.count("\n") == 1


def test_a_record_that_does_not_fit_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = execute.ChapterRun("a", 1.0, 2.0, [], {})
    path = tmp_path / "x.json"
    execute.save(path, old)

    def full(_file: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        execute.save(path, execute.ChapterRun("b", 1.0, 2.0, [], {}))
    assert execute.load(path) == old
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
