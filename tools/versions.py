# SPDX-License-Identifier: MIT
"""Put each tag's book into a folder below a built one, and a list of versions on each page.

The list is part of the page and needs no script, so that it works in books that were built before
there was one, and in a copy on a disk.
"""

import argparse
import html
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ARCHIVE = re.compile(r"contended-(v\d[\w.-]*)-book\.zip")  # as the workflow names it
NEWEST = "main"
MARK = '<nav class="contended-versions"'
STYLE = (
    "position:fixed;right:.5rem;bottom:.5rem;z-index:1030;padding:.2rem .6rem;font-size:.85rem;"
    "color:#1a1a1a;background:#fff;border:1px solid #767676;border-radius:.3rem"
)
PRINTED = "<style>@media print{nav.contended-versions{display:none}}</style>"


class Trouble(Exception):
    """What is wrong, in one line."""


def main(argv: list[str] | None = None) -> int:
    """Assemble them; 1, with a line that says why, if it cannot be done."""
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="versions.py", description=about)
    parser.add_argument("site", type=Path, help="the built book, such as _build/recorded/html")
    parser.add_argument("books", type=Path, help="a folder with each tag's contended-TAG-book.zip")
    options = parser.parse_args(argv)
    try:
        for line in assemble(options.site, options.books):
            sys.stdout.write(f"{line}\n")
    except (Trouble, OSError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"versions.py: {error}\n")
        return 1
    return 0


def assemble(site: Path, books: Path) -> list[str]:
    """Unpack and link all versions, or change nothing; returns their names, the newest first."""
    if not (site / "index.html").is_file():
        raise Trouble(f"no book in {site}: make book ARGS=--recorded first")
    if MARK in (site / "index.html").read_text(encoding="utf-8"):
        raise Trouble(f"{site} has its versions already: build it again")
    if not books.is_dir():
        raise Trouble(f"there is no folder {books}")
    found = {match[1]: path for path in books.iterdir() if (match := ARCHIVE.fullmatch(path.name))}
    tags = sorted(found, key=_order, reverse=True)
    with tempfile.TemporaryDirectory(prefix="contended-versions-", dir=site.parent) as place:
        for tag in tags:
            _unpack(found[tag], Path(place) / tag)
        for tag in tags:
            (Path(place) / tag / "book").rename(site / tag)
    versions = {NEWEST: site, **{tag: site / tag for tag in tags}}
    pages = {
        name: _pages(folder, tags if name == NEWEST else []) for name, folder in versions.items()
    }
    for name in versions:
        for page in pages[name]:
            _list(versions, pages, name, page)
    return list(versions)


def _order(tag: str) -> tuple[list[int], bool, str]:
    """Version 10 after version 9, and what is no release candidate after those that are."""
    release = re.match(r"v([\d.]+)", tag)
    numbers = [int(n) for n in release[1].split(".") if n] if release else []
    return numbers, bool(re.fullmatch(r"v[\d.]+", tag)), tag


def _unpack(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(into)  # which keeps every name below the folder
    if not (into / "book" / "index.html").is_file():
        raise Trouble(f"{archive} holds no book/index.html: it is no version of the book")


def _pages(folder: Path, tags: Sequence[str]) -> set[Path]:
    """A version's pages, but for what is at no address of its own (404) or no page of the book."""
    every = {path.relative_to(folder) for path in folder.rglob("*.html")}
    return {
        page
        for page in every
        if page.parts[0] not in (*tags, "_static", "_sources") and page.name != "404.html"
    }


def _list(
    versions: Mapping[str, Path], pages: Mapping[str, set[Path]], name: str, page: Path
) -> None:
    file = versions[name] / page
    text = file.read_text(encoding="utf-8")
    before, end, after = text.rpartition("</body>")
    if not end:
        return
    items = []
    for other, folder in versions.items():
        # A chapter that an older book had not: its first page.
        there = folder / (page if page in pages[other] else "index.html")
        to = html.escape(Path(os.path.relpath(there, file.parent)).as_posix())
        here = ' aria-current="page"' if other == name else ""
        items.append(f'<li><a href="{to}"{here}>{html.escape(other)}</a></li>')
    listed = "".join(items)
    nav = (
        f'{MARK} aria-label="Versions of this book" style="{STYLE}"><details>'
        f"<summary>{html.escape(name)}</summary><ul>{listed}</ul></details></nav>"
    )
    file.write_text(f"{before}{PRINTED}{nav}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
