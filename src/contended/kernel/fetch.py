# SPDX-License-Identifier: MIT
"""The kernel's source where apt has no package of it: fetched once, checked, kept in the cache.

Debian's package comes, without root, through an apt of our own with sources, keys and lists in a
scratch folder. Of the system's configuration it keeps what says how the network is reached, and
drops what would act on the system (hooks) or choose among its releases (pins, a default release).
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from contended import child
from contended.errors import ContendedError, UsageError
from contended.kernel import store
from contended.kernel.releases import ALL, BOOK, Release

BYTES = 400_000_000  #: What fetching takes on the disk, with lists; measured 0.35 GB.
TIMEOUT_S = 60.0  #: How long a server may say nothing.
KEYRINGS = tuple(
    Path(f"/usr/share/keyrings/debian-archive-keyring.{kind}") for kind in ("gpg", "pgp")
)
SINGLE_KEYS = (Path("/usr/share/keyrings"), Path("/etc/apt/trusted.gpg.d"))
KEYS_PACKAGE = "debian-archive-keyring"

_CONFIG = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear AptCli::Hooks;
#clear APT::Architectures;
APT { Architecture "amd64"; Architectures { "amd64"; }; Default-Release ""; Sandbox::User "root"; };
APT { Get::AllowUnauthenticated "false"; Update::Error-Mode "any"; };
Acquire { AllowDowngradeToInsecureRepositories "false"; AllowInsecureRepositories "false"; };
Acquire { AllowWeakRepositories "false"; Retries "1"; };
Acquire { ftp::Timeout "30"; http::Timeout "30"; https::Timeout "30"; };
Dir::Etc { preferences "/dev/null"; preferencesparts "/dev/null"; sourceparts "/dev/null"; };
Dir::Etc { sourcelist "{home}/sources.list"; trusted "/dev/null"; trustedparts "{home}/trusted"; };
Dir { Cache "{home}/cache"; State "{home}/state"; State::status "{home}/state/status"; };
"""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where a Debian archive is, and its security updates: addresses without `dists`."""

    main: str
    security: str

    def __str__(self) -> str:
        return re.sub(r"//[^/@]*@", "//", self.main)


PUBLIC = Mirror("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")


class AptError(ContendedError):
    """An apt of our own did not do what it was asked for; another mirror may."""


def fetched(release: Release = BOOK) -> Path | None:
    """The tarball of a release that was fetched last, if there is one."""
    with suppress(OSError):
        tarballs = _place(release).glob("*/*.tar.*")
        found = [file for file in tarballs if file.parent.name[0] != "."]
        return max(found, key=lambda file: file.parent.stat().st_mtime_ns, default=None)
    return None


def origin(tarball: Path) -> dict[str, str]:
    """Where a fetched tarball came from; empty if it was not fetched."""
    note = tarball.parent / "origin.json"
    if tarball.parent.parent not in map(_place, ALL) or not note.is_file():
        return {}
    value: dict[str, str] = json.loads(note.read_text())
    return value


def check(address: str | None, sha256: str | None) -> None:
    """Raise an error if `url` cannot be called so or, without an address, there is no apt."""
    if (address is None) != (sha256 is None):
        raise UsageError("--url and --sha256 belong together: a tarball is checked, or not used")
    if address is None or sha256 is None:
        for program in ("apt-get", "apt-cache", "dpkg-deb"):
            if shutil.which(program) is None:
                raise ContendedError(
                    f"there is no {program} here to get Debian's kernel source with: give the "
                    "address of a kernel's tarball, contended kernel source --url URL --sha256 "
                    "HEX, or one that you have with --source"
                )
        return
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"--sha256 {sha256!r}: a SHA-256 has 64 digits, 0-9 and a-f")
    if urllib.parse.urlsplit(address).scheme not in ("http", "https", "ftp", "file"):
        raise UsageError(f"--url {address!r}: it must begin with https://, http://, ftp or file://")


def debian(release: Release, say: store.Say) -> Path:
    """The tarball in Debian's package, of the tested version if the mirror has several."""
    tried: list[str] = []
    for mirror in mirrors():
        fill = functools.partial(_from_mirror, mirror, release, say)
        try:
            return _kept(release, release.package, say, fill)
        except AptError as error:
            tried.append(str(error))
    of = "" if release.name == BOOK.name else f"--release {release.name} "
    raise ContendedError(
        f"cannot get {release.package}: {'; '.join(tried)}; another way: contended kernel source "
        f"{of}--url URL --sha256 HEX, or --source TARBALL|DIR"
    )


