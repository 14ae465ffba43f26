# SPDX-License-Identifier: MIT
"""The kernel's source: found, unpacked once into the cache, patched for as long as a build takes.

The unpacked tree is shared by all variants and configurations. Patches are applied to copies of the
files they touch; only when all have applied are the results put into the tree, after the originals
were set aside and a journal was written. Whoever locks the tree next, even after a kill, finds the
journal and puts everything back, times of modification included: what was not touched is then not
compiled again.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from contended import native
from contended.errors import ContendedError, UsageError
from contended.kernel import mirror

PACKAGE = "linux-source-6.1"
TESTED = "6.1.192"
"""The version that the patches were made for; others are tried."""

TREE_BYTES = 2_000_000_000
"""What an unpacked tree needs; measured 1.5 GB."""

_OUTSIDE = (".git",)


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel tree in the cache, ours to patch.

    Attributes:
        tree: The tree itself.
        version: Such as `6.1.192`.
        digest: Of what it was made from.
    """

    tree: Path
    version: str
    digest: str

    @property
    def key(self) -> str:
        """A name for this tree that files and folders made from it can have."""
        return self.tree.parent.name

    @property
    def note(self) -> str:
        """What to tell the reader about the version; empty for the tested one."""
        if self.version == TESTED:
            return ""
        return f"the source is Linux {self.version}; the patches were tested with {TESTED}"


def cache() -> Path:
    """The folder of all that the kernel lab keeps."""
    return native.cache_dir() / "kernel"


def find(given: Path | None = None, say: Callable[[str], None] | None = None) -> Source:
    """The kernel's source, unpacked (or copied) into the cache if it is not there yet.

    Args:
        given: A tarball or a folder; None: what `CONTENDED_KERNEL_SOURCE` names, or else Debian's
            package. A folder is never written to.
        say: Called with a line before something that takes a while.

    Raises:
        UsageError: what was given is no kernel source.
        ContendedError: nothing was given and the package is not installed, or the disk is full.
    """
    say = say or (lambda _: None)
    if given is None and os.environ.get("CONTENDED_KERNEL_SOURCE"):
        given = Path(os.environ["CONTENDED_KERNEL_SOURCE"])
    if given is None:
        given = packaged()
    if given is None:
        raise ContendedError(
            f"no kernel source: apt-get install {PACKAGE}, or name a tarball or folder "
            "with --source or CONTENDED_KERNEL_SOURCE"
        )
    given = given.expanduser().resolve()
    try:
        if given.is_dir():
            return _copied(given, say)
        if given.is_file():
            return _unpacked(given, say)
    except PermissionError as error:
        raise ContendedError(f"no permission for {error.filename}") from error
    raise UsageError(f"no kernel source: {given} does not exist")


def packaged() -> Path | None:
    """The tarball of Debian's package, wherever it was installed."""
    with suppress(OSError):
        listed = subprocess.run(
            ["dpkg", "-L", PACKAGE], capture_output=True, text=True, check=False
        )
        for line in listed.stdout.splitlines():
            if re.search(r"\.tar\.\w+$", line) and Path(line).is_file():
                return Path(line)
    return next(iter(sorted(Path("/usr/src").glob(f"{PACKAGE}.tar.*"))), None)


