# SPDX-License-Identifier: MIT
"""`make book`: build the book, and say what happens as its reader needs it.

Sphinx does the work, in this process. What it and the Jupyter libraries say goes to a log; the
reader sees a line for each chapter, what is wrong if something is, and where the book is.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import io
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, cast

from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils

from contended import doctor
from contended.book import chapters, kept
from contended.book.execute import plain
from contended.book.failure import Failure, listing, out_of_space
from contended.errors import ContendedError
from contended.show import lesson

_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_TAIL = 12  # lines of the log that are shown with an error that nobody foresaw


class Log(io.TextIOBase):
    """A file that takes what the libraries say, without colours.

    A full disk must not end the build by way of its log: what does not fit is lost.
    """

    encoding = "utf-8"  # Sphinx asks

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise ContendedError(
                f"another build of this tree is at work (it holds {path}): wait for it, since "
                "chapters that measure at the same time disturb each other"
            ) from error
        os.ftruncate(self._file, 0)

    def writable(self) -> bool:
        """It is written to."""
        return True

    def write(self, text: str) -> int:
        """Append a piece of text."""
        with contextlib.suppress(OSError):
            os.write(self._file, plain(text).encode(errors="replace"))
        return len(text)

    def last(self, lines: int) -> list[str]:
        """Its last lines."""
        size = os.fstat(self._file).st_size
        return os.pread(self._file, size, 0).decode(errors="replace").splitlines()[-lines:]

    def close(self) -> None:
        """Close the file, and so let the next build begin."""
        if not self.closed:
            os.close(self._file)
        super().close()


class Warnings(io.TextIOBase):
    """Takes Sphinx's warnings: the log has them whole, the reader is shown a line of each."""

    encoding = "utf-8"

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log
        self.seen: list[str] = []

    def write(self, text: str) -> int:
        """Take one warning."""
        self._log.write(text)
        if text.strip():
            self.seen.append(plain(text).strip().splitlines()[0])
        return len(text)


@dataclass(slots=True)
class Build:
    """What the listeners of one build saw."""

    pages: int = 0
    since: float = 0.0
    within_line: bool = False
    failures: list[Failure] = field(default_factory=list)
    chapters: int = 0

    def listen(self, app: Sphinx) -> None:
        """Connect to the build's events."""
        app.connect("chapters-say", self._say)
        app.connect("chapters-failed", self._failed)
        app.connect("html-page-context", self._page)
        # after the chapters have run, which is what the same event does before
        app.connect("env-before-read-docs", self._rendering, priority=900)

    def say(self, text: str, more: bool = False) -> None:
        """Print for the reader, at once even where no terminal is."""
        print(text, end="" if more else "\n", flush=True, file=sys.__stdout__)
        self.within_line = more

    def fail(self, text: str) -> int:
        """Say what is wrong, on a line of its own; the exit status."""
        if self.within_line:
            self.say("")
        print(text, flush=True, file=sys.__stderr__)
        return 1

    def _say(self, _app: object, text: str, more: bool) -> None:
        self.say(text, more)

    def _rendering(self, *_: object) -> None:
        self.since = time.monotonic()
        self.say("Rendering the pages ... ", True)

    def _page(
        self, _app: object, _name: str, _template: str, _context: object, doc: object
    ) -> None:
        self.pages += doc is not None

    def _failed(self, _app: object, failures: list[Failure], total: int) -> bool:
        self.failures, self.chapters = failures, total
        return True


def main(argv: Sequence[str] | None = None) -> int:
    """Build the book of a tree.

    Returns:
        0 if all is well, 1 if not, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="python -m contended.book", description="Build the book.")
    parser.add_argument("tree", nargs="?", type=Path, default=Path(), help="where conf.py is")
    parser.add_argument(
        "--recorded", action="store_true",
        help="measure nothing: show the reference runs of results/, in _build/recorded",
    )  # fmt: skip
    args = parser.parse_args(argv)
    made = args.tree / "_build"
    if args.recorded:
        os.environ[lesson.RECORDED] = "1"
    if lesson.from_records():
        made /= "recorded"
    try:
        with opened(made / "book.log") as log:
            return build(args.tree, made, log)
    except (ContendedError, OSError) as error:
        return Build().fail((isinstance(error, OSError) and trouble(error)) or str(error))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Log]:
    """The log, taking all that is printed besides."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Log(path) as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield log


