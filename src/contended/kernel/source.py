# SPDX-License-Identifier: MIT
"""The kernel's source: found, unpacked once into the cache, patched for as long as a build takes.

The unpacked tree is shared by all variants and configurations. Patches are applied to copies of the
files they touch; only when all have applied are the results put into the tree, after the originals
were set aside and a journal was written. Whoever locks the tree next, even after a kill, finds the
journal and puts everything back, times of modification included: what was not touched is then not
compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from contended.errors import ContendedError, UsageError
from contended.kernel import fetch, mirror, patching, store
from contended.kernel.patching import TESTED

PACKAGE = "linux-source-6.1"

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
        given: The tarball or folder that it was made from; the same content is the same source.
    """

    tree: Path
    version: str
    digest: str
    given: Path = field(default=Path(), compare=False)

    @property
    def key(self) -> str:
        """A name for this tree that files and folders made from it can have."""
        return self.tree.parent.name


class NoSource(ContendedError):
    """Nothing was given, and there is nothing on this machine."""


def find(given: Path | None = None, say: Callable[[str], None] | None = None) -> Source:
    """The kernel's source, unpacked (or copied) into the cache if it is not there yet.

    Args:
        given: A tarball or a folder; None: what `CONTENDED_KERNEL_SOURCE` names, or else Debian's
            package, or else what `contended kernel source` has fetched. A folder is never written
            to.
        say: Called with a line before something that takes a while.

    Raises:
        UsageError: what was given is no kernel source.
        NoSource: nothing was given, and nothing of this is there.
        ContendedError: the disk is full.
    """
    say = say or (lambda _: None)
    if given is None and os.environ.get("CONTENDED_KERNEL_SOURCE"):
        given = Path(os.environ["CONTENDED_KERNEL_SOURCE"])
    if given is None:
        given = packaged()
    if given is None:
        raise NoSource(
            "no kernel source: contended kernel source gets Debian's with apt-get, no root needed; "
            "or name a tarball or folder with --source or CONTENDED_KERNEL_SOURCE"
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


def obtain(given: Path | None = None, say: Callable[[str], None] | None = None) -> Source:
    """As `find`; where nothing is found, Debian's package is fetched.

    Raises:
        UsageError: what was given is no kernel source.
        ContendedError: it cannot be fetched, or the disk is full.
    """
    try:
        return find(given, say)
    except NoSource:
        return get(say)


def get(
    say: Callable[[str], None] | None = None, url: str | None = None, sha256: str | None = None
) -> Source:
    """Fetch the kernel's source into the cache and unpack it.

    Args:
        say: Called with a line before something that takes a while.
        url: Of a tarball; None: Debian's package, by apt-get.
        sha256: Of the tarball at `url`, which must be given with it.

    Raises:
        UsageError: what is at `url` is no kernel source.
        ContendedError: it cannot be fetched, is not what it should be, or the disk is full.
    """
    say = say or (lambda _: None)
    fetch.check(url, sha256)
    store.need_space(
        store.cache(), fetch.BYTES + TREE_BYTES, "fetching and unpacking the kernel's source"
    )
    if url is None or sha256 is None:
        tarball = fetch.debian(PACKAGE, TESTED, say)
    else:
        tarball = fetch.url(url, sha256, say)
    try:
        return find(tarball, say)
    except UsageError:
        fetch.forget(tarball)
        raise


def packaged() -> Path | None:
    """The tarball of Debian's package: where apt put it, or else what was fetched."""
    return installed() or fetch.fetched()


def installed() -> Path | None:
    """The tarball of Debian's package, wherever it was installed."""
    with suppress(OSError):
        listed = subprocess.run(
            ["dpkg", "-L", PACKAGE], capture_output=True, text=True, check=False
        )
        for line in listed.stdout.splitlines():
            if re.search(r"\.tar\.\w+$", line) and Path(line).is_file():
                return Path(line)
    return next(iter(sorted(Path("/usr/src").glob(f"{PACKAGE}.tar.*"))), None)


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
    home = store.cache() / "source" / digest
    if not home.exists():
        with store.making(home, say) as work:
            if work:
                store.need_space(home, TREE_BYTES, "unpacking the kernel's source")
                say(f"unpacking {tarball.name}")
                _untar(tarball, work / "tree")
                _version(work / "tree", tarball)
    return Source(home / "tree", _version(home / "tree", tarball), digest, tarball)


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
        command, env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        said = next(iter(done.stderr.splitlines()), "no reason given")
        if store.is_full(done.stderr):
            raise ContendedError(f"the disk of {tree.parent.parent} is full: {store.ROOM}")
        raise UsageError(f"{tarball} cannot be unpacked: {said}")


def _copied(folder: Path, say: Callable[[str], None]) -> Source:
    version = _version(folder, folder)
    digest = mirror.digest(folder, _OUTSIDE)
    home = store.cache() / "source" / hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    mark = home / "copied"
    source = Source(home / "tree", version, digest, folder)
    if mark.is_file() and mark.read_text() == digest:
        return source
    if not home.exists():
        with store.making(home, say) as work:
            if work:
                store.need_space(home, TREE_BYTES, "copying the kernel's source")
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
def lock(source: Source, say: Callable[[str], None] | None = None) -> Iterator[int]:
    """Have the tree to oneself, pristine.

    Yields:
        The lock's descriptor: a process that inherits it holds the lock until it ends as well.
    """
    with store.locked(source.tree.parent / "lock", say or (lambda _: None)) as descriptor:
        for left in source.tree.parent.glob(".patching-*"):
            shutil.rmtree(left, ignore_errors=True)
        patching.restore(source.tree)
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
        changed = patching.stage(tree, source.version, patches, Path(scratch))
        try:
            if changed:
                patching.put(tree, Path(scratch), changed, mtime_ns or time.time_ns())
            yield changed
        finally:
            patching.restore(tree)