def url(address: str, sha256: str, say: store.Say, release: Release = BOOK) -> Path:
    """A tarball from anywhere, in the cache; its address and SHA-256 must have passed `check`."""
    sha256 = sha256.lower()
    name = Path(urllib.parse.urlsplit(address).path).name
    name = name if re.search(r"\.tar\.\w+$", name) else "linux.tar.xz"
    shown = re.sub(r"//[^/@]*@", "//", address)

    def fill(work: Path) -> dict[str, str]:
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
        return {"url": shown, "sha256": sha256}

    return _kept(release, f"sha256-{sha256[:32]}", say, fill)


def _kept(
    release: Release, name: str, say: store.Say, fill: Callable[[Path], dict[str, str]]
) -> Path:
    """The tarball in a folder of the cache, which is filled now unless it is there already."""
    home = _place(release) / name
    try:
        with store.making(home, say) as work:
            if work:
                (work / "origin.json").write_text(json.dumps(fill(work), indent=2) + "\n")
            else:
                home.touch()  # now the one that was asked for last
    except OSError as error:
        raise ContendedError(
            f"cannot keep the kernel's source in {home.parent}: {error.strerror}: {store.ROOM}"
        ) from error
    return min(home.glob("*.tar.*"))


def _place(release: Release) -> Path:
    # what the book needs is found without a look at the others
    return store.cache() / ("fetched" if release.name == BOOK.name else f"fetched-{release.name}")


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


def _from_mirror(mirror: Mirror, release: Release, say: store.Say, work: Path) -> dict[str, str]:
    """Get a package, checked against lists that Debian signed, and leave its tarball in `work`."""
    home, package = work / "apt", release.package
    for folder in ("state/lists/partial", "cache/archives/partial", "trusted"):
        (home / folder).mkdir(parents=True)
    if '"' in str(home):
        raise ContendedError(f'apt takes no " in a path, as in {home}: set CONTENDED_CACHE')
    (home / "state" / "status").touch()
    (home / "apt.conf").write_text(_CONFIG.replace("{home}", str(home)))
    places = {"-security": mirror.security}
    suites = [(places.get(kind, mirror.main), release.debian + kind) for kind in release.kinds]
    (home / "sources.list").write_text(
        "".join(f"deb [target=Packages] {place} {suite} main\n" for place, suite in suites)
    )
    for number, key in enumerate(_keys(home, release)):
        kind = ".asc" if key.suffix == ".asc" else ".gpg"
        shutil.copyfile(key, home / "trusted" / f"{number}{kind}")

    def apt(program: str, *arguments: str) -> str:
        command = [program, "-qq", "-c", str(home / "apt.conf"), *arguments]
        return _run(command, home, str(mirror), release.debian)

    apt("apt-get", "update")
    listed = apt("apt-cache", "madison", package)
    versions = re.findall(r"^ *\S+ \| *(\S+) \|.* Packages$", listed, re.M)
    if not versions:
        raise AptError(f"{mirror} has no {package} in {release.debian}")
    version = next(
        (v for v in versions if re.match(rf"{re.escape(release.tested)}[-+~]", v)), versions[0]
    )
    said = apt("apt-get", "download", "--print-uris", f"{package}={version}")
    found = re.search(r"^'([^']+)' \S+ (\d+) SHA256:([0-9a-f]{64})$", said, re.M)
    if not found:
        raise AptError(f"apt-get does not say where {package} {version} is: {_first(said)}")
    say(f"getting {package} {version} ({int(found[2]) / 1e6:.0f} MB) from {mirror}")
    apt("apt-get", "download", f"{package}={version}")
    _unpack(home, f"{package}_*.deb", str(mirror))
    tarball = min(home.glob("usr/src/*.tar.*"), default=None)
    if tarball is None:
        raise ContendedError(f"{package} {version} holds no tarball in /usr/src")
    tarball.rename(work / tarball.name)
    shutil.rmtree(home)
    return {"package": package, "version": version, "url": found[1], "sha256": found[3]}


def _unpack(home: Path, pattern: str, source: str) -> None:
    for deb in home.glob(pattern):
        _run(["dpkg-deb", "-x", str(deb), str(home)], home, source)
        deb.unlink()


