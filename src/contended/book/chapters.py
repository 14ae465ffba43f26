# SPDX-License-Identifier: MIT
"""Sphinx extension: run the chapters that need it, and hand myst-nb all of them with outputs.

The chapters run one after the other before Sphinx reads its first page. One that fails does not
keep the others from running: its page shows how far it came, and the build's status says that it
failed. myst-nb executes nothing.

Two events tell others what happens: `chapters-say` (a piece of text, and whether the line goes on)
and `chapters-failed` (the failures, how many chapters there are); who returns True for the latter
has told the reader.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sphinx.util import logging

from contended.book import digest, execute, kept
from contended.book.failure import Failure, listing
from contended.book.kept import Run
from contended.errors import ContendedError
from contended.show import lesson

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config
    from sphinx.environment import BuildEnvironment
    from sphinx.util.typing import ExtensionMetadata

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chapter:
    """A notebook of the book.

    Attributes:
        docname: What Sphinx calls it.
        path: Its file.
        text: What is in it.
        digest: Of all that its outputs rest on, now.
    """

    docname: str
    path: Path
    text: str
    digest: str

    @property
    def title(self) -> str:
        """Its number and title."""
        cells = digest.read(self.text)["cells"]
        prose = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        name = re.search(r"^# +(.+?)\s*$", prose, re.M)
        number = re.match(r"\d+", self.path.stem)
        return f"{number[0] if number else ''} {name[1] if name else self.path.stem}".strip()


@dataclass(slots=True, repr=False)  # Sphinx prints its listeners when one raises
class Chapters:
    """The chapters in one build: the listeners, and what they have to tell each other."""

    found: dict[str, Chapter] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    def begin(self, app: Sphinx, _config: Config) -> None:
        """Trust what Sphinx remembers only if the build before this one came to its end.

        Pages that it had read and not yet written would stay as they were.
        """
        mark = unfinished(app)
        mark.parent.mkdir(parents=True, exist_ok=True)
        if mark.exists():
            mark.with_name("environment.pickle").unlink(missing_ok=True)
        mark.touch()

    def outdated(self, app: Sphinx, env: BuildEnvironment, *_known: set[str]) -> list[str]:
        """Name the chapters whose digest is not the one of their last reading."""
        root = Path(app.srcdir)
        for docname in sorted(env.found_docs):
            path = Path(env.doc2path(docname))
            if path.suffix == ".ipynb":
                text = path.read_text(encoding="utf-8")
                try:
                    chapter = Chapter(docname, path, text, digest.digest(root, text))
                except ContendedError as error:
                    raise ContendedError(f"{path.relative_to(root)}: {error}") from error
                self.found[docname] = chapter
                run = kept.load(kept_folder(app) / f"{path.stem}.json")
                if run and run.digest == chapter.digest:
                    self.runs[docname] = run
        known: dict[str, str] = getattr(env, "contended_digests", {})
        return [
            name
            for name, chapter in self.found.items()
            if name not in self.runs or known.get(name) != chapter.digest
        ]

    def run(self, app: Sphinx, env: BuildEnvironment, _docnames: list[str]) -> None:
        """Run what has to, in the order of the book."""
        total = len(self.found)
        for place, (docname, chapter) in enumerate(self.found.items(), 1):
            app.emit("chapters-say", f"[{place:2}/{total}] {chapter.title} ... ", True)
            if docname in self.runs:
                app.emit("chapters-say", "unchanged" + _missed(self.runs[docname]), False)
            else:
                app.emit("chapters-say", self._run(app, chapter), False)
            if docname in self.failures and self.failures[docname].disk_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        kept.prune(kept_folder(app), (c.path.stem for c in self.found.values()))
        env.contended_digests = {  # type: ignore[attr-defined]
            name: c.digest for name, c in self.found.items() if name not in self.failures
        }

    def _run(self, app: Sphinx, chapter: Chapter) -> str:
        """Run a chapter and keep what it showed; in a few words what became of it."""
        root, folder = Path(app.srcdir), Path(app.outdir).parent
        report = folder / "failed" / f"{chapter.path.stem}.txt"
        report.unlink(missing_ok=True)
        env = {
            **os.environ,
            # pages have no server behind them, so widgets stand still
            "CONTENDED_BOOK": "1",
            lesson.FRESH: os.environ.get(lesson.FRESH) or str(folder / "runs"),
            # start-up files in a reader's IPython profile are not part of the book
            "IPYTHONDIR": str(folder / "ipython"),
        }
        with tempfile.TemporaryFile() as chatter:
            run, stop = execute.execute(
                chapter.text,
                chapter.path.parent,
                env=env,
                chatter=chatter,
                digest=chapter.digest,
                cell_seconds=app.config.chapters_cell_seconds,
            )
            chatter.seek(0)
            wrote = chatter.read().decode(errors="replace")
        self.runs[chapter.docname] = run
        if stop is None:
            if wrote.strip():
                print(f"{chapter.path.name}, its Python: {wrote}", file=sys.stderr)  # noqa: T201
            kept.save(kept_folder(app) / f"{chapter.path.stem}.json", run)
            return f"ran {_duration(run.seconds)}" + _missed(run)
        failure = Failure(chapter.path.relative_to(root), chapter.title, stop, _near(report))
        self.failures[chapter.docname] = failure
        if not failure.disk_full:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(failure.whole(wrote), encoding="utf-8")
        return f"FAILED after {_duration(run.seconds)}"

    def fill(self, _app: Sphinx, docname: str, source: list[str]) -> None:
        """Hand myst-nb the chapter with the outputs of its last run instead of the file's text."""
        if docname in self.found:
            notebook = digest.read(self.found[docname].text)
            source[0] = json.dumps(kept.merge(notebook, self.runs[docname]))

    def end(self, app: Sphinx, error: Exception | None) -> None:
        """Tell of the failures, and let the build's status say that there are some."""
        if error is not None:
            return
        if not self.failures:
            unfinished(app).unlink(missing_ok=True)
            return
        app.statuscode = 1
        failures, total = list(self.failures.values()), len(self.found)
        if not app.emit_firstresult("chapters-failed", failures, total):
            _log.error("%s", listing(failures, total))


