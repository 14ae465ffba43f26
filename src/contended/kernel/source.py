# SPDX-License-Identifier: MIT
"""The kernel's source: found, unpacked once into the cache, patched for as long as a build takes.

Patches are applied to copies of the files they touch; only when all have applied are the results
put into the tree, with a journal of what to undo. Whoever locks the tree next, even after a kill,
puts everything back, times of modification included: what was not touched is not compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from contended.errors import ContendedError, UsageError
from contended.kernel import fetch, patchfile, releases, store
from contended.kernel.releases import BOOK, Release
from contended.kernel.store import Say

TREE_BYTES = 2_000_000_000  #: What an unpacked tree needs; measured 1.5 GB.
_OUTSIDE = (".git",)
_OLD_NS = 10**9  # a time of modification before that of any object; to make 0 is no time


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel tree in the cache, ours to patch; `digest` is of what was `given`."""

    tree: Path
    version: str
    digest: str
    given: Path = field(default=Path(), compare=False)


class NoSource(ContendedError):
    """Nothing was given, and there is nothing on this machine."""


def _silent(_: str) -> None:
    pass


def find(
    given: Path | None = None, say: Say = _silent, release: Release | None = None
) -> KernelSource:
    """The kernel's source, unpacked (or copied) into the cache if it is not there yet.

    It is `given` as a tarball or a folder, which is never written to, or named by
    `CONTENDED_KERNEL_SOURCE`, or Debian's package, or what `get` has fetched. With a `release` that
    variable says nothing, and the source must be of it. Raises NoSource if there is nothing of
    this, UsageError if it is no kernel source or not the release's.
    """
    if given is None and release is None and (named := os.environ.get("CONTENDED_KERNEL_SOURCE")):
        given = Path(named)
    given = given or packaged(release or BOOK)
    if given is None:
        of = f" --release {release.name}" if release else ""
        raise NoSource(
            f"no kernel source{(release and f' of {release.name}') or ''}: contended kernel source"
            f"{of} gets Debian's with apt-get, no root needed; or name a tarball or folder with "
            "--source or CONTENDED_KERNEL_SOURCE"
        )
    found = _find(given, say)
    if release:
        releases.check(release, found.version, given)
    return found


def _find(given: Path, say: Say) -> KernelSource:
    given = given.expanduser().resolve()
    try:
        if given.is_dir():
            return _copied(given, say)
        if given.is_file():
            return _unpacked(given, say)
    except PermissionError as error:
        raise ContendedError(f"no permission for {error.filename}") from error
    raise UsageError(f"no kernel source: {given} does not exist")


def obtain(
    given: Path | None = None, say: Say = _silent, release: Release | None = None
) -> KernelSource:
    """As `find`; where nothing is found, Debian's package is fetched, as by `get`."""
    try:
        return find(given, say, release)
    except NoSource:
        return get(say, release=release)


def get(
    say: Say = _silent,
    url: str | None = None,
    sha256: str | None = None,
    release: Release | None = None,
) -> KernelSource:
    """Fetch a tarball, which must have that SHA-256, or Debian's package, and unpack it."""
    fetch.check(url, sha256)
    store.need_space(
        store.cache(), fetch.BYTES + TREE_BYTES, "fetching and unpacking the kernel's source"
    )
    if url is None or sha256 is None:
        tarball = fetch.debian(release or BOOK, say)
    else:
        tarball = fetch.url(url, sha256, say, release or BOOK)
    try:
        return find(tarball, say, release)
    except UsageError:
        shutil.rmtree(tarball.parent, ignore_errors=True)
        raise


def packaged(release: Release = BOOK) -> Path | None:
    """The tarball of Debian's package: where apt put it, or else what was fetched."""
    return installed(release) or fetch.fetched(release)


def installed(release: Release = BOOK) -> Path | None:
    """The tarball of Debian's package, wherever it was installed."""
    with suppress(OSError):
        for line in store.ask(["dpkg", "-L", release.package]).stdout.splitlines():
            if re.search(r"\.tar\.\w+$", line) and Path(line).is_file():
                return Path(line)
    return min(Path("/usr/src").glob(f"{release.package}.tar.*"), default=None)


