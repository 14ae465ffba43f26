# SPDX-License-Identifier: MIT
"""`make book`: build the book by Sphinx, and say what happens as its reader needs it."""

from __future__ import annotations

import argparse
import errno
import fcntl
import io
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO, cast

from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils

from contended import doctor
from contended.book import chapters
from contended.book.execute import ChapterFailure, listing, out_of_space, plain
from contended.errors import ContendedError
from contended.show import lesson


class Log(io.TextIOBase):
    """Takes what the libraries say, without colours; what does not fit on a full disk is lost."""

    encoding = "utf-8"  # Sphinx asks

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            why = "wait for it, since chapters that measure at the same time disturb each other"
            raise ContendedError(
                f"another build of this tree is at work (it holds {path}): {why}"
            ) from error
        os.ftruncate(self._file, 0)

    def write(self, text: str) -> int:
        """Append a piece of text."""
        with suppress(OSError):
            os.write(self._file, plain(text).encode(errors="replace"))
        return len(text)

    def close(self) -> None:
        """Close the file, and so let the next build begin."""
        if not self.closed:
            os.close(self._file)
        super().close()


class Build(io.TextIOBase):
    """What one build's listeners saw, and how it is told; it takes Sphinx's warnings."""

    encoding = "utf-8"

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log
        self._warnings: list[str] = []
        self._pages, self._since, self._within_line = 0, 0.0, False
        self._failed: tuple[list[ChapterFailure], int] | None = None

    def write(self, text: str) -> int:
        """Take one warning."""
        self._log.write(text)
        if text.strip():
            self._warnings.append(plain(text).strip().splitlines()[0])
        return len(text)

    def listen(self, app: Sphinx) -> None:
        """Connect to the build's events."""
        app.connect("chapters-say", lambda _, text, more: self.say(text, more))
        app.connect("chapters-failed", self._note)
        app.connect("html-page-context", self._page)
        # after the chapters have run, which is what the same event does before
        app.connect("env-before-read-docs", self._rendering, priority=900)

    def say(self, text: str, more: bool = False) -> None:
        """Print for the reader, at once even where no terminal is."""
        print(text, end="" if more else "\n", flush=True, file=sys.__stdout__)
        self._within_line = more

    def fail(self, text: str) -> int:
        """Say what is wrong, on a line of its own; the exit status."""
        if self._within_line:
            self.say("")
        print(text, flush=True, file=sys.__stderr__)
        return 1

    def _rendering(self, *_: object) -> None:
        self._since = time.monotonic()
        self.say("Rendering the pages ... ", True)

    def _page(self, *about: object) -> None:
        self._pages += about[-1] is not None  # the page's document

    def _note(self, _app: object, failures: list[ChapterFailure], total: int) -> bool:
        self._failed = failures, total
        return True

    def report(self, app: Sphinx, made: Path) -> int:
        """Say how a build ended that came to its end; the exit status."""
        self.say(f"{self._pages} in {time.monotonic() - self._since:.0f} s")
        if any(map(out_of_space, self._warnings)):
            return self.fail(_trouble(OSError(errno.ENOSPC, "", str(made))))
        told = [claim for chapter in chapters.of(app) for claim in chapter.claims]
        if missed := sum(not claim.holds for claim in told):
            counted = f"{missed} of {len(told)} claims about time missed in this run"
            self.say(f"{counted} (see docs/status): the machine was busy, or it differs")
        self.say(f"The book is in {(made / 'html' / 'index.html').resolve()}")
        if self._failed:
            # what else is wrong with the page of a chapter that stopped follows from that
            return self.fail("\n" + listing(*self._failed))
        if many := len(self._warnings):
            which = "A warning, which is" if many == 1 else f"{many} warnings, each"
            verdict = f"{which} an error here; the log: {made}/book.log"
            return self.fail("\n".join([*self._warnings, verdict]))
        return app.statuscode


def main(argv: Sequence[str] | None = None) -> int:
    """Build the book of a tree: 0 if all is well, 1 if not, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m contended.book", description="Build the book.")
    parser.add_argument("tree", nargs="?", type=Path, default=Path(), help="where conf.py is")
    recorded = "measure nothing: show the reference runs of results/, in _build/recorded"
    parser.add_argument("--recorded", action="store_true", help=recorded)
    args = parser.parse_args(argv)
    made = args.tree / "_build"
    if args.recorded:
        os.environ[lesson.RECORDED] = "1"
    if lesson.from_records():
        made /= "recorded"
    try:
        made.mkdir(parents=True, exist_ok=True)
        with Log(made / "book.log") as log, redirect_stdout(log), redirect_stderr(log):
            return build(args.tree, made, log)
    except (ContendedError, OSError) as error:
        said = (isinstance(error, OSError) and _trouble(error)) or str(error)
        print(said, flush=True, file=sys.__stderr__)
        return 1


def build(tree: Path, made: Path, log: Log) -> int:
    """Have Sphinx build the book of a tree in a directory, and tell how it went: exit status."""
    seen = Build(log)
    options: dict[str, str | bool] = {"nitpicky": True}
    if lesson.from_records():  # what each page says at its top, where nothing was measured
        options["html_theme_options.announcement"] = (
            "All measurements in this book are recorded runs: <code>make book</code> makes yours."
        )
    status = 1
    try:
        with patch_docutils(tree), docutils_namespace():
            app = Sphinx(
                tree,
                tree,
                made / "html",
                made / "doctrees",
                "html",
                options,
                status=cast(TextIO, log),
                warning=cast(TextIO, seen),
                warningiserror=True,
                keep_going=True,  # what Sphinx 8.1 and later do anyway
            )
            seen.listen(app)
            app.build()
            status = seen.report(app, made)
    except KeyboardInterrupt:
        seen.fail("Stopped. What ran is kept: the next `make book` goes on there.")
        status = 130
    except Exception as error:
        log.write(traceback.format_exc())
        seen.fail(_explained(error, log))
    finally:
        # Sphinx warns of a page only when it reads it: after a failure all must be read again.
        if status:
            (made / "doctrees" / "environment.pickle").unlink(missing_ok=True)
    return status


def _explained(error: BaseException, log: Log) -> str:
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        if isinstance(link, ContendedError):
            return str(link)
        if isinstance(link, OSError) and (said := _trouble(link)):
            return said
        seen.append(link)
        link = link.__cause__ or link.__context__
    if isinstance(error, SphinxError):
        return f"{error.category}: {' '.join(str(error).split())} (the log: {log.path})"
    last = log.path.read_text(errors="replace").splitlines()[-12:]
    tail = "\n".join(f"    {line}" for line in last)
    todo = f"That is an error of the book, not of yours: please report it with {log.path}."
    return f"{tail}\nThe build broke: {type(error).__name__}: {error}. {todo}"


def _trouble(error: OSError) -> str:
    """What to do about a file that cannot be written; empty if that is not what happened."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        # the file of the error may be one that was only copied: which place has the least room?
        room = []
        for place in (Path("_build"), Path(tempfile.gettempdir()), doctor.cache_directory()):
            there = next((p for p in (place, *place.absolute().parents) if p.is_dir()), Path("/"))
            room.append((shutil.disk_usage(there).free, place))
        left, place = min(room)
        todo = "Make room and run `make book` again: the chapters that ran are kept."
        return f"The disk is full: {left >> 20} MB are left for {place}. {todo}"
    if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ""
    told = f"Cannot write {error.filename or 'a file'} ({os.strerror(error.errno)})"
    return f"{told}: `make book` needs a tree that you may write to; copy it to one."


if __name__ == "__main__":
    sys.exit(main())
