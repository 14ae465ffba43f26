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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contended.errors import ContendedError, UsageError
from contended.kernel import aptroot, store

BYTES = 400_000_000
"""What fetching takes on the disk: the archive, what is in it, and lists; measured 0.35 GB."""

TIMEOUT_S = 60.0
"""How long a server may say nothing."""


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
    """See that `url` could be called so or, without an address, that this system has apt.

    Raises UsageError or ContendedError before anything is done.
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


def debian(package: str, upstream: str, say: store.Say) -> Path:
    """The tarball in Debian's package, of the upstream version if the mirror has several.

    Raises ContendedError if no mirror can be reached, a signature is wrong, or the disk is full.
    """
    tried: list[str] = []
    for mirror in aptroot.mirrors():
        try:
            with _making(_place() / package, say) as work:
                if work:
                    scratch = work / "apt"
                    scratch.mkdir()
                    files, about = aptroot.get(scratch, mirror, package, upstream, say)
                    tarball = min(files.glob("usr/src/*.tar.*"), default=None)
                    if tarball is None:
                        what = f"{package} {about['version']}"
                        raise ContendedError(f"{what} holds no tarball in /usr/src")
                    tarball.rename(work / tarball.name)
                    shutil.rmtree(scratch)
                    _note(work, **about)
            return _tarball(_place() / package)
        except aptroot.AptError as error:
            tried.append(str(error))
    raise ContendedError(
        f"cannot get {package}: {'; '.join(tried)}; another way: contended kernel source "
        "--url URL --sha256 HEX, or --source TARBALL|DIR"
    )


def url(address: str, sha256: str, say: store.Say) -> Path:
    """A tarball from anywhere, in the cache; its address and SHA-256 must have passed `check`.

    Raises ContendedError if it cannot be fetched, has another SHA-256, or the disk is full.
    """
    sha256 = sha256.lower()
    home = _place() / f"sha256-{sha256[:32]}"
    with _making(home, say) as work:
        if work is None:
            home.touch()  # now the one that was asked for last
        else:
            name = Path(urllib.parse.urlsplit(address).path).name
            name = name if re.search(r"\.tar\.\w+$", name) else "linux.tar.xz"
            shown = re.sub(r"//[^/@]*@", "//", address)
            say(f"getting {shown}")
            digest = hashlib.sha256()
            with (work / name).open("wb") as stream:
                for chunk in _chunks(address, shown):
                    digest.update(chunk)
                    stream.write(chunk)
            if (seen := digest.hexdigest()) != sha256:
                raise ContendedError(
                    f"{shown} has SHA-256 {seen}, not the {sha256} that was given: nothing was kept"
                )
            _note(work, url=shown, sha256=sha256)
    return _tarball(home)


def _chunks(address: str, shown: str) -> Iterator[bytes]:
    """What is at an address; its errors are the network's, and not the disk's."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            length = left = answer.length
            while chunk := answer.read(1 << 20):
                left = left and left - len(chunk)
                yield chunk
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason: object = getattr(error, "reason", error)
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            reason = error
        raise ContendedError(f"cannot get {shown}: {reason}") from error
    if left:
        raise ContendedError(f"cannot get {shown}: it ended {left} bytes short of {length}")


@contextmanager
def _making(home: Path, say: store.Say) -> Iterator[Path | None]:
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
    return min(home.glob("*.tar.*"))


def _note(work: Path, **origin: str) -> None:
    (work / "origin.json").write_text(json.dumps(origin, indent=2) + "\n")