def build(tree: Path, made: Path, log: Log) -> int:
    """Have Sphinx build the book of a tree in a directory, and tell how it went: exit status."""
    seen, warnings = Build(), Warnings(log)
    status = 1
    try:
        with patch_docutils(tree), docutils_namespace():
            app = Sphinx(
                srcdir=tree,
                confdir=tree,
                outdir=made / "html",
                doctreedir=made / "doctrees",
                buildername="html",
                confoverrides={"nitpicky": True, **_banner()},
                status=cast(TextIO, log),
                warning=cast(TextIO, warnings),
                warningiserror=True,
                keep_going=True,  # what Sphinx 8.1 and later do anyway
            )
            seen.listen(app)
            app.build()
            status = report(app, seen, warnings.seen, made)
    except KeyboardInterrupt:
        seen.fail("Stopped. What ran is kept: the next `make book` goes on there.")
        status = 130
    except Exception as error:
        log.write(traceback.format_exc())
        seen.fail(explained(error, log))
    finally:
        # Sphinx warns of a page only when it reads it: after a failure all must be read again.
        if status:
            (made / "doctrees" / "environment.pickle").unlink(missing_ok=True)
    return status


def _banner() -> dict[str, str]:
    """What each page says at its top, where nothing was measured."""
    if not lesson.from_records():
        return {}
    text = "All measurements in this book are recorded runs: <code>make book</code> makes yours."
    return {"html_theme_options.announcement": text}


def report(app: Sphinx, seen: Build, warnings: list[str], made: Path) -> int:
    """Say how a build ended that came to its end; the exit status."""
    seen.say(f"{seen.pages} in {time.monotonic() - seen.since:.0f} s")
    if any(map(out_of_space, warnings)):
        return seen.fail(trouble(OSError(errno.ENOSPC, "", str(made))))
    told = [claim for _, run, _ in chapters.of(app) for claim in kept.claims(run)]
    missed = sum(not claim.holds for claim in told)
    if missed:
        seen.say(
            f"{missed} of {len(told)} claims about time missed in this run (see docs/status): "
            "the machine was busy, or it differs"
        )
    seen.say(f"The book is in {(made / 'html' / 'index.html').resolve()}")
    if seen.failures:
        # what else is wrong with the page of a chapter that stopped follows from that
        return seen.fail("\n" + listing(seen.failures, seen.chapters))
    if warnings:
        many = "A warning, which is" if len(warnings) == 1 else f"{len(warnings)} warnings, each"
        return seen.fail("\n".join([*warnings, f"{many} an error here; the log: {made}/book.log"]))
    return app.statuscode


def explained(error: BaseException, log: Log) -> str:
    """What to tell of an exception that ended the build: one line if it is the reader's to mend."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in chain:
        if isinstance(link, ContendedError):
            return str(link)
        if isinstance(link, OSError) and (said := trouble(link)):
            return said
    if isinstance(error, SphinxError):
        return f"{error.category}: {' '.join(str(error).split())} (the log: {log.path})"
    tail = "\n".join(f"    {line}" for line in log.last(_TAIL))
    return (
        f"{tail}\nThe build broke: {type(error).__name__}: {error}. That is an error of the book, "
        f"not of yours: please report it with {log.path}."
    )


def trouble(error: OSError) -> str:
    """What to do about a file that cannot be written; empty if that is not what happened."""
    if error.errno in _FULL:
        # the file of the error may be one that was only copied
        place, left = _fullest(
            Path("_build"), Path(tempfile.gettempdir()), doctor.cache_directory()
        )
        return (
            f"The disk is full: {left >> 20} MB are left for {place}. Make room and run `make "
            "book` again: the chapters that ran are kept."
        )
    where = error.filename or "a file"
    if error.errno in _REFUSED:
        return (
            f"Cannot write {where} ({os.strerror(error.errno)}): `make book` needs a tree "
            "that you may write to; copy it to one."
        )
    return ""


def _fullest(*places: Path) -> tuple[Path, int]:
    """Which of some directories has the least room, and how many bytes it is."""
    room = []
    for place in places:
        there = next((p for p in (place, *place.absolute().parents) if p.is_dir()), Path("/"))
        room.append((shutil.disk_usage(there).free, place))
    free, place = min(room)
    return place, free


if __name__ == "__main__":
    sys.exit(main())
