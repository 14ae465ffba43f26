# SPDX-License-Identifier: MIT
"""Slides from the chapters that ran: one page of HTML each, its figures live, and nothing to load.

A cell's `slideshow` metadata, which JupyterLab sets, says whether it begins a slide, goes on with
one, or is left out; a section begins one, too. On it stand headings, lists, tables, figures,
claims, and of each paragraph the first sentence, whose rest goes into the notes. Code cells show
what they made.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from contended.book import digest, execute
from contended.book.mathml import to_mathml
from contended.errors import ContendedError
from contended.records import write_whole
from contended.show import lesson

MOST = 25
"""Slides of a chapter: what an hour takes."""
_BEGINS = ("slide", "subslide")
_STYLES = ("book.css", "slides.css")
_SCRIPTS = ("element.js", "steps.js", "slider.js", "predict.js", "slides.js")
# A sentence, with the bold words that a paragraph may begin with.
_SENTENCE = re.compile(r"((?:\*\*[^*]+\*\*\s+)?.+?[.!?:][)*_`\"]*)(?:\s+(?=[^a-z\s])|\s*$)", re.S)


@dataclass(slots=True)
class Slide:
    """What is on a slide, as pieces of HTML, and the notes to it."""

    body: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def blocks(text: str) -> Iterator[str]:
    """Markdown's blocks, each heading one of its own, without fenced code and comments."""
    fence = r"^(`{3,}|~{3,}).*?^\1\s*$"
    bare = re.sub(rf"{fence}|<!--.*?-->", "", text, flags=re.M | re.S)
    bare = re.sub(r"^#+ .*$", r"\n\g<0>\n", bare, flags=re.M)
    yield from (block.strip("\n") for block in re.split(r"\n\s*\n", bare) if block.strip())


def lead(block: str) -> tuple[str, str]:
    """What of a block goes on the slide, and what into the notes."""
    if re.match(r"#|\||>|\$\$|\s*(?:[-*+]|\d+\.)\s", block):
        return block, ""
    found = _SENTENCE.match(block)
    return (found[1], block[found.end() :].strip()) if found else (block, "")


def _math(tex: str, options: dict[str, Any]) -> str:
    return to_mathml(tex, block=bool(options.get("display_mode")))