def need_space(where: Path, needed: int, purpose: str) -> None:
    """See that the disk has room.

    Args:
        where: A folder that may not exist yet.
        needed: Bytes.
        purpose: What they are for, for the message.

    Raises:
        ContendedError: it has not.
    """
    there = next(p for p in (where, *where.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise ContendedError(
            f"{purpose} needs about {needed / 1e9:.1f} GB and {there} has {free / 1e9:.1f} GB free:"
            " make room, or set CONTENDED_CACHE to a folder on another disk"
        )


def _version(tree: Path, given: Path) -> str:
    try:
        text = (tree / "Makefile").read_text(errors="replace")
    except OSError:
        text = ""
    parts = dict(
        re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *=[ \t]*(.*)$", text, re.M)
    )
    if not {"VERSION", "PATCHLEVEL", "SUBLEVEL"} <= parts.keys():
        raise UsageError(f"{given} holds no kernel source: no version in its Makefile")
    return (
        f"{parts['VERSION']}.{parts['PATCHLEVEL']}.{parts['SUBLEVEL']}"
        f"{parts.get('EXTRAVERSION', '')}".strip()
    )


@functools.lru_cache
def _file_digest(file: Path, _size: int, _mtime_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def _unpacked(tarball: Path, say: Callable[[str], None]) -> Source:
    seen = tarball.stat()
    digest = _file_digest(tarball, seen.st_size, seen.st_mtime_ns)
    home = cache() / "source" / digest
    if not home.exists():
        with _making(home, say) as work:
            if work:
                need_space(home, TREE_BYTES, "unpacking the kernel's source")
                say(f"unpacking {tarball.name}")
                _untar(tarball, work / "tree")
                _version(work / "tree", tarball)
    return Source(home / "tree", _version(home / "tree", tarball), digest)


def _untar(tarball: Path, tree: Path) -> None:
    tree.mkdir()
    command = [
        "tar",
        "-xf",
        str(tarball),
        "-C",
        str(tree),
        "--strip-components=1",
        "--no-same-owner",
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    if done.returncode:
        said = next(iter(done.stderr.splitlines()), "no reason given")
        raise UsageError(f"{tarball} cannot be unpacked: {said}")


def _copied(folder: Path, say: Callable[[str], None]) -> Source:
    version = _version(folder, folder)
    digest = mirror.digest(folder, _OUTSIDE)
    home = cache() / "source" / hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    mark = home / "copied"
    source = Source(home / "tree", version, digest)
    if mark.is_file() and mark.read_text() == digest:
        return source
    if not home.exists():
        with _making(home, say) as work:
            if work:
                need_space(home, TREE_BYTES, "copying the kernel's source")
                (work / "tree").mkdir()
    with lock(source, say):
        mark.unlink(missing_ok=True)
        say(f"copying {folder}")
        mirror.sync(folder, source.tree, _OUTSIDE)
        # A tree that was built in place cannot be built elsewhere before it is cleaned.
        if (source.tree / ".config").exists() or (source.tree / "include" / "config").exists():
            subprocess.run(
                ["make", "-C", source.tree, "mrproper"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        mark.write_text(digest)
    return source


@contextmanager
def _making(home: Path, say: Callable[[str], None]) -> Iterator[Path | None]:
    """A folder that becomes `home` if all goes well, and nothing otherwise.

    None if somebody else made it while we waited for the lock.
    """
    with _lock(home.parent / "lock", say):
        for left in home.parent.glob(".new-*"):  # somebody was killed: we have the lock
            shutil.rmtree(left, ignore_errors=True)
        if home.exists():
            yield None
            return
        work = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
        try:
            yield work
            work.replace(home)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _lock(file: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Hold a lock file; yields its descriptor."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = file.open("a")
    except OSError as error:
        raise ContendedError(
            f"cannot write to {file.parent} ({error.strerror}): "
            "set CONTENDED_CACHE to a folder that you can write"
        ) from error
    with stream:
        waiting = False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    say("waiting for another build to end")
                waiting = True
                time.sleep(0.1)
        yield stream.fileno()


@contextmanager
def lock(source: Source, say: Callable[[str], None] | None = None) -> Iterator[int]:
    """Have the tree to oneself, pristine.

    Yields:
        The lock's descriptor: a process that inherits it holds the lock until it ends as well.
    """
    with _lock(source.tree.parent / "lock", say or (lambda _: None)) as descriptor:
        for left in source.tree.parent.glob(".patching-*"):
            shutil.rmtree(left, ignore_errors=True)
        _restore(source.tree)
        yield descriptor


@contextmanager
def patched(source: Source, patches: Sequence[Path]) -> Iterator[Path]:
    """The tree with patches applied; afterwards it is as before, times of modification included.

    Raises:
        ContendedError: a patch does not apply; the tree was not touched.
    """
    with lock(source), applied(source, patches):
        yield source.tree


@contextmanager
def applied(source: Source, patches: Sequence[Path], mtime_ns: int = 0) -> Iterator[list[str]]:
    """As `patched`, for whoever holds the lock.

    Args:
        source: The tree.
        patches: In this order.
        mtime_ns: The time of modification that changed files get, 0: now. A build that goes on
            after an interruption must not see them as newer than what it compiled from them.

    Yields:
        The changed files, relative to the tree.

    Raises:
        ContendedError: a patch does not apply; the tree was not touched.
    """
    tree = source.tree
    with tempfile.TemporaryDirectory(prefix=".patching-", dir=tree.parent) as scratch:
        changed = _stage(source, patches, Path(scratch))
        try:
            if changed:
                _put(tree, Path(scratch), changed, mtime_ns or time.time_ns())
            yield changed
        finally:
            _restore(tree)


def touched(patch: Path) -> list[str]:
    """The files that a patch changes, adds or removes, relative to the tree.

    Raises:
        ContendedError: it is no patch, or one of a file outside of the tree.
    """
    names: dict[str, None] = {}
    text = patch.read_text(errors="replace")
    for old, new in re.findall(r"^--- (\S+)[^\n]*\n\+\+\+ (\S+)", text, re.M):
        for name in (old, new):
            if name == "/dev/null":
                continue
            _, _, inside = name.partition("/")
            if not inside or name.startswith("/") or ".." in inside.split("/"):
                raise ContendedError(f"{patch.name}: {name} is not a/FILE or b/FILE")
            names[inside] = None
    if not names:
        raise ContendedError(f"{patch.name} is no patch: it has no --- and +++ lines")
    return list(names)


def _stage(source: Source, patches: Sequence[Path], scratch: Path) -> list[str]:
    """Apply the patches to copies of what they touch; returns the files that then differ."""
    names = sorted({name for patch in patches for name in touched(patch)})
    for name in names:
        if (source.tree / name).is_file():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.tree / name, scratch / name)
    for patch in patches:
        done = subprocess.run(
            ["patch", "-p1", "-F0", "-N", "--no-backup-if-mismatch", "-r", "-", "-i", str(patch)],
            cwd=scratch,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise _refused(source, patch, done.stdout)
    return [name for name in names if not _same(source.tree / name, scratch / name)]


def _refused(source: Source, patch: Path, output: str) -> ContendedError:
    file = "?"
    what = next(iter(output.splitlines()), "no reason given")
    for line in output.splitlines():
        if match := re.match(r"(?:checking|patching) file '?([^']+?)'?$", line):
            file = match[1]
        elif match := re.match(r"Hunk #(\d+) (?:FAILED|ignored) at (\d+)", line):
            what = f"hunk {match[1]} (line {match[2]}) of {file}"
            break
        elif match := re.match(r"\|\+\+\+ \w+/(\S+)", line):
            what = f"there is no {match[1]}"
            break
        elif "previously applied" in line:
            what = f"{file} has this change already"
            break
        elif line.startswith("patch: **** "):
            what = line.removeprefix("patch: **** ").rstrip(".")
            break
    error = ContendedError(
        f"{patch.parent.name}/{patch.name} does not apply: {what}; "
        f"the source is Linux {source.version}, the patches were tested with {TESTED}"
    )
    error.add_note(output.rstrip())
    return error


def _same(one: Path, other: Path) -> bool:
    if one.is_file() and other.is_file():
        return one.read_bytes() == other.read_bytes()
    return not one.exists() and not other.exists()


def _put(tree: Path, staged: Path, changed: Sequence[str], mtime_ns: int) -> None:
    """Replace files of the tree by staged ones (or remove them), with a journal to undo it."""
    saved = tree.parent / "saved"
    shutil.rmtree(saved, ignore_errors=True)
    for name in changed:
        if (tree / name).exists():
            (saved / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, saved / name)
    journal = tree.parent / "journal.json"
    new = journal.with_suffix(".new")
    with new.open("w") as stream:
        json.dump([[name, (tree / name).exists()] for name in changed], stream)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(journal)
    for name in changed:
        if (staged / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(staged / name, tree / name)
            os.utime(tree / name, ns=(mtime_ns, mtime_ns))
        else:
            (tree / name).unlink()


def _restore(tree: Path) -> None:
    """Undo what the journal says was done; safe to repeat, since it only goes when all is done."""
    home = tree.parent
    journal = home / "journal.json"
    if journal.exists():
        for name, existed in json.loads(journal.read_text()):
            file = tree / name
            if existed:
                shutil.copy2(home / "saved" / name, file)
                continue
            file.unlink(missing_ok=True)
            for parent in file.relative_to(tree).parents:
                with suppress(OSError):  # not empty: it was there before
                    (tree / parent).rmdir()
        journal.unlink()
    shutil.rmtree(home / "saved", ignore_errors=True)