def _version(tree: Path, given: Path) -> str:
    makefile = tree / "Makefile"
    text = makefile.read_text(errors="replace") if makefile.is_file() else ""
    names = ("VERSION", "PATCHLEVEL", "SUBLEVEL", "EXTRAVERSION")
    parts: dict[str, str] = dict(re.findall(rf"^({'|'.join(names)}) *=[ \t]*(.*)$", text, re.M))
    if not parts.keys() >= set(names[:3]):
        raise UsageError(f"{given} holds no kernel source: no version in its Makefile")
    return (".".join(parts[name] for name in names[:3]) + parts.get(names[3], "")).strip()


@functools.lru_cache
def _file_digest(file: Path, _size: int, _mtime_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def _unpacked(tarball: Path, say: Say) -> KernelSource:
    seen = tarball.stat()
    digest = _file_digest(tarball, seen.st_size, seen.st_mtime_ns)
    home = store.cache() / "source" / digest
    if not home.exists():
        with store.making(home, say) as work:
            if work:
                store.need_space(home, TREE_BYTES, "unpacking the kernel's source")
                say(f"unpacking {tarball.name}")
                _untar(tarball, work / "tree")
                _version(work / "tree", tarball)
    return KernelSource(home / "tree", _version(home / "tree", tarball), digest, tarball)


def _untar(tarball: Path, tree: Path) -> None:
    tree.mkdir()
    how = ("--strip-components=1", "--no-same-owner")
    done = store.ask(["tar", "-xf", str(tarball), "-C", str(tree), *how])
    if done.returncode:
        if store.is_full(done.stderr):
            raise ContendedError(f"the disk of {store.cache() / 'source'} is full: {store.ROOM}")
        said = next(iter(done.stderr.splitlines()), "no reason given")
        raise UsageError(f"{tarball} cannot be unpacked: {said}")


def _copied(folder: Path, say: Say) -> KernelSource:
    home = store.cache() / "source" / hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    version, digest = _version(folder, folder), store.folder_digest(folder, _OUTSIDE)
    source, mark = KernelSource(home / "tree", version, digest, folder), home / "copied"
    if mark.is_file() and mark.read_text() == digest:
        return source
    if not home.exists():
        store.need_space(home, TREE_BYTES, "copying the kernel's source")
    with lock(source, say):
        mark.unlink(missing_ok=True)
        say(f"copying {folder}")
        store.sync(folder, source.tree, _OUTSIDE)
        # A tree that was built in place cannot be built elsewhere before it is cleaned.
        if (source.tree / ".config").exists() or (source.tree / "include" / "config").exists():
            store.ask(["make", "-C", source.tree, "mrproper"])
        mark.write_text(digest)
    return source


@contextmanager
def lock(source: KernelSource, say: Say = _silent) -> Iterator[int]:
    """Have the tree to oneself, pristine; yields the lock's descriptor, as `store.locked` does."""
    home = source.tree.parent
    with store.locked(home / "lock", say) as descriptor:
        for left in home.glob(".patching-*"):
            shutil.rmtree(left, ignore_errors=True)
        _restore(source.tree)
        yield descriptor


@contextmanager
def patched(source: KernelSource, patches: Sequence[Path]) -> Iterator[Path]:
    """Have the tree with patches applied; afterwards it is as before, times included."""
    with lock(source), applied(source, patches):
        yield source.tree


@contextmanager
def applied(
    source: KernelSource, patches: Sequence[Path], mtime_ns: int = 0, under: Sequence[Path] = ()
) -> Iterator[list[str]]:
    """As `patched`, for whoever holds the lock; yields the changed files, relative to the tree.

    They get that time of modification, 0: now. To a build that goes on after an interruption they
    must not be newer than what it compiled from them. Nor must what is as the patches `under` make
    it to a build that starts from objects with these, so that is older than any object.
    """
    tree = source.tree
    with tempfile.TemporaryDirectory(prefix=".patching-", dir=tree.parent) as scratch:
        staged, before = Path(scratch, "staged"), Path(scratch, "under")
        there = _stage(tree, source.version, under, before)
        changed = sorted({*there, *_stage(tree, source.version, patches, staged)})
        now = mtime_ns or time.time_ns()
        same = {name for name in there if _content(before / name) == _content(staged / name)}
        try:
            if changed:
                _put(tree, staged, {name: _OLD_NS if name in same else now for name in changed})
            yield changed
        finally:
            _restore(tree)


def wide(source: KernelSource, patches: Sequence[Path]) -> tuple[Path, ...]:
    """Those after which nearly all is compiled anew, for whoever holds the lock: of headers.

    None, if they do not apply without the others.
    """
    found = tuple(
        patch
        for patch in patches
        if any("/include/" in f"/{change.file}" for change in patchfile.read(patch))
    )
    with tempfile.TemporaryDirectory(prefix=".patching-", dir=source.tree.parent) as scratch:
        try:
            _stage(source.tree, source.version, found, Path(scratch))
        except store.ToolError:
            return ()
    return found


def _stage(tree: Path, version: str, patches: Sequence[Path], scratch: Path) -> list[str]:
    """Apply the patches to copies of what they touch; returns the files that then differ."""
    scratch.mkdir(exist_ok=True)
    changed = [change for patch in patches for change in patchfile.read(patch)]
    names = sorted({name for change in changed for name in (change.old, change.new) if name})
    for name in names:
        _copy(tree / name, scratch / name)
    for patch in patches:
        how = ("-p1", "-F0", "-N", "--no-backup-if-mismatch", "-r", "-", "-i", str(patch))
        done = store.ask(["patch", *how], cwd=scratch, stderr=subprocess.STDOUT)
        if done.returncode:
            raise store.ToolError(
                f"{patch.parent.name}/{patch.name} does not apply: {_reason(done.stdout)}; "
                f"the source is Linux {version}, the patches were tested with {BOOK.tested}",
                done.stdout,
            )
    return [name for name in names if _content(tree / name) != _content(scratch / name)]


def _copy(file: Path, copy: Path) -> None:
    if file.is_file():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _reason(output: str) -> str:
    """Why patch(1) refused, by the first line of its output that says it."""
    file = "?"
    for line in output.splitlines():
        if match := re.match(r"(?:checking|patching) file '?([^']+?)'?$", line):
            file = match[1]
        elif match := re.match(r"Hunk #(\d+) (?:FAILED|ignored) at (\d+)", line):
            return f"hunk {match[1]} (line {match[2]}) of {file}"
        elif match := re.match(r"\|\+\+\+ \w+/(\S+)", line):
            return f"there is no {match[1]}"
        elif "previously applied" in line:
            return f"{file} has this change already"
        elif line.startswith("patch: **** "):
            return line.removeprefix("patch: **** ").rstrip(".")
    return next(iter(output.splitlines()), "no reason given")


def _put(tree: Path, staged: Path, changed: Mapping[str, int]) -> None:
    saved, journal = tree.parent / "saved", tree.parent / "journal.json"
    shutil.rmtree(saved, ignore_errors=True)
    for name in changed:
        _copy(tree / name, saved / name)
    new = journal.with_suffix(".new")
    with new.open("w") as stream:
        json.dump([[name, (tree / name).exists()] for name in changed], stream)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(journal)
    for name, mtime_ns in changed.items():
        if (staged / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(staged / name, tree / name)
            os.utime(tree / name, ns=(mtime_ns, mtime_ns))
        else:
            (tree / name).unlink()


def _restore(tree: Path) -> None:
    """Undo what the journal says was done; safe to repeat, since it only goes when all is done."""
    saved, journal = tree.parent / "saved", tree.parent / "journal.json"
    if journal.exists():
        for name, existed in json.loads(journal.read_text()):
            file = tree / name
            if existed:
                shutil.copy2(saved / name, file)
                continue
            file.unlink(missing_ok=True)
            for parent in file.relative_to(tree).parents:
                with suppress(OSError):  # not empty: it was there before
                    (tree / parent).rmdir()
        journal.unlink()
    shutil.rmtree(saved, ignore_errors=True)
