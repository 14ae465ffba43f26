# SPDX-License-Identifier: MIT
"""The kernel's source where apt has no package of it: fetched once, checked, kept in the cache.

Debian's package comes through an apt of our own, which checks who signed it; a tarball from
elsewhere must have the SHA-256 that the reader gives. A folder of the cache appears when all of it
is there and checked. What an interruption leaves has another name, and the next fetch removes it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from contended.errors import ContendedError, UsageError
from contended.kernel import aptroot, store

BYTES = 400_000_000
"""What fetching takes on the disk: the archive, what is in it, and lists; measured 0.35 GB."""

TIMEOUT_S = 60.0
"""How long a server may say nothing."""

_Say = Callable[[str], None]


def fetched() -> Path | None:
    """The tarball that was fetched last, if there is one."""
    try:
        found = [file for file in _place().glob("*/*.tar.*") if file.parent.name[0] != "."]
        return max(found, key=lambda file: file.parent.stat().st_mtime_ns, default=None)
    except OSError:
        return None


def origin(tarball: Path) -> dict[str, str]:
    """Where a fetched tarball came from; empty if it was not fetched."""
    note = tarball.parent / "origin.json"
    if tarball.parent.parent != _place() or not note.is_file():
        return {}
    value: dict[str, str] = json.loads(note.read_text())
    return value


def forget(tarball: Path) -> None:
    """Remove a fetched tarball that is of no use."""
    if tarball.parent.parent == _place():
        shutil.rmtree(tarball.parent, ignore_errors=True)


def check(address: str | None, sha256: str | None) -> None:
    """See that a call makes sense, before anything is done.

    Args:
        address: Of a tarball; None: Debian's package is meant.
        sha256: What the tarball must have.

    Raises:
        UsageError: it does not.
        ContendedError: Debian's package is meant and this system has no apt.
    """
    if (address is None) != (sha256 is None):
        raise UsageError("--url and --sha256 belong together: a tarball is checked, or not used")
    if address is None or sha256 is None:
        aptroot.check()
        return
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"--sha256 {sha256!r}: a SHA-256 has 64 digits, 0-9 and a-f")
    if urllib.parse.urlsplit(address).scheme not in ("http", "https", "ftp", "file"):
        raise UsageError(f"--url {address!r}: it must begin with https://, http://, ftp or file://")


def debian(package: str, upstream: str, say: _Say) -> Path:
    """Debian's package with the kernel's source.

    Args:
        package: Its name; a tarball in /usr/src is what is wanted of it.
        upstream: The version to take if the mirror has several.
        say: Told what is fetched, and from where.

    Returns:
        The tarball, in the cache.

    Raises:
        ContendedError: there is no apt, no mirror can be reached, a signature is wrong, or the disk
            is full.
    """
    aptroot.check()
    tried: list[str] = []
    for mirror in aptroot.mirrors():
        try:
            with _making(_place() / package, say) as work:
                if work:
                    _from_mirror(mirror, package, upstream, work, say)
            return _tarball(_place() / package)
        except aptroot.AptError as error:
            tried.append(str(error))
    raise ContendedError(
        f"cannot get {package}: {'; '.join(tried)}; another way: contended kernel source "
        "--url URL --sha256 HEX, or --source TARBALL|DIR"
    )


def _from_mirror(
    mirror: aptroot.Mirror, package: str, upstream: str, work: Path, say: _Say
) -> None:
    scratch = work / "apt"
    scratch.mkdir()
    root = aptroot.Root(scratch, mirror)
    root.update()
    archive = root.look_up(package, upstream)
    say(f"getting {package} {archive.version} ({archive.size / 1e6:.0f} MB) from {mirror}")
    files = root.download(package, archive.version)
    tarball = next(iter(sorted(files.glob("usr/src/*.tar.*"))), None)
    if tarball is None:
        raise ContendedError(f"{package} {archive.version} holds no tarball in /usr/src")
    tarball.rename(work / tarball.name)
    shutil.rmtree(scratch)
    _note(
        work, package=package, version=archive.version, url=archive.address, sha256=archive.sha256
    )


def url(address: str, sha256: str, say: _Say) -> Path:
    """A tarball from anywhere.

    Args:
        address: Its URL.
        sha256: What it must have.
        say: Told what is fetched.

    Returns:
        The tarball, in the cache.

    Raises:
        UsageError: the call makes no sense.
        ContendedError: it cannot be fetched, has another SHA-256, or the disk is full.
    """
    check(address, sha256)
    sha256 = sha256.lower()
    home = _place() / f"sha256-{sha256[:32]}"
    with _making(home, say) as work:
        if work is None:
            home.touch()  # now the one that was asked for last
            return _tarball(home)
        name = Path(urllib.parse.urlsplit(address).path).name
        name = name if re.search(r"\.tar\.\w+$", name) else "linux.tar.xz"
        shown = re.sub(r"//[^/@]*@", "//", address)
        say(f"getting {shown}")
        seen = _download(address, shown, work / name)
        if seen != sha256:
            raise ContendedError(
                f"{shown} has SHA-256 {seen}, not the {sha256} that was given: nothing was kept"
            )
        _note(work, url=shown, sha256=sha256)
    return _tarball(home)


def _download(address: str, shown: str, file: Path) -> str:
    digest = hashlib.sha256()
    try:
        answer = urllib.request.urlopen(address, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise ContendedError(f"cannot get {shown}: {error}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ContendedError(f"cannot get {shown}: {reason}") from error
    with answer, file.open("wb") as stream:
        length, left = answer.length, answer.length
        while True:
            try:
                chunk = answer.read(1 << 20)
            except (OSError, http.client.HTTPException) as error:
                raise ContendedError(f"cannot get {shown}: {error}") from error
            if not chunk:
                break
            left = left - len(chunk) if left is not None else None
            digest.update(chunk)
            stream.write(chunk)
    if left:
        raise ContendedError(f"cannot get {shown}: it ended {left} bytes short of {length}")
    return digest.hexdigest()


@contextmanager
def _making(home: Path, say: _Say) -> Iterator[Path | None]:
    """As `store.making`; what the disk refuses is said in a line."""
    try:
        with store.making(home, say) as work:
            yield work
    except OSError as error:
        raise ContendedError(
            f"cannot keep the kernel's source in {home.parent}: {error.strerror}: {store.ROOM}"
        ) from error


def _place() -> Path:
    return store.cache() / "fetched"


def _tarball(home: Path) -> Path:
    return next(iter(sorted(home.glob("*.tar.*"))))


def _note(work: Path, **origin: str) -> None:
    (work / "origin.json").write_text(json.dumps(origin, indent=2) + "\n")
