# SPDX-License-Identifier: MIT
"""The source is fetched: from whom it must come, whole or not at all, and without the system's apt.

The archive is a toy, signed here, and apt reads it from a folder: nothing comes from the network.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import toy
from support import eventually, one_line
from toy import Toy

from contended import cli
from contended.errors import ContendedError, UsageError
from contended.kernel import build, fetch, releases, source
from contended.kernel.fetch import Mirror

PACKAGE = releases.BOOK.package
needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt-get on this system")


@dataclass(frozen=True)
class Archive:
    """A folder that is Debian's archive for whoever trusts the key."""

    home: Path
    key: Path
    other: Path

    @property
    def mirror(self) -> Mirror:
        return Mirror(f"file:{self.home}", f"file:{self.home}")


def gpg(home: Path, *arguments: str | Path, stdin: str = "") -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", *map(str, arguments)]
    return subprocess.run(command, input=stdin.encode(), capture_output=True, check=True).stdout


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Two versions of the package, in lists that a key made now has signed."""
    if shutil.which("gpg") is None:
        pytest.skip("no gpg: apt-get install gnupg")
    where = tmp_path_factory.mktemp("archive")
    with pytest.MonkeyPatch.context() as patch:
        tarball = toy.tarball(toy.make(where / "toy", patch), where)
    entries = [_package(where, tarball, version) for version in ("6.1.200-1", "6.1.192-2")]
    # gpg-agent's socket has a short name, or none.
    with tempfile.TemporaryDirectory(prefix="contended-gpg-") as place:
        rings = [Path(place) / name for name in ("key", "other")]
        try:
            for ring in rings:
                ring.mkdir(mode=0o700)
                gpg(ring, "--passphrase", "", "--quick-gen-key", "toy@example.org", "ed25519")
                (where / f"{ring.name}.gpg").write_bytes(gpg(ring, "--export"))
            for suite, listed in (("", []), ("-updates", []), ("-security", entries)):
                folder = where / "dists" / f"bookworm{suite}"
                _sign(rings[0], folder, "\n".join(listed))
        finally:
            for ring in rings:
                subprocess.run(["gpgconf", "--homedir", ring, "--kill", "all"], check=False)
    return Archive(where, where / "key.gpg", where / "other.gpg")


def _package(where: Path, tarball: Path, version: str) -> str:
    tree = where / version
    (tree / "DEBIAN").mkdir(parents=True)
    about = (
        f"Package: {PACKAGE}\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: Nobody <toy@example.org>\nDescription: a toy\n"
    )
    (tree / "DEBIAN" / "control").write_text(about)
    (tree / "usr" / "src").mkdir(parents=True)
    shutil.copy(tarball, tree / "usr" / "src" / f"{PACKAGE}.tar.xz")
    deb = where / f"{PACKAGE}_{version}_all.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    return f"{about}Filename: {deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"


def _sign(ring: Path, folder: Path, listed: str) -> None:
    packages = folder / "main" / "binary-amd64" / "Packages"
    packages.parent.mkdir(parents=True)
    packages.write_text(listed)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime())
    release = (
        f"Origin: Toy\nSuite: {folder.name}\nCodename: {folder.name}\nDate: {date}\n"
        f"Architectures: amd64\nComponents: main\n"
        f"SHA256:\n {digest} {len(listed)} main/binary-amd64/Packages\n"
    )
    (folder / "InRelease").write_bytes(gpg(ring, "--clear-sign", stdin=release))


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A clone and an empty cache, on a machine without the package."""
    monkeypatch.setattr(source, "installed", lambda _: None)
    return toy.make(tmp_path / "a place", monkeypatch)


