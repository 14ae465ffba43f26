# SPDX-License-Identifier: MIT
"""An apt of our own: packages of another Debian release, without root and beside the system's apt.

It has its own sources, keys, lists and archives in a scratch folder. Of the system's configuration
it keeps what says how the network is reached (proxies, timeouts, authentication), and it drops what
would act on the system (hooks) or choose among the system's releases (pins, a default release).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from contended import child
from contended.errors import ContendedError
from contended.kernel import store

RELEASE = "bookworm"
"""The release of Debian that has the kernel's source as a package."""

KEYRINGS = tuple(
    Path("/usr/share/keyrings") / f"debian-archive-keyring.{kind}" for kind in ("gpg", "pgp")
)
SINGLE_KEYS = tuple(Path(place) for place in ("/usr/share/keyrings", "/etc/apt/trusted.gpg.d"))
KEYS_PACKAGE = "debian-archive-keyring"

_CONFIG = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear AptCli::Hooks;
#clear APT::Architectures;
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Default-Release "";
APT::Get::AllowUnauthenticated "false";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::Retries "1";
Acquire::ftp::Timeout "30";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
Dir::Cache "{home}/cache";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "{home}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "{home}/trusted";
Dir::State "{home}/state";
Dir::State::status "{home}/state/status";
"""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where a Debian archive is.

    Attributes:
        main: The archive's address, without `dists`.
        security: That of the security updates.
    """

    main: str
    security: str

    def __str__(self) -> str:
        return re.sub(r"//[^/@]*@", "//", self.main)


PUBLIC = Mirror("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")


@dataclass(frozen=True, slots=True)
class Archive:
    """A package as a mirror offers it: version, address, size in bytes, SHA-256."""

    version: str
    address: str
    size: int
    sha256: str


class AptError(ContendedError):
    """An apt of our own did not do what it was asked for."""


def check() -> None:
    """See that this system has apt.

    Raises:
        ContendedError: it has not.
    """
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            raise ContendedError(
                f"there is no {program} here to get Debian's kernel source with: give the address "
                "of a kernel's tarball, contended kernel source --url URL --sha256 HEX, or one "
                "that you have with --source"
            )


class Root:
    """An apt whose only source is one mirror of one release.

    Args:
        home: A new folder, for it alone.
        mirror: The archive.
    """

    def __init__(self, home: Path, mirror: Mirror) -> None:
        self._home, self._mirror = home, mirror
        for folder in ("state/lists/partial", "cache/archives/partial", "trusted"):
            (home / folder).mkdir(parents=True)
        if '"' in str(home):
            raise ContendedError(f'apt takes no " in a path, as in {home}: set CONTENDED_CACHE')
        (home / "state" / "status").touch()
        (home / "apt.conf").write_text(_CONFIG.replace("{home}", str(home)))
        places = (
            (mirror.main, RELEASE),
            (mirror.main, f"{RELEASE}-updates"),
            (mirror.security, f"{RELEASE}-security"),
        )
        lines = [f"deb [target=Packages] {place} {suite} main\n" for place, suite in places]
        (home / "sources.list").write_text("".join(lines))
        for number, key in enumerate(_keys(home)):
            kind = ".asc" if key.suffix == ".asc" else ".gpg"
            shutil.copyfile(key, home / "trusted" / f"{number}{kind}")

    def _apt(self, program: str, *arguments: str) -> str:
        command = [program, "-qq", "-c", str(self._home / "apt.conf"), *arguments]
        return _run(command, self._home, str(self._mirror))

    def update(self) -> None:
        """Get the lists of packages, and check their signatures.

        Raises:
            AptError: a list cannot be had, or is not signed by Debian.
        """
        self._apt("apt-get", "update")

    def look_up(self, package: str, upstream: str) -> Archive:
        """What the mirror has of a package.

        Args:
            package: Its name.
            upstream: Preferred: Debian's version of it that begins with this; else the newest.

        Raises:
            AptError: the mirror has no such package.
        """
        listed = self._apt("apt-cache", "madison", package)
        versions = re.findall(r"^ *\S+ \| *(\S+) \|.* Packages$", listed, re.M)
        if not versions:
            raise AptError(f"{self._mirror} has no {package} in {RELEASE}")
        version = next((v for v in versions if v.startswith(f"{upstream}-")), versions[0])
        said = self._apt("apt-get", "download", "--print-uris", f"{package}={version}")
        found = re.search(r"^'([^']+)' \S+ (\d+) SHA256:([0-9a-f]{64})$", said, re.M)
        if not found:
            raise AptError(f"apt-get does not say where {package} {version} is: {_first(said)}")
        return Archive(version, found[1], int(found[2]), found[3])

    def download(self, package: str, version: str) -> Path:
        """Get a package, checked against the signed lists, and unpack it.

        Returns:
            The folder with the package's files.

        Raises:
            AptError: it cannot be had or is not the one of the lists, or the disk is full.
        """
        self._apt("apt-get", "download", f"{package}={version}")
        unpacked = self._home / "unpacked"
        for deb in self._home.glob(f"{package}_*.deb"):
            _run(["dpkg-deb", "-x", str(deb), str(unpacked)], self._home, str(self._mirror))
            deb.unlink()
        return unpacked


