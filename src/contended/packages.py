# SPDX-License-Identifier: MIT
"""The system packages that the project uses, and what this system can install of them.

The only place that names system packages. Standard library only, and no syntax newer than Python
3.8, so that it runs before anything is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def cache_directory() -> Path:
    """CONTENDED_CACHE, else contended/ under XDG_CACHE_HOME, else under ~/.cache."""
    if os.environ.get("CONTENDED_CACHE"):
        return Path(os.environ["CONTENDED_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "contended"


@dataclass(frozen=True)
class Package:
    """A Debian (and Ubuntu) package, and how to see that what it brings is there.

    One of `command`, `file` (of several, any will do), `module` and `header` is looked for, not
    dpkg's word: it may come from elsewhere. Files in the cache that match `fetched` do as well.
    Without package lists, only its `releases` ("debian 12"), if any, count as having it.
    """

    name: str
    purpose: str
    needed_for: tuple[str, ...]
    required: bool
    command: str = ""
    file: str = ""
    module: str = ""
    header: str = ""
    fetched: str = ""
    others: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    elsewhere: str = ""

    def there(self) -> bool:
        """Whether this machine has what the package brings."""
        if self.command:
            return any(shutil.which(command) for command in self.command.split())
        if self.file:
            files = map(Path, self.file.split())
            kept = cache_directory().glob(self.fetched) if self.fetched else ()
            return any(file.exists() for file in files) or any(kept)
        if self.header:  # the compiler is asked, since it alone knows where it looks
            compiler = (os.environ.get("CC") or "gcc").split()
            done = _run([*compiler, "-E", "-x", "c", "-"], f"#include <{self.header}>\n")
            return done is not None and done.returncode == 0
        return importlib.util.find_spec(self.module) is not None


TARGETS = ("book", "test", "lab", "kernels", "labs")
"""What the packages are for: targets of the Makefile."""

PACKAGES = (
    Package("gcc", "compiles the models when a chapter runs them", TARGETS, True, command="cc"),
    Package("libc6-dev", "the C library's headers, for the models", TARGETS, True,
            file="/usr/include/stdio.h"),
    Package("make", "the front door: make book, make test, ...", TARGETS, True, command="make"),
    Package("ca-certificates", "lets pip check whom it downloads from", ("book", "test", "lab"),
            True, file="/etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt"),
    Package("chromium", "opens the built pages as a reader does (without it: skipped)", ("test",),
            False, command="chromium chromium-browser", others=("chromium-browser",),
            releases=("debian",),
            elsewhere="Ubuntu's chromium-browser only fetches a snap: snap install chromium"),
    Package("gnupg", "signs a toy archive for the tests (without it: skipped)", ("test",), False,
            command="gpg"),
    Package("git", "records the commit beside each measurement", ("book", "test"), False,
            command="git"),
    Package("liburcu-dev",
            "RCU outside of the kernel, for the chapter on umount (without it: a recorded run)",
            ("book", "test", "lab"), False, header="urcu/urcu-qsbr.h"),
    Package("python3-venv", "makes .venv (without it tools/venv.sh fetches pip itself)",
            ("book", "test", "lab"), False, module="ensurepip"),
    Package("bc", "computes constants when a kernel is built", ("kernels",), True, command="bc"),
    Package("bison", "parsers for the kernel's tools", ("kernels",), True, command="bison"),
    Package("flex", "scanners for the kernel's tools", ("kernels",), True, command="flex"),
    Package("libelf-dev", "lets objtool read the kernel's objects", ("kernels",), True,
            header="gelf.h"),
    Package("patch", "applies a case's patches to the kernel's source", ("kernels",), True,
            command="patch"),
    Package("perl", "runs checkpatch and the kernel's own scripts", ("kernels",), True,
            command="perl"),
    Package("xz-utils", "unpacks the kernel's source", ("kernels",), True, command="xz"),
    Package("linux-source-6.1", "Debian's kernel source (without it: contended kernel source)",
            ("test", "kernels"), False, file="/usr/src/linux-source-6.1.tar.xz",
            fetched="kernel/fetched/*/*.tar.*", releases=("debian 12",),
            elsewhere="make kernels gets it, and so does .venv/bin/contended kernel source"),
    Package("qemu-system-x86", "boots the kernels (without it: recorded runs)",
            ("book", "test", "kernels"), False, command="qemu-system-x86_64"),
    Package("qemu-user",
            "runs the models under the coherence profiler (Debian 13's cannot; without it: kernels "
            "only)", ("test",), False, command="qemu-x86_64"),
    Package("gcc-aarch64-linux-gnu", "compiles the models for arm64 (without it: skipped)",
            ("test",), False, command="aarch64-linux-gnu-gcc"),
    Package("libc6-dev-arm64-cross", "the C library for arm64 (without it: skipped)", ("test",),
            False, file="/usr/aarch64-linux-gnu/lib/libc.a",
            elsewhere="only for the models' test on arm64"),
    Package("bubblewrap", "runs submissions in a sandbox (without it: no grading)",
            ("test", "labs"), False, command="bwrap"),
    Package("busybox-static", "the shell in a kernel (without it: no shell there)", ("kernels",),
            False, file="/bin/busybox"),
    Package("e2fsprogs", "makes a disk's file system for a kernel (without it: no such run)",
            ("test", "kernels"), False, file="/usr/sbin/mkfs.ext4"),
    Package("bpftrace", "runs the field guide's commands in a kernel (without it: skipped)",
            ("test",), False, command="bpftrace"),
    Package("dwarves", "describes a kernel's types, for bpftrace and pahole (without it: skipped)",
            ("test",), False, command="pahole"),
    Package("linux-perf", "runs the field guide's commands in a kernel (without it: skipped)",
            ("test",), False, command="perf", releases=("debian",),
            elsewhere="Ubuntu has one for each kernel: apt-get install linux-tools-generic"),
)  # fmt: skip

_SAME = ["bc", "bison", "bubblewrap", "ca-certificates", "chromium", "flex", "gcc", "git", "make"]
_SAME += ["patch", "perl", "qemu-user", "bpftrace", "e2fsprogs"]
ELSEWHERE = {
    "dnf": dict.fromkeys(_SAME) | {
        "libc6-dev": "glibc-devel", "gnupg": "gnupg2", "liburcu-dev": "userspace-rcu-devel",
        "python3-venv": "python3-libs", "libelf-dev": "elfutils-libelf-devel", "xz-utils": "xz",
        "qemu-system-x86": "qemu-system-x86-core", "busybox-static": "busybox",
        "gcc-aarch64-linux-gnu": None, "dwarves": None, "linux-perf": "perf",
    },
    "pacman": dict.fromkeys(_SAME) | {
        "libc6-dev": "glibc", "gnupg": "gnupg", "liburcu-dev": "liburcu", "python3-venv": "python",
        "libelf-dev": "libelf", "xz-utils": "xz", "qemu-system-x86": "qemu-system-x86",
        "busybox-static": "busybox", "gcc-aarch64-linux-gnu": "aarch64-linux-gnu-gcc",
        "libc6-dev-arm64-cross": "aarch64-linux-gnu-glibc", "dwarves": "pahole",
        "linux-perf": "perf",
    },
}  # fmt: skip
"""By package manager, what Fedora and Arch call Debian's packages; None: the same."""
_INSTALL = {"dnf": "dnf install", "pacman": "pacman -S --needed"}


