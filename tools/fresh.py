#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run a command in a fresh clone of this project on a fresh Debian, then remove both.

The system is debootstrap's smallest, with the packages that the README names. It is entered by
pivot_root, in mount and process namespaces of its own: in a chroot the kernel refuses the user
namespaces that the labs' sandbox needs. Nothing is mounted outside of these namespaces, and with
their first process ends all that runs in them.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PROJECT = Path(__file__).resolve().parent.parent
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "contended" / "fresh"
SCRIPTS = Path("/usr/share/debootstrap/scripts")
README_PACKAGES = ("python3", "gcc", "libc6-dev", "make", "ca-certificates")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = re.compile(r"PIP_\w+|TERM|https?_proxy|no_proxy", re.IGNORECASE)
NODES = ("null", "zero", "full", "random", "urandom", "tty")
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
ROLLING = ("sid", "unstable")  # changed in place, so they have no updates beside them
READER = 1000
"""The unprivileged user's number."""

EPILOG = f"""Base systems and packages are kept in {KEPT}: remove a base system to have it made
anew. Fresh systems are unpacked to TMPDIR, or else to /var/tmp. pip's settings and this machine's
own certificates are taken along. Needs root."""


class Trouble(Exception):
    """What stops a run; one line."""


class Parser(argparse.ArgumentParser):
    """Errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"fresh.py: {message}; see --help\n")


@dataclass(frozen=True)
class Mirror:
    """Where a suite's packages come from; `components` as in apt's sources."""

    main: str
    security: str
    components: str


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse and check the command line; exits with status 2."""
    parser = Parser(prog="fresh.py", description=__doc__.partition("\n")[0], epilog=EPILOG)
    add = parser.add_argument
    add("--user", action="store_true", help="run the command as an unprivileged user")
    add("--home", default="/home/reader", help="the clone's parent folder (%(default)s)")
    packages = "to install besides the README's, or `doctor`: those that it names there"
    add("--packages", default="", metavar="WORDS", help=packages)
    cache = "a folder of this machine to keep what is compiled (CONTENDED_CACHE there)"
    add("--cache", type=Path, metavar="DIR", help=cache)
    add("--mirror", metavar="URL", help="default: that of apt here, or else the distribution's own")
    add("suite", help="bookworm, trixie, ...")
    add("command", nargs=argparse.REMAINDER, help="default: make book")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"[a-z]+", options.suite):
        parser.error(f"{options.suite!r} is no suite's name, such as trixie")
    if not re.fullmatch(r"(/[^/:\n]+)+", options.home) or ".." in options.home:
        parser.error(f"--home {options.home!r} is no absolute path without colons")
    if options.cache and not options.cache.is_dir():
        parser.error(f"--cache {options.cache} is no folder")
    if options.mirror and not re.fullmatch(r"\w+://\S+", options.mirror):
        parser.error(f"--mirror {options.mirror!r} is no URL")
    options.command = options.command or ["make", "book"]
    return options


