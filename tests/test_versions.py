# SPDX-License-Identifier: MIT
"""A site of several versions: each tag's book in its folder, and links that lead to pages."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

PAGE = "<html><body><h1>{}</h1></body></html>"
MAIN = ("index.html", "notebooks/01-a.html", "notebooks/02-b.html", "404.html", "_static/x.html")


def run(root: Path, site: Path, books: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / "versions.py"), str(site), str(books)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def book(site: Path, *pages: str) -> None:
    for page in pages:
        (site / page).parent.mkdir(parents=True, exist_ok=True)
        (site / page).write_text(PAGE.format(page))


def archive(books: Path, tag: str, *pages: str) -> Path:
    books.mkdir(exist_ok=True)
    place = books / f"contended-{tag}-book.zip"
    with zipfile.ZipFile(place, "w") as packed:
        for page in pages:
            packed.writestr(f"book/{page}", PAGE.format(f"{tag} {page}"))
    return place


def links(page: Path) -> dict[str, Path]:
    found = re.findall(r'<a href="([^"]+)"[^>]*>([^<]+)</a>', page.read_text())
    return {name: (page.parent / to).resolve() for to, name in found}


def test_each_tag_has_its_folder_and_each_page_its_way(root: Path, tmp_path: Path) -> None:
    site, books = tmp_path / "html", tmp_path / "books"
    book(site, *MAIN)
    for tag in ("v0.9.0", "v0.10.0", "v0.10.0-rc1"):
        archive(books, tag, "index.html", "notebooks/01-a.html")
    (books / "notes.txt").write_text("no book")
    done = run(root, site, books)
    assert done.stdout.split() == ["main", "v0.10.0", "v0.10.0-rc1", "v0.9.0"], done.stderr
    for name in ("", "v0.9.0", "v0.10.0"):
        found = links(site / name / "notebooks/01-a.html")
        assert found == {
            "main": site / "notebooks/01-a.html",
            **{tag: site / tag / "notebooks/01-a.html" for tag in done.stdout.split()[1:]},
        }
    assert links(site / "notebooks/02-b.html")["v0.9.0"] == site / "v0.9.0" / "index.html"
    assert all(place.is_file() for page in site.rglob("*.html") for place in links(page).values())
    assert "v0.9.0 index.html" in (site / "v0.9.0" / "index.html").read_text()
    assert '<a href="index.html" aria-current="page">main' in (site / "index.html").read_text()
    for other in ("404.html", "_static/x.html"):
        assert (site / other).read_text() == PAGE.format(other)
    again = run(root, site, books)
    assert again.returncode == 1
    assert "has its versions already" in again.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("no book", "make book"), ("no folder", "no folder"), ("other", "holds no"), ("cut", "zip")],
)
def test_bad_input_is_one_line_and_changes_nothing(
    wrong: str, said: str, root: Path, tmp_path: Path
) -> None:
    site, books = tmp_path / "html", tmp_path / "books"
    site.mkdir()
    if wrong != "no book":
        book(site, *MAIN)
    if wrong != "no folder":
        archive(books, "v1.0", "index.html")
    if wrong == "other":
        archive(books, "v0.9", "something.html")
    elif wrong == "cut":
        (books / "contended-v0.9-book.zip").write_bytes(b"PK\3\4")
    before = sorted(tmp_path.rglob("*"))
    done = run(root, site, books)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_the_workflow_names_archives_as_the_tool_reads_them(root: Path) -> None:
    flow = yaml.safe_load((root / ".github" / "workflows" / "pages.yml").read_text())
    steps = [step.get("run", "") for job in flow["jobs"].values() for step in job["steps"]]
    scripts = "\n".join(steps)
    # Made with one name, fetched with another case of the shell variable's.
    assert '"contended-$TAG-book.zip" book' in scripts
    assert '--pattern "contended-$tag-book.zip"' in scripts
    assert "python3 tools/versions.py _build/recorded/html books" in scripts