class Deck:
    """The slides of one chapter; `stem` is its file's name, to whose page links lead."""

    def __init__(self, notebook: dict[str, Any], stem: str) -> None:
        self._page = f"../html/notebooks/{quote(stem)}.html"
        self._markdown = MarkdownIt("commonmark").enable("table")
        self._markdown.use(dollarmath_plugin, renderer=_math)
        self.title, self._section = stem, ""
        self.slides: list[Slide] = []
        for cell in notebook["cells"]:
            kind = cell["metadata"].get("slideshow", {}).get("slide_type", "skip")
            if cell["cell_type"] == "markdown":
                self._text(list(blocks("".join(cell["source"]))), kind)
            elif kind != "skip":
                self._shown(cell["outputs"], kind)

    def _slide(self, begins: bool) -> Slide:
        if begins or not self.slides:
            self.slides.append(Slide())
        return self.slides[-1]

    def _shown(self, outputs: list[dict[str, Any]], kind: str) -> None:
        slide = self._slide(kind in _BEGINS)
        if not slide.body:  # where we are; a covered result is covered below a heading
            slide.body.append(f'<h2 class="running">{self._section}</h2>')
        slide.body += [shown for output in outputs if (shown := self._output(output))]

    def _text(self, parts: list[str], kind: str) -> None:
        begins = kind in _BEGINS
        titled = any(part.startswith("#") for part in parts)
        for part in parts:
            if part.startswith("# "):
                self.title = part[2:].strip()
            elif part.startswith("#"):
                self._section = self._markdown.renderInline(part.lstrip("# "))
            if kind == "skip":
                continue
            # what stands before a heading closes what was there
            closing = titled and begins and bool(self.slides) and not part.startswith("#")
            slide = self._slide(part.startswith("#") or (begins and not titled))
            begins = begins and titled and not part.startswith("#")
            on, off = ("", part) if kind == "notes" or closing else lead(part)
            slide.body += [self._html(on)] if on else []
            slide.notes += [self._html(off)] if off else []

    def _output(self, output: dict[str, Any]) -> str:
        data = output.get("data", {})
        if "text/html" in data:
            return f'<div class="shown">{"".join(data["text/html"])}</div>'
        return self._html("".join(data.get("text/markdown", "")))

    def _html(self, text: str) -> str:
        made = str(self._markdown.render(text)) if text else ""
        return re.sub(r'href="([^"]+)"', lambda m: f'href="{self._target(m[1])}"', made)

    def _target(self, link: str) -> str:
        """Where a link of a chapter leads from a deck: into the book that lies beside it."""
        if link.startswith("#"):
            return self._page + link
        if "://" in link:
            return link
        path, mark, anchor = link.partition("#")
        path = path.removeprefix("../") if path.startswith("../") else f"notebooks/{path}"
        return "../html/" + re.sub(r"\.(md|ipynb)$", ".html", path) + mark + anchor

    def html(self, static: Path) -> str:
        """The page; `static` has the book's style sheets and scripts, which become part of it."""

        def read(name: str) -> str:
            return (static / name).read_text(encoding="utf-8")

        sections = "\n".join(
            f'<section class="slide">\n{"".join(slide.body)}'
            + (f'<aside class="notes">{"".join(slide.notes)}</aside>' if slide.notes else "")
            + "</section>"
            for slide in self.slides
        )
        style = "".join(f"<style>{read(name)}</style>\n" for name in _STYLES)
        script = "".join(f"<script>{read(name)}</script>\n" for name in _SCRIPTS)
        title = escape(self.title)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}: slides</title>\n{style}</head>\n"
            f'<body><main aria-label="{title}">\n{sections}\n</main>\n{script}</body></html>\n'
        )


def make(tree: Path, made: Path) -> list[Path]:
    """Write a deck for each chapter that ran into `made`/slides.

    Raises:
        ContendedError: a chapter has not run, or has changed since, or has too many slides.
    """
    decks: dict[Path, str] = {}
    for path in sorted((tree / "notebooks").glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        run = execute.load(made / "chapters" / f"{path.stem}.json")
        if run is None or run.digest != digest.digest(tree, text):
            why = "has not run" if run is None else "has changed since it ran"
            raise ContendedError(f"{path.name} {why}: make book first, with the same ARGS")
        deck = Deck(execute.merge(digest.read(text), run), path.stem)
        if not 0 < len(deck.slides) <= MOST:
            raise ContendedError(f"{path.name} has {len(deck.slides)} slides: 1 to {MOST} are well")
        decks[made / "slides" / f"{path.stem}.html"] = deck.html(tree / "docs" / "_static")
    if not decks:
        raise ContendedError(f"no chapters in {tree / 'notebooks'}: name the book's tree")
    (made / "slides").mkdir(parents=True, exist_ok=True)
    for place, page in decks.items():
        write_whole(place, page)
    return list(decks)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the slides of a tree whose book is built: 0 if all is well, 1 if not."""
    about = "Make slides from the chapters that ran."
    parser = argparse.ArgumentParser(prog="python -m contended.book.slides", description=about)
    parser.add_argument("tree", nargs="?", type=Path, default=Path(), help="where conf.py is")
    recorded = "from the book of recorded runs, in _build/recorded"
    parser.add_argument("--recorded", action="store_true", help=recorded)
    args = parser.parse_args(argv)
    if args.recorded:
        os.environ[lesson.RECORDED] = "1"  # what a chapter rests on, too
    try:
        decks = make(args.tree, args.tree / "_build" / ("recorded" * lesson.from_records()))
    except (ContendedError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{deck}\n" for deck in decks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