def _run(command: list[str], given: str = "") -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False,
                              timeout=60, env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


@dataclass(frozen=True)
class System:
    """A system ("debian 12", "Debian GNU/Linux 12 (bookworm)"), and what `apt`, if any, says there.

    It is `listed` if there are package lists; `versions` are of what can be installed. Without apt
    `manager` is the package manager, if it is one of `ELSEWHERE`.
    """

    release: str
    title: str
    apt: bool
    listed: bool
    versions: dict[str, str]
    manager: str = ""

    def name(self, package: Package) -> str:
        """The name under which a package can be installed here; empty if it cannot."""
        if not self.apt:
            known = ELSEWHERE.get(self.manager, {})
            return (known[package.name] or package.name) if package.name in known else ""
        for name in (package.name, *package.others):
            # Ubuntu's chromium-browser holds nothing: it has snapd fetch the browser.
            if "snap" not in self.versions.get(name, "snap"):
                return name
        releases = tuple(f"{release} " for release in package.releases) or ""
        has = f"{self.release} ".startswith(releases)
        return package.name if has and not self.listed else ""


@functools.lru_cache
def system() -> System:
    """Ask apt, once; takes half a second."""
    file = Path("/etc/os-release")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    about = dict(re.findall(r'^(\w+)="?([^"\n]*)', text, re.M))
    release = f"{about.get('ID', 'unknown')} {about.get('VERSION_ID', '')}".strip()
    title = about.get("PRETTY_NAME", release)
    path = f"{os.environ.get('PATH') or os.defpath}:/usr/bin:/bin"  # it may be a bare one
    if not shutil.which("apt-get", path=path):
        manager = next((name for name in ELSEWHERE if shutil.which(name, path=path)), "")
        return System(release, title, False, False, {}, manager)
    names = [name for package in PACKAGES for name in (package.name, *package.others)]
    done = _run([shutil.which("apt-cache", path=path) or "apt-cache", "policy", *names])
    return System(release, title, True, *_policy(done.stdout if done else ""))


def _policy(said: str) -> tuple[bool, dict[str, str]]:
    """What `apt-cache policy` says: whether there are lists, and versions by name."""
    found = re.findall(r"^(\S+):\n(?:  .*\n)*?  Candidate: (\S+)", said, re.M)
    # A version in no archive is known from its being installed.
    sources = re.findall(r"^ +-?\d+ (\S+)", said, re.M)
    listed = any(source != "/var/lib/dpkg/status" for source in sources)
    return listed, {name: version for name, version in found if version != "(none)"}


@dataclass(frozen=True)
class Advice:
    """How to get packages: two commands, or "", and a line for each that they cannot get."""

    refresh: str
    install: str
    elsewhere: tuple[str, ...]


def advice(wanted: Sequence[Package]) -> Advice:
    """How to get these packages on this system."""
    here = system()
    if not here.apt and not here.manager:
        names = ", ".join(package.name for package in wanted)
        unknown = (
            f"To install, by Debian's names: {names}; the line for the package manager of this "
            f"system ({here.title}) is not known"
        )
        lines = [f"{p.name}: or else {p.elsewhere}" for p in wanted if p.elsewhere]
        return Advice("", "", (unknown, *lines) if wanted else ())
    names = " ".join(filter(None, map(here.name, wanted)))
    refresh = as_root("apt-get update") if here.apt and wanted and not here.listed else ""
    install = as_root(f"{_INSTALL.get(here.manager, 'apt-get install')} {names}") if names else ""
    lacking = f"{here.title} has no such package"
    other = ((p.name, p.elsewhere) for p in wanted if not here.name(p))
    lines = [f"{n}: {lacking}; {how or 'it must come from elsewhere'}" for n, how in other]
    return Advice(refresh, install, tuple(lines))


def as_root(command: str) -> str:
    """A command as this user has to type it."""
    if os.geteuid() == 0:
        return command
    return f"sudo {command}" if shutil.which("sudo") else f"su -c '{command}'"