def unfinished(app: Sphinx) -> Path:
    """The file that is there from a build's beginning to its good end."""
    return Path(app.doctreedir) / "unfinished"


def kept_folder(app: Sphinx) -> Path:
    """Where the chapters' last runs are kept."""
    return Path(app.outdir).resolve().parent / "chapters"


_STATES: WeakKeyDictionary[Sphinx, Chapters] = WeakKeyDictionary()


def of(app: Sphinx) -> Iterator[tuple[Chapter, Run, bool]]:
    """Each chapter of a build with its last run, and whether it failed."""
    state = _STATES[app]
    for docname, chapter in state.found.items():
        yield chapter, state.runs[docname], docname in state.failures


def _near(path: Path) -> Path:
    """A path as seen from the working directory, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _missed(run: Run) -> str:
    missed = sum(not claim.holds for claim in kept.claims(run))
    return f", {missed} {'claim' if missed == 1 else 'claims'} about time missed" if missed else ""


def _say(_app: Sphinx, text: str, more: bool) -> None:
    _log.info("%s", text, nonl=more)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect to the build's events."""
    state = _STATES[app] = Chapters()
    app.add_config_value("chapters_cell_seconds", execute.CELL_SECONDS, "")
    app.add_event("chapters-say")
    app.add_event("chapters-failed")
    app.connect("chapters-say", _say)
    app.connect("config-inited", state.begin)
    app.connect("env-get-outdated", state.outdated)
    app.connect("env-before-read-docs", state.run)
    app.connect("source-read", state.fill)
    app.connect("build-finished", state.end)
    # Chapters are read with what this process knows of them, so no parallel reading, even with -j.
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