def end_once() -> None:
    """Have SIGINT and SIGTERM end it: the first only, as a second would leave half of it here."""

    def end(number: int, _: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(143)

    # A shell has its background jobs ignore Ctrl-C, and what they start inherits that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def main(argv: Sequence[str]) -> int:
    """Make the system, run the command in it, remove it; returns the command's exit status."""
    end_once()
    os.umask(0o022)
    try:
        if argv[:1] == ["--inside"]:
            return inside(Path(argv[1]), arguments(argv[2:]))
        options = arguments(argv)
        check(options.suite)
        mirror = mirror_of(options.suite, options.mirror)
        where = os.environ.get("TMPDIR") or "/var/tmp"
        with tempfile.TemporaryDirectory(prefix="contended-fresh-", dir=where) as root:
            unpack(options.suite, mirror.main, Path(root))
            furnish(Path(root), options, mirror)
            return run_inside(Path(root), argv)
    except Trouble as trouble:
        sys.stderr.write(f"fresh.py: {trouble}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def check(suite: str) -> None:
    """See that this machine can make such a system."""
    for program in ("debootstrap", "git", "unshare", "pivot_root"):
        if not shutil.which(program, path=SEARCH_PATH):
            raise Trouble(f"no {program} here: apt-get install debootstrap git util-linux")
    if not (SCRIPTS / suite).exists():
        raise Trouble(f"debootstrap knows no {suite} here: name another suite, or update it")
    if os.geteuid():
        raise Trouble("making a system needs root: sudo tools/fresh.py ...")


def mirror_of(suite: str, given: str | None) -> Mirror:
    """The given mirror, or the one of this machine's apt, or the distribution's public one."""
    # Each suite's script is a link to the one of its distribution's first suite.
    ubuntu = (SCRIPTS / suite).resolve().name == "gutsy"
    name = "Ubuntu" if ubuntu else "Debian"
    public = "http://archive.ubuntu.com/ubuntu" if ubuntu else "http://deb.debian.org/debian"
    if not given:
        line = "$(ORIGIN)|$(LABEL)|$(REPO_URI)"
        wanted = ["indextargets", "--format", line, "Created-By: Packages"]
        listed = do("apt-get", *wanted) if shutil.which("apt-get") else ""
        found = re.search(rf"^{name}\|{name}\|(.*)$", listed, re.M)
        given = found[1] if found else public
    main = given.rstrip("/")
    if ubuntu:
        return Mirror(main, main, "main universe")
    return Mirror(main, f"{main}-security", "main")


def unpack(suite: str, mirror: str, root: Path) -> None:
    """Unpack the suite's base system, after making it if that was never done."""
    base = KEPT / f"{suite}.tar"
    if not base.exists():
        sys.stderr.write(f"fresh.py: making {base} from {mirror}: a minute or two, once\n")
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=KEPT) as work:
            tree, new = Path(work) / "tree", Path(work) / "new.tar"
            do(*APART, "debootstrap", "--variant=minbase", suite, tree, mirror)
            for package in (tree / "var/cache/apt/archives").glob("*.deb"):
                package.unlink()
            do("tar", "-C", tree, "-cf", new, ".")
            new.replace(base)
    do("tar", "-C", root, "--numeric-owner", "-xpf", base)


def furnish(root: Path, options: argparse.Namespace, mirror: Mirror) -> None:
    """Add the clone, and what lets the network, apt and pip work there as they do here."""
    home = root / options.home[1:]
    home.mkdir(parents=True, exist_ok=True)
    do("git", "clone", "--quiet", "--no-hardlinks", PROJECT, home / "contended")
    suites = {options.suite: mirror.main}
    if options.suite not in ROLLING:
        suites |= {
            f"{options.suite}-updates": mirror.main,
            f"{options.suite}-security": mirror.security,
        }
    sources = [f"deb {where} {suite} {mirror.components}\n" for suite, where in suites.items()]
    (root / "etc/apt/sources.list").write_text("".join(sources))
    if options.suite in ROLLING:  # whose lists expire in a week, and mirrors may be behind
        stale = 'Acquire::Check-Valid-Until "false";\n'
        (root / "etc/apt/apt.conf.d/99-contended").write_text(stale)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename}\n::1 localhost\n")
    if options.user:
        with (root / "etc/passwd").open("a") as users, (root / "etc/group").open("a") as groups:
            users.write(f"reader:x:{READER}:{READER}::{options.home}:/bin/bash\n")
            groups.write(f"reader:x:{READER}:\n")
    copy(Path("/etc/resolv.conf"), root / "etc/resolv.conf")
    copy(Path("/etc/pip.conf"), root / "etc/pip.conf")
    copy(Path("/usr/local/share/ca-certificates"), root / "usr/local/share/ca-certificates")
    copy(Path.home() / ".pip", home / ".pip")
    copy(Path.home() / ".config/pip", home / ".config/pip")
    for name, value in os.environ.items():
        if name.startswith("PIP_"):  # folders of wheels, files of certificates
            for word in value.split():
                if word.startswith("/") and not (root / word[1:]).exists():
                    copy(Path(word), root / word[1:])


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, if it is there; links become what they point to."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)