def mirrors() -> list[Mirror]:
    """Where to look, in this order: the mirror that a Debian system's own apt uses, the public one.

    Security updates may come from elsewhere.
    """
    found = [PUBLIC]
    with suppress(OSError, ContendedError):
        about = Path("/etc/os-release").read_text(encoding="utf-8")
        # Says what update would fetch, and fetches nothing; works before the first update too.
        said = _run(["apt-get", "--print-uris", "update"], Path("/"), "the system's sources")
        name = re.findall(r'^VERSION_CODENAME="?([^"\n]+)', about, re.M)[:1]
        names = {*name, BOOK.debian, "stable", "oldstable", "testing", "unstable", "sid"}
        own = _among(said, names) if "ID=debian" in about.splitlines() else None
        if own and own != PUBLIC:
            found.insert(0, own)
    return found


def _among(said: str, releases: set[str]) -> Mirror | None:
    # Who else names suites as Debian does serves fewer of them; the keys have the last word.
    main, security = Counter[str](), Counter[str]()
    for place, suite in re.findall(r"^'(\S+?)/dists/(\S+)/InRelease'", said, re.M):
        release, _, kind = re.sub("/updates$", "-security", suite).partition("-")
        if release in releases:
            (security if kind == "security" else main)[place] += 1
    if not main:
        return None
    return Mirror(main.most_common(1)[0][0], next(iter(security), PUBLIC.security))


def _keys(home: Path, release: Release) -> list[Path]:
    found = [file for file in KEYRINGS if file.is_file()][:1]
    # Of what has no keys of its own, those of any of Debian's releases.
    names = f"*debian*{release.debian if release.kinds[1:] else 'archive'}*"
    found = found or [key for place in SINGLE_KEYS for key in sorted(place.glob(names))]
    if not found:
        # The system's own apt knows whom it trusts; Ubuntu, too, has this package.
        scratch, source = home / "keys", "this system's archive"
        scratch.mkdir()
        with suppress(AptError):
            _run(["apt-get", "-qq", "download", KEYS_PACKAGE], scratch, source)
            _unpack(scratch, "*.deb", source)
        unpacked = (scratch / file.relative_to("/") for file in KEYRINGS)
        found = [file for file in unpacked if file.is_file()][:1]
    if not found:
        raise ContendedError(
            "this system has not the keys to check Debian's signature with: "
            f"apt-get update && apt-get install {KEYS_PACKAGE}"
        )
    return found


def _run(command: Sequence[str], where: Path, source: str, suite: str = BOOK.debian) -> str:
    """The output of a program of apt's; it ends with us, however we end."""
    try:
        done = store.ask(
            command,
            cwd=where,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            preexec_fn=functools.partial(child.die_with_parent, signal.SIGTERM),
        )
    except OSError as error:
        raise AptError(f"{command[0]} does not start: {error.strerror}") from error
    if not done.returncode:
        return done.stdout
    said = done.stderr or done.stdout
    if store.is_full(said) or "enough free space" in said:  # of which another mirror is no cure
        raise ContendedError(f"the disk of {where.parent} is full: {store.ROOM}")
    reason = next((why for sign, why in _REASONS.items() if re.search(sign, said)), "")
    raise AptError(
        f"{source}: {f'{reason.format(suite)} ({_first(said)})' if reason else _first(said)}"
    )


_REASONS = {
    r"not have a Release file|404 ": "it does not have {}",
    r"not signed|NO_PUBKEY|BADSIG|EXPKEYSIG|REVKEYSIG|signature|sqv|cannot be authenticated|"
    r"no longer signed": "its signature is not one of Debian's keys; nothing was taken from it",
    r"Hash Sum mismatch|unexpected size": (
        "what it sent is not what its signed list names; try again later, or another mirror"
    ),
    r"resolv|onnect|timed out|Network is unreachable|No route to host": "it cannot be reached",
}


def _first(said: str) -> str:
    """The first of apt's errors, else of its warnings, without passwords."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    lines.sort(key=lambda line: (not line.startswith("E:"), not line.startswith("W:")))
    first = re.sub(r"//[^/@\s]*@", "//", lines[0] if lines else "no reason given")
    return re.sub(r"^[EW]: ", "", first)[:200]