def mirrors() -> list[Mirror]:
    """Where to look, in this order: the mirror that this system's own apt uses, the public one."""
    own = _own_mirror()
    return [PUBLIC] if own in (None, PUBLIC) else [own, PUBLIC]


def _own_mirror() -> Mirror | None:
    """The mirror of a Debian system's own sources; security updates may come from elsewhere."""
    try:
        about = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
        # Says what update would fetch, and fetches nothing; works before the first update too.
        said = _run(["apt-get", "--print-uris", "update"], Path("/"), "the system's sources")
    except (OSError, ContendedError):
        return None
    if "ID=debian" not in about:
        return None
    name = next(
        (line[17:].strip('"') for line in about if line.startswith("VERSION_CODENAME=")), ""
    )
    return _among(said, {name, RELEASE, "stable", "oldstable", "testing", "unstable", "sid"} - {""})


def _among(said: str, releases: set[str]) -> Mirror | None:
    """Which of the addresses that update would fetch are those of Debian's archive."""
    # Who else names suites as Debian does serves fewer of them; the keys have the last word.
    main: dict[str, int] = defaultdict(int)
    security: dict[str, int] = defaultdict(int)
    for place, suite in re.findall(r"^'(\S+?)/dists/(\S+)/InRelease'", said, re.M):
        release, _, kind = re.sub("/updates$", "-security", suite).partition("-")
        if release in releases:
            (security if kind == "security" else main)[place] += 1
    if not main:
        return None
    most = max(main, key=lambda place: main[place])
    return Mirror(most, next(iter(security), PUBLIC.security))


def _keys(home: Path) -> list[Path]:
    """The public keys of Debian's archive.

    Raises:
        ContendedError: this system has none and its apt gives none.
    """
    if keyring := next((file for file in KEYRINGS if file.is_file()), None):
        return [keyring]
    single = [key for place in SINGLE_KEYS for key in sorted(place.glob(f"*debian*{RELEASE}*"))]
    if single:
        return single
    # The system's own apt knows whom it trusts; Ubuntu, too, has this package.
    scratch = home / "keys"
    scratch.mkdir()
    with suppress(AptError):
        _run(["apt-get", "-qq", "download", KEYS_PACKAGE], scratch, "this system's archive")
        for deb in scratch.glob("*.deb"):
            _run(["dpkg-deb", "-x", str(deb), str(scratch)], scratch, "this system's archive")
    unpacked = (scratch / file.relative_to("/") for file in KEYRINGS)
    if keyring := next((file for file in unpacked if file.is_file()), None):
        return [keyring]
    raise ContendedError(
        "this system has not the keys to check Debian's signature with: "
        f"apt-get update && apt-get install {KEYS_PACKAGE}"
    )


def _run(command: Sequence[str], where: Path, source: str) -> str:
    """Run a program of apt's; it ends with us, however we end.

    Returns:
        Its output.

    Raises:
        AptError: it failed; the reason in its own words.
        ContendedError: the disk is full, which another mirror would not change.
    """
    try:
        done = subprocess.run(
            command,
            cwd=where,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            preexec_fn=functools.partial(child.die_with_parent, signal.SIGTERM),
        )
    except OSError as error:
        raise AptError(f"{command[0]} does not start: {error.strerror}") from error
    if done.returncode:
        said = done.stderr or done.stdout
        if store.is_full(said) or "enough free space" in said:
            raise ContendedError(f"the disk of {where.parent} is full: {store.ROOM}")
        raise AptError(f"{source}: {_reason(said)}")
    return done.stdout


_REASONS = {
    r"not have a Release file|404 ": f"it does not have {RELEASE}",
    r"not signed|NO_PUBKEY|BADSIG|EXPKEYSIG|REVKEYSIG|signature|sqv|cannot be authenticated|"
    r"no longer signed": ("its signature is not one of Debian's keys; nothing was taken from it"),
    r"Hash Sum mismatch|unexpected size": (
        "what it sent is not what its signed list names; try again later, or another mirror"
    ),
    r"resolv|onnect|timed out|Network is unreachable|No route to host": "it cannot be reached",
}


def _reason(said: str) -> str:
    """Why apt failed, in a line."""
    for pattern, reason in _REASONS.items():
        if re.search(pattern, said):
            return f"{reason} ({_first(said)})"
    return _first(said)


def _first(said: str) -> str:
    """The first of apt's errors, else of its warnings, without passwords."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    lines.sort(key=lambda line: (not line.startswith("E:"), not line.startswith("W:")))
    first = re.sub(r"//[^/@\s]*@", "//", lines[0] if lines else "no reason given")
    return re.sub(r"^[EW]: ", "", first)[:200]
