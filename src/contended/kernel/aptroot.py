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
from collections import Counter
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
    """Where a Debian archive is, and its security updates: addresses without `dists`."""

    main: str
    security: str

    def __str__(self) -> str:
        return re.sub(r"//[^/@]*@", "//", self.main)


PUBLIC = Mirror("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")


class AptError(ContendedError):
    """An apt of our own did not do what it was asked for; another mirror may."""


def check() -> None:
    """See that this system has apt; raises ContendedError if not."""
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            raise ContendedError(
                f"there is no {program} here to get Debian's kernel source with: give the address "
                "of a kernel's tarball, contended kernel source --url URL --sha256 HEX, or one "
                "that you have with --source"
            )


def get(
    home: Path, mirror: Mirror, package: str, upstream: str, say: store.Say
) -> tuple[Path, dict[str, str]]:
    """Get a package, checked against lists that Debian signed, and unpack it.

    Of several versions that of `upstream` is taken, else the newest. Gives the folder with the
    package's files, in `home`, which must be new, and the package's name, version, url and sha256.
    Raises AptError if this mirror does not have it so, ContendedError if another would not help.
    """
    _prepare(home, mirror)

    def apt(program: str, *arguments: str) -> str:
        return _run([program, "-qq", "-c", str(home / "apt.conf"), *arguments], home, str(mirror))

    apt("apt-get", "update")
    versions = re.findall(
        r"^ *\S+ \| *(\S+) \|.* Packages$", apt("apt-cache", "madison", package), re.M
    )
    if not versions:
        raise AptError(f"{mirror} has no {package} in {RELEASE}")
    version = next((v for v in versions if v.startswith(f"{upstream}-")), versions[0])
    said = apt("apt-get", "download", "--print-uris", f"{package}={version}")
    found = re.search(r"^'([^']+)' \S+ (\d+) SHA256:([0-9a-f]{64})$", said, re.M)
    if not found:
        raise AptError(f"apt-get does not say where {package} {version} is: {_first(said)}")
    say(f"getting {package} {version} ({int(found[2]) / 1e6:.0f} MB) from {mirror}")
    apt("apt-get", "download", f"{package}={version}")
    files = _unpack(home, f"{package}_*.deb", home / "unpacked", str(mirror))
    return files, {"package": package, "version": version, "url": found[1], "sha256": found[3]}


def _prepare(home: Path, mirror: Mirror) -> None:
    for folder in ("state/lists/partial", "cache/archives/partial", "trusted"):
        (home / folder).mkdir(parents=True)
    if '"' in str(home):
        raise ContendedError(f'apt takes no " in a path, as in {home}: set CONTENDED_CACHE')
    (home / "state" / "status").touch()
    (home / "apt.conf").write_text(_CONFIG.replace("{home}", str(home)))
    suites = {"": mirror.main, "-updates": mirror.main, "-security": mirror.security}
    (home / "sources.list").write_text(
        "".join(f"deb [target=Packages] {at} {RELEASE}{kind} main\n" for kind, at in suites.items())
    )
    for number, key in enumerate(_keys(home)):
        kind = ".asc" if key.suffix == ".asc" else ".gpg"
        shutil.copyfile(key, home / "trusted" / f"{number}{kind}")


def _unpack(place: Path, pattern: str, target: Path, source: str) -> Path:
    for deb in place.glob(pattern):
        _run(["dpkg-deb", "-x", str(deb), str(target)], place, source)
        deb.unlink()
    return target


def mirrors() -> list[Mirror]:
    """Where to look, in this order: the mirror that this system's own apt uses, the public one."""
    own = _own_mirror()
    return [PUBLIC] if own in (None, PUBLIC) else [own, PUBLIC]


def _own_mirror() -> Mirror | None:
    """The mirror of a Debian system's own sources; security updates may come from elsewhere."""
    try:
        about = Path("/etc/os-release").read_text(encoding="utf-8")
        # Says what update would fetch, and fetches nothing; works before the first update too.
        said = _run(["apt-get", "--print-uris", "update"], Path("/"), "the system's sources")
    except (OSError, ContendedError):
        return None
    if "ID=debian" not in about.splitlines():
        return None
    name = re.findall(r'^VERSION_CODENAME="?([^"\n]+)', about, re.M)[:1]
    return _among(said, {*name, RELEASE, "stable", "oldstable", "testing", "unstable", "sid"})


def _among(said: str, releases: set[str]) -> Mirror | None:
    """Which of the addresses that update would fetch are those of Debian's archive."""
    # Who else names suites as Debian does serves fewer of them; the keys have the last word.
    main, security = Counter[str](), Counter[str]()
    for place, suite in re.findall(r"^'(\S+?)/dists/(\S+)/InRelease'", said, re.M):
        release, _, kind = re.sub("/updates$", "-security", suite).partition("-")
        if release in releases:
            (security if kind == "security" else main)[place] += 1
    if not main:
        return None
    return Mirror(main.most_common(1)[0][0], next(iter(security), PUBLIC.security))


def _keys(home: Path) -> list[Path]:
    """The public keys of Debian's archive."""
    if keyring := next((file for file in KEYRINGS if file.is_file()), None):
        return [keyring]
    single = [key for place in SINGLE_KEYS for key in sorted(place.glob(f"*debian*{RELEASE}*"))]
    if single:
        return single
    # The system's own apt knows whom it trusts; Ubuntu, too, has this package.
    scratch, source = home / "keys", "this system's archive"
    scratch.mkdir()
    with suppress(AptError):
        _run(["apt-get", "-qq", "download", KEYS_PACKAGE], scratch, source)
        _unpack(scratch, "*.deb", scratch, source)
    unpacked = (scratch / file.relative_to("/") for file in KEYRINGS)
    if keyring := next((file for file in unpacked if file.is_file()), None):
        return [keyring]
    raise ContendedError(
        "this system has not the keys to check Debian's signature with: "
        f"apt-get update && apt-get install {KEYS_PACKAGE}"
    )


def _run(command: Sequence[str], where: Path, source: str) -> str:
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
    raise AptError(f"{source}: {f'{reason} ({_first(said)})' if reason else _first(said)}")


_REASONS = {
    r"not have a Release file|404 ": f"it does not have {RELEASE}",
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
