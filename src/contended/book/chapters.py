# SPDX-License-Identifier: MIT
"""Sphinx extension: run the chapters that need it, and hand myst-nb all of them with outputs.

One that fails does not keep the others from running. Two events tell what happens: `chapters-say`
(a piece of text, and whether the line goes on), and `chapters-failed` (the failures, how many
chapters there are), for which who has told the reader returns True.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sphinx.util import logging

from contended.book import digest, execute
from contended.book.execute import ChapterFailure, ChapterRun, TimeClaim, listing
from contended.errors import ContendedError
from contended.show import lesson, widget

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config
    from sphinx.environment import BuildEnvironment
    from sphinx.util.typing import ExtensionMetadata

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Chapter:
    """A notebook of the book, a digest of what it rests on, its last run, and how that failed."""

    docname: str
    path: Path
    text: str
    digest: str
    run: ChapterRun | None
    failure: ChapterFailure | None = None

    @property
    def title(self) -> str:
        """Its number and title."""
        cells = digest.read(self.text)["cells"]
        prose = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        name = re.search(r"^# +(.+?)\s*$", prose, re.M)
        number = re.match(r"\d+", self.path.stem)
        return f"{number[0] if number else ''} {name[1] if name else self.path.stem}".strip()

    @property
    def claims(self) -> list[TimeClaim]:
        """The claims about time that its last run made."""
        return execute.claims(self.run) if self.run else []


@dataclass(slots=True, repr=False)  # Sphinx prints its listeners when one raises
class _Chapters:
    """The chapters in one build, in `folder`: the listeners, and what they tell each other."""

    folder: Path
    unfinished: Path  # a file that is there from a build's beginning to its good end
    found: dict[str, Chapter] = field(default_factory=dict)

    def _kept(self, path: Path) -> Path:
        return self.folder / "chapters" / f"{path.stem}.json"

    def begin(self, _app: Sphinx, _config: Config) -> None:
        # After a build that did not come to its end, pages that Sphinx had read and not yet written
        # would stay as they were.
        self.unfinished.parent.mkdir(parents=True, exist_ok=True)
        if self.unfinished.exists():
            self.unfinished.with_name("environment.pickle").unlink(missing_ok=True)
        self.unfinished.touch()

    def outdated(self, app: Sphinx, env: BuildEnvironment, *_known: set[str]) -> list[str]:
        root = Path(app.srcdir)
        known: dict[str, str] = getattr(env, "contended_digests", {})
        changed = []
        for docname in sorted(env.found_docs):
            path = Path(env.doc2path(docname))
            if path.suffix != ".ipynb":
                continue
            text = path.read_text(encoding="utf-8")
            try:
                now = digest.digest(root, text)
            except ContendedError as error:
                raise ContendedError(f"{path.relative_to(root)}: {error}") from error
            run = execute.load(self._kept(path))
            run = run if run and run.digest == now else None
            self.found[docname] = Chapter(docname, path, text, now, run)
            if run is None or known.get(docname) != now:
                changed.append(docname)
        return changed

    def run(self, app: Sphinx, env: BuildEnvironment, _docnames: list[str]) -> None:
        every = self.found.values()
        for place, chapter in enumerate(every, 1):
            app.emit("chapters-say", f"[{place:2}/{len(every)}] {chapter.title} ... ", True)
            said = "unchanged" if chapter.run else self._run(app, chapter)
            missed = sum(not claim.holds for claim in chapter.claims)
            if missed and not chapter.failure:
                said += f", {missed} {'claim' if missed == 1 else 'claims'} about time missed"
            app.emit("chapters-say", said, False)
            if chapter.failure and chapter.failure.disk_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        execute.prune(self.folder / "chapters", (self._kept(chapter.path) for chapter in every))
        read = {chapter.docname: chapter.digest for chapter in every if not chapter.failure}
        env.contended_digests = read  # type: ignore[attr-defined]

    def _run(self, app: Sphinx, chapter: Chapter) -> str:
        folder, path = self.folder, chapter.path
        report = folder / "failed" / f"{path.stem}.txt"
        report.unlink(missing_ok=True)
        env = {
            **os.environ,
            # pages have no server behind them, so widgets stand still
            widget.BOOK: "1",
            lesson.FRESH: os.environ.get(lesson.FRESH) or str(folder / "runs"),
            # start-up files in a reader's IPython profile are not part of the book
            "IPYTHONDIR": str(folder / "ipython"),
        }
        with tempfile.TemporaryFile() as chatter:
            limit = app.config.chapters_cell_seconds
            run, stop = execute.execute(
                chapter.text, path.parent, chapter.digest, env, chatter, limit
            )
            chatter.seek(0)
            wrote = chatter.read().decode(errors="replace")
        chapter.run = run
        took = f"{run.seconds:.0f} s" if run.seconds < 100 else f"{run.seconds / 60:.1f} min"
        if stop is None:
            if wrote.strip():
                print(f"{path.name}, its Python: {wrote}", file=sys.stderr)  # noqa: T201
            execute.save(self._kept(path), run)
            return f"ran {took}"
        near = report.relative_to(Path.cwd()) if report.is_relative_to(Path.cwd()) else report
        failure = ChapterFailure(path.relative_to(app.srcdir), chapter.title, stop, near)
        chapter.failure = failure
        if not failure.disk_full:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(failure.whole(wrote), encoding="utf-8")
        return f"FAILED after {took}"

    def fill(self, _app: Sphinx, docname: str, source: list[str]) -> None:
        if (chapter := self.found.get(docname)) and chapter.run:
            source[0] = json.dumps(execute.merge(digest.read(chapter.text), chapter.run))

    def end(self, app: Sphinx, error: Exception | None) -> None:
        failures = [chapter.failure for chapter in self.found.values() if chapter.failure]
        if error is None and not failures:
            self.unfinished.unlink(missing_ok=True)
        elif error is None:
            app.statuscode = 1
            if not app.emit_firstresult("chapters-failed", failures, len(self.found)):
                _log.error("%s", listing(failures, len(self.found)))


_STATES: WeakKeyDictionary[Sphinx, _Chapters] = WeakKeyDictionary()


def of(app: Sphinx) -> list[Chapter]:
    """The chapters of a build."""
    return list(_STATES[app].found.values())


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect to the build's events."""
    folder, unfinished = Path(app.outdir).resolve().parent, Path(app.doctreedir) / "unfinished"
    state = _STATES[app] = _Chapters(folder, unfinished)
    app.add_config_value("chapters_cell_seconds", execute.CELL_SECONDS, "")
    app.add_event("chapters-say")
    app.add_event("chapters-failed")
    app.connect("chapters-say", lambda _, text, more: _log.info("%s", text, nonl=more))
    app.connect("config-inited", state.begin)
    app.connect("env-get-outdated", state.outdated)
    app.connect("env-before-read-docs", state.run)
    app.connect("source-read", state.fill)
    app.connect("build-finished", state.end)
    # Chapters are read with what this process knows of them, so no parallel reading, even with -j.
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