@pytest.fixture
def trusting(archive: Archive, kit: Toy, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(fetch, "mirrors", lambda: [archive.mirror])
    monkeypatch.setattr(fetch, "KEYRINGS", (archive.key,))
    return archive


def left(kit: Toy) -> list[str]:
    """What is in the cache, except locks."""
    return sorted(p.name for p in kit.cache.rglob("*") if p.is_file() and p.name != "lock")


def apts_own() -> dict[str, int]:
    """When the system's apt last changed its files."""
    places = (Path("/var/lib/apt"), Path("/var/cache/apt"))
    found = {}
    for file in (file for place in places for file in place.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # another apt's
            found[str(file)] = file.stat().st_mtime_ns
    return found


@needs_apt
def test_debians_package_is_fetched_once(
    trusting: Archive, kit: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = apts_own()
    assert cli.main(["kernel", "source", "--json"]) == 0
    out = capsys.readouterr()
    seen = json.loads(out.out)
    assert (seen["version"], seen["tested"]) == ("6.1.192", releases.BOOK.tested)
    # Not the newest: the one that the patches were made for.
    assert seen["origin"]["version"] == "6.1.192-2"
    assert "getting linux-source-6.1 6.1.192-2" in out.err
    assert toy.image(Path(seen["tree"])).keys() == toy.image(kit.tree).keys()
    assert apts_own() == before
    assert not list((kit.cache / "kernel" / "fetched").glob(".new-*"))
    # Every command finds it from now on, and nobody fetches it again.
    monkeypatch.setattr(fetch, "mirrors", list)
    assert source.find().tree == Path(seen["tree"])
    assert cli.main(["kernel", "source"]) == 0
    assert capsys.readouterr().out == f"Linux 6.1.192 in {seen['tree']}\n"


@needs_apt
def test_another_release_comes_from_its_own_suites(
    trusting: Archive, kit: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archive has no such suites; what apt was told to look for is in what it says."""
    with pytest.raises(ContendedError, match="does not have unstable") as e:
        source.obtain(release=releases.get("7.2"))
    assert "contended kernel source --release 7.2 --url URL" in str(e.value)
    assert left(kit) == []
    # a package that is not what it is called
    seen: list[releases.Release] = []
    tarball = toy.tarball(kit, kit.home)

    def debian(release: releases.Release, *_: object) -> Path:
        seen.append(release)
        return fetch._kept(
            release, release.package, lambda _: None, lambda work: _fill(work, tarball)
        )

    monkeypatch.setattr(fetch, "debian", debian)
    assert cli.main(["kernel", "source", "--release", "6.12"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "release 6.12: " in said
    assert (
        "holds Linux 6.1.192, which is another release; contended kernel source --release" in said
    )
    assert fetch.fetched(releases.get("6.12")) is None, "it is not kept"
    assert cli.main(["kernel", "source", "--release", "6.1"]) == 0
    assert [release.name for release in seen] == ["6.12", "6.1"]
    assert fetch.fetched(releases.get("6.12")) is None
    assert fetch.fetched() is not None
    assert cli.main(["kernel", "source", "--release", "6.13"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("no kernel release '6.13'; it has: 5.10, 6.1, 6.12, 7.2")


def _fill(work: Path, tarball: Path) -> dict[str, str]:
    shutil.copy(tarball, work)
    return {}


@pytest.mark.parametrize(
    ("version", "says"),
    [("6.12-mine", "changes of its own"), ("6.12.7+", "changes of its own"), ("6.1.2", "another")],
)
def test_a_source_is_of_its_release_and_nobody_elses(version: str, says: str) -> None:
    release = releases.get("6.12")
    for good in ("6.12", "6.12.117"):
        releases.check(release, good, "x.tar")
    with pytest.raises(
        UsageError, match=rf"release 6\.12: x\.tar holds Linux .*{says}.*--release 6"
    ):
        releases.check(release, version, "x.tar")


@needs_apt
@pytest.mark.parametrize("harm", ["unsigned", "other key", "list", "package", "suite"])
def test_what_debian_did_not_sign_is_refused(
    harm: str,
    archive: Archive,
    kit: Toy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "mirror"
    shutil.copytree(archive.home, place)
    key, suite = archive.key, place / "dists" / "bookworm-security"
    packages = suite / "main" / "binary-amd64" / "Packages"
    says = "signature is not one of Debian's keys"
    if harm == "unsigned":
        signed = (suite / "InRelease").read_text()
        body = signed.partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]
        (suite / "Release").write_text(body)
        (suite / "InRelease").unlink()
    elif harm == "other key":
        key = archive.other
    elif harm == "list":
        text = packages.read_text()
        packages.write_text(text.replace("a toy", "a ploy"))
        says = "is not what its signed list names"
    elif harm == "package":
        deb = place / f"{PACKAGE}_6.1.192-2_all.deb"
        data = bytearray(deb.read_bytes())
        data[-20] ^= 1
        deb.write_bytes(data)
        says = "is not what its signed list names"
    else:
        shutil.rmtree(suite)
        says = "does not have bookworm"
    monkeypatch.setattr(fetch, "mirrors", lambda: [Mirror(f"file:{place}", f"file:{place}")])
    monkeypatch.setattr(fetch, "KEYRINGS", (key,))
    assert cli.main(["kernel", "source"]) == 1
    err = capsys.readouterr().err.splitlines()
    assert says in err[-1]
    assert "--url URL --sha256 HEX" in err[-1]
    assert [line for line in err[:-1] if not line.startswith("getting ")] == []
    assert left(kit) == []


@needs_apt
def test_the_public_mirror_stands_in(
    trusting: Archive, kit: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Mirror(f"file:{tmp_path}/gone", f"file:{tmp_path}/gone")
    monkeypatch.setattr(fetch, "mirrors", lambda: [gone, trusting.mirror])
    newer = replace(releases.BOOK, tested="6.1.200")
    assert fetch.debian(newer, lambda _: None).is_file()
    tarball = fetch.fetched()
    assert tarball
    assert fetch.origin(tarball)["version"] == "6.1.200-1"
    assert fetch.origin(kit.tree) == {}


def test_the_systems_own_mirror_is_found() -> None:
    def line(place: str, suite: str) -> str:
        return f"'{place}/dists/{suite}/InRelease' some_name 0 \n"

    docker = line("https://download.docker.com/linux/debian", "trixie")
    site = line("http://site/debian", "trixie") + line("http://site/debian", "trixie-updates")
    names = {"trixie", "bookworm"}
    assert fetch._among(docker + site, names) == Mirror("http://site/debian", fetch.PUBLIC.security)
    secure = line("http://site/sec", "trixie-security") + line("http://other/", "noble")
    assert fetch._among(site + secure, names) == Mirror("http://site/debian", "http://site/sec")
    listed = line("mirror+file:/etc/apt/mirrors/debian.list", "trixie")
    found = fetch._among(listed, names)
    assert found
    assert found.main == "mirror+file:/etc/apt/mirrors/debian.list"
    assert fetch._among(line("http://other", "noble"), names) is None
    assert str(Mirror("http://me:secret@site/debian", "")) == "http://site/debian"


def fake(where: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another apt-get goes first on PATH."""
    folder = where / "fake"
    folder.mkdir()
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    keyring = where / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(fetch, "KEYRINGS", (keyring,))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("E: Failed to fetch http://x  Temporary failure resolving 'x'", "cannot be reached"),
        ("W: hm\nE: Write error - write (28: No space left on device)", "is full: make room"),
        ("E: You do not have enough free space in /x.", "is full: make room"),
        ("E: Failed to fetch http://me:secret@x/y  odd", "http://x/y  odd"),
        ("", "no reason given"),
    ],
)
def test_apts_words_become_a_line(
    said: str, says: str, kit: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, f'cat >&2 <<"."\n{said}\n.\nexit 100', monkeypatch)
    with pytest.raises(ContendedError) as e:
        source.get()
    assert says in str(e.value)
    assert "\n" not in str(e.value)
    assert "secret" not in str(e.value)
    assert left(kit) == []


def test_a_kill_leaves_nothing_for_long(
    kit: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither apt-get nor, after the next try, what it had got."""
    mark = tmp_path / "pid"
    fake(tmp_path, f"touch got; echo $$ >{mark}; exec sleep 6000", monkeypatch)
    code = f"""
        from pathlib import Path
        from contended.kernel import fetch, source
        fetch.KEYRINGS = (Path({str(tmp_path / "keyring.gpg")!r}),)
        fetch.mirrors = lambda: [fetch.PUBLIC]
        source.get()
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=env)
    assert eventually(lambda: mark.exists() and mark.read_text().endswith("\n"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert eventually(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists())
    assert "got" in left(kit)
    (tmp_path / "fake" / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ContendedError):
        source.get()
    assert left(kit) == []


def test_without_apt_another_way_is_named(
    kit: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert cli.main(["kernel", "source"]) == 1
    assert "--url URL --sha256 HEX" in one_line(capsys.readouterr().err)
    assert not kit.cache.exists()


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; `short` promises more than it sends."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != "/short.tar.xz":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 400)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server's address and its folder."""
    folder = tmp_path / "site"
    folder.mkdir()

    def handle(*arguments: object) -> Server:
        return Server(*arguments, directory=str(folder))  # type: ignore[arg-type]

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handle) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_tarball_by_address(
    kit: Toy, site: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    address, folder = site
    tarball = toy.tarball(kit, folder)
    wanted = digest(tarball).upper()
    call = ["kernel", "source", "--url", f"{address}/{tarball.name}", "--sha256", wanted]
    assert cli.main(call) == 0
    capsys.readouterr()
    tarball.unlink()
    assert cli.main([*call, "--json"]) == 0, "it is not fetched again"
    seen = json.loads(capsys.readouterr().out)
    assert seen["origin"]["sha256"] == wanted.lower()
    assert source.find().tree == Path(seen["tree"])


def test_the_installed_package_goes_first_and_that_is_said(
    kit: Toy,
    site: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, folder = site
    tarball = toy.tarball(kit, folder)
    monkeypatch.setattr(source, "installed", lambda _: Path("/usr/src/x.tar.xz"))
    call = ["--url", f"{address}/{tarball.name}", "--sha256", digest(tarball)]
    assert cli.main(["kernel", "source", *call]) == 0
    assert "CONTENDED_KERNEL_SOURCE=" in capsys.readouterr().err.splitlines()[-1]
    assert source.packaged() == Path("/usr/src/x.tar.xz")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("linux-toy.tar.xz", "has SHA-256 "),
        ("gone.tar.xz", "HTTP Error 404"),
        ("short.tar.xz", "600 bytes short of 1000"),
        ("other.tar.gz", "holds no kernel source"),
    ],
)
def test_an_address_that_does_not_bring_it(
    name: str,
    says: str,
    kit: Toy,
    site: tuple[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, folder = site
    toy.tarball(kit, folder)
    (tmp_path / "empty").mkdir()
    other = Path(shutil.make_archive(str(folder / "other"), "gztar", tmp_path / "empty"))
    sha256 = digest(other) if name == other.name else "0" * 64
    status = cli.main(["kernel", "source", "--url", f"{address}/{name}", "--sha256", sha256])
    assert status == (2 if name == other.name else 1)
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert left(kit) == []
    assert fetch.fetched() is None


def test_nobody_answers(kit: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["--url", "http://127.0.0.1:9/x.tar.xz", "--sha256", "0" * 64]
    assert cli.main(["kernel", "source", *call]) == 1
    assert "Connection refused" in capsys.readouterr().err.splitlines()[-1]
    assert left(kit) == []


def test_a_disk_that_fills_up(
    kit: Toy,
    site: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, folder = site
    tarball = toy.tarball(kit, folder)
    call = ["kernel", "source", "--url", f"{address}/{tarball.name}", "--sha256", digest(tarball)]

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", full)
        assert cli.main(call) == 1
    assert "No space left on device: make room" in capsys.readouterr().err.splitlines()[-1]
    assert left(kit) == []
    assert cli.main(call) == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (["--url", "http://x/y.tar.xz"], "belong together"),
        (["--sha256", "0" * 64], "belong together"),
        (["--url", "http://x/y.tar.xz", "--sha256", "12"], "64 digits"),
        (["--url", "y.tar.xz", "--sha256", "0" * 64], "begin with https://"),
        (["--url", "http://x/y.tar.xz", "--sha256", "0" * 64, "--source", "."], "give one"),
    ],
)
def test_calls_that_make_no_sense(
    call: list[str], says: str, kit: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["kernel", "source", *call]) == 2
    assert says in one_line(capsys.readouterr().err)
    assert not kit.cache.exists()


def test_a_build_fetches_and_a_look_does_not(
    kit: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    tarball = toy.tarball(kit, tmp_path)

    def debian(release: releases.Release, *_: object) -> Path:
        asked.append(release.package)
        return tarball

    monkeypatch.setattr(fetch, "debian", debian)
    monkeypatch.setattr(build, "find", lambda *_: object())
    with pytest.raises(source.NoSource, match="contended kernel source gets Debian's"):
        source.find()
    assert cli.main(["kernel", "list"]) == 0
    assert asked == []
    assert cli.main(["kernel", "build"]) == 0
    assert asked == [PACKAGE]