def run_inside(root: Path, argv: Sequence[str]) -> int:
    """Run `inside` as the first process of new namespaces; none of them is left afterwards."""
    # Whatever ends this process, even SIGKILL, ends the other one and all that it started.
    itself = (sys.executable, "-B", __file__)
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *APART, *itself, "--inside", root, *argv]
    )
    try:
        return process.wait()
    finally:
        # unshare waits until the last process there is gone, unless it is killed itself.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for end in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError, subprocess.TimeoutExpired):
                for child in children.read_text().split():
                    os.kill(int(child), end)
                process.wait(timeout=10)
        process.wait()


def inside(root: Path, options: argparse.Namespace) -> int:
    """What the first process of the new namespaces does: enter, install, run the command."""
    packages = KEPT / f"packages-{options.suite}"
    (packages / "partial").mkdir(parents=True, exist_ok=True)
    alone = os.open(packages, os.O_RDONLY)
    enter(root, packages, options.cache)
    os.environ["PATH"] = SEARCH_PATH
    fcntl.flock(alone, fcntl.LOCK_EX)  # apt does not wait for another that downloads to the folder
    do("apt-get", "-qq", "update")
    install(*README_PACKAGES)
    do("update-ca-certificates")
    clone = f"{options.home}/contended"
    extra = options.packages.split()
    if extra == ["doctor"]:
        doctor = ["python3", "-B", "-m", "contended.doctor", "--packages"]
        extra = do(*doctor, cwd=clone, env={**os.environ, "PYTHONPATH": "src"}).split()
    install(*extra)
    os.close(alone)

    environment = {k: v for k, v in os.environ.items() if PASSED_ON.fullmatch(k)}
    environment |= {"HOME": options.home, "PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
    if options.cache:
        environment["CONTENDED_CACHE"] = "/cache"
    become = []
    if options.user:
        cache = ["/cache"] if options.cache else []
        do("chown", "-R", f"{READER}:{READER}", options.home, *cache)
        environment |= {"USER": "reader", "LOGNAME": "reader"}
        become = ["setpriv", f"--reuid={READER}", f"--regid={READER}", "--clear-groups"]
    process = subprocess.Popen([*become, *options.command], cwd=clone, env=environment)
    while True:  # orphans are handed to the first process, and are zombies until it waits for them
        ended, status = os.wait()
        if ended == process.pid:
            return os.waitstatus_to_exitcode(status)


def enter(root: Path, packages: Path, cache: Path | None) -> None:
    """Make a tree the root of this mount namespace, with /proc, /sys and /dev of its own."""
    do("mount", "--bind", root, root)
    do("mount", "-t", "proc", "proc", root / "proc")
    do("mount", "-t", "sysfs", "-o", "ro,nosuid,nodev,noexec", "sysfs", root / "sys")
    dev = root / "dev"
    do("mount", "-t", "tmpfs", "-o", "mode=755,nosuid", "tmpfs", dev)
    for name in NODES:
        (dev / name).touch()
        do("mount", "--bind", f"/dev/{name}", dev / name)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        (dev / name).symlink_to(f"/proc/self/fd{target}")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "pts").mkdir()
    do("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=666,mode=620,gid=5", "pts", dev / "pts")
    (dev / "shm").mkdir()
    do("mount", "-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "tmpfs", dev / "shm")
    do("mount", "--bind", packages, root / "var/cache/apt/archives")
    if cache:
        (root / "cache").mkdir()
        do("mount", "--bind", cache, root / "cache")
    # The old root is stacked under the new one, and then taken away.
    do("sh", "-c", 'cd "$1" && pivot_root . . && umount --lazy .', "sh", root)
    os.chdir("/")


def install(*packages: str) -> None:
    """Install packages inside."""
    if packages:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        do("apt-get", "-qq", "install", "--yes", "--no-install-recommends", *packages, env=quiet)


def do(*command: str | Path, **where: Any) -> str:
    """Run a command whose words matter only if it fails; returns its standard output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False, **where,
    )  # fmt: skip
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Trouble(f"{' '.join(map(str, command))}: {words}")
    return str(done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
