# SPDX-License-Identifier: MIT
"""Build kernels: an object folder per configuration, a snapshot of it, and what a patch needs.

The unpatched kernel of a configuration is built once. Its object folder is then copied; each
variant starts from that copy, with the patched files newer than every object, so that make
compiles what depends on them and nothing else. A finished kernel is put into the cache by one
rename, under a digest of all that went into it: there is never half a kernel, and a kernel that
several variants share is built once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from contended import doctor
from contended.errors import ContendedError
from contended.kernel import config as configuration
from contended.kernel import layout, mirror
from contended.kernel import source as sources
from contended.kernel.source import Source
from contended.kernel.variants import Variant

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the objects done, and those expected or 0 if unknown."""

Boxed = Callable[[Sequence[str], Path, Path], list[str]]
"""Makes of a command one that runs it in a sandbox, with a tree to read and objects to write."""

RECIPE = 1
"""Raised when kernels must be built anew although nothing else that they are made of changed."""

BASE_BYTES = {"base": 1_200_000_000, "debug": 400_000_000, "up": 400_000_000}
"""What the first build of a configuration needs on the disk, its snapshot included."""

VARIANT_BYTES = 400_000_000
"""What a further variant needs."""

OBJECTS = {"base": 760, "debug": 720, "up": 690}
"""About how many objects a configuration has, for the progress shown and for nothing else."""

_IMAGE = Path("arch") / "x86" / "boot" / "bzImage"
# Linked at the end of every build, so a snapshot does without them.
_LINKED = (
    *("vmlinux*", ".vmlinux*", ".tmp_vmlinux*", "System.map", "arch/x86/boot/bzImage"),
    *("arch/x86/boot/vmlinux.bin", "arch/x86/boot/compressed/vmlinux*"),
)
# Told to end, it tells the whole process group, so that every make removes what is half made and
# every compiler stops; more than once, since a make may just be starting another one.
_SUPERVISOR = """\
trap 'trap : TERM; for i in 1 2 3 4 5; do kill -TERM 0; sleep 0.1; done; wait; exit 143' TERM
"$@" & wait $!
"""
_DIAGNOSTIC = re.compile(r"(?P<file>[^\s:]+\.[chSo]):.*?\b(?P<kind>warning|error): ")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A finished kernel in the cache.

    Attributes:
        slug: The case that it was asked for.
        variant: The variant's name.
        config: The configuration's name.
        digest: Of all that it was made from; kernels made from the same are one.
        image: The bzImage.
        vmlinux: The ELF file; with DWARF if the configuration has it.
        build_id: Of the linker, hexadecimal; a running kernel has it in /sys/kernel/notes.
        version: Of Linux.
        compiler: The first line of what it says of itself.
    """

    slug: str
    variant: str
    config: str
    digest: str
    image: Path
    vmlinux: Path
    build_id: str
    version: str
    compiler: str


@functools.cache
def compiler() -> str:
    """The kernel's compiler, which is gcc whatever `CC` says: the first line of `gcc --version`.

    Raises:
        ContendedError: there is none.
    """
    try:
        done = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ContendedError("no gcc was found: apt-get install gcc") from error
    return next(iter(done.stdout.splitlines()), "unknown version")


def digest_of(source: Source, variant: Variant, config: str) -> str:
    """A digest of all that goes into a kernel: 32 hexadecimal digits."""
    patches = [_change(patch) for patch in variant.patches]
    return _digest(source, patches, config)


def _digest(source: Source, patches: Sequence[str], config: str) -> str:
    options, flags = configuration.options(config), configuration.flags(config)
    parts = (RECIPE, source.digest, patches, options, compiler(), *flags)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _change(patch: Path) -> str:
    """A patch without its message: another wording is no other kernel."""
    text = patch.read_text(errors="replace")
    start = re.search(r"^(diff --git |--- \S+.*\n\+\+\+ )", text, re.M)
    return text[start.start() :] if start else text


def find(variant: Variant, config: str, source: Source | None = None) -> Kernel | None:
    """A kernel, if it is built already and its structs lie as the variant says.

    Raises:
        ContendedError: there is no source.
    """
    source = source or sources.find()
    try:
        return _found(variant, config, digest_of(source, variant, config))
    except LayoutError:
        return None


class LayoutError(ContendedError):
    """A struct of a patched kernel does not lie as the variant says it does."""


class BuildError(ContendedError):
    """A kernel does not compile, or not without a warning."""


def build(
    variant: Variant,
    config: str,
    source: Source | None = None,
    progress: Progress | None = None,
    boxed: Boxed | None = None,
) -> Kernel:
    """Build a kernel, unless it is in the cache.

    Args:
        variant: The kernel.
        config: The configuration's name.
        source: The kernel's source; default: as `source.find` finds it.
        progress: Told what is done.
        boxed: How to compile patches that somebody else wrote.

    Raises:
        BuildError: it does not compile, or a patched file gives a warning; make's last words are
            attached as a note.
        LayoutError: a struct does not lie as the variant says.
        ContendedError: there is no source, a patch does not apply, a package is missing, or the
            disk is full.
    """
    report: Progress = progress or (lambda _what, _done, _expected: None)
    _need_plain_path(sources.cache())
    source = source or sources.find(say=lambda what: report(what, 0, 0))
    digest = digest_of(source, variant, config)
    if kernel := _found(variant, config, digest):
        return kernel
    _need_packages()
    with sources.lock(source, lambda what: report(what, 0, 0)) as lock:
        if kernel := _found(variant, config, digest):
            return kernel
        _Build(source, config, report, lock, boxed).make(variant, digest)
    kernel = _found(variant, config, digest)
    assert kernel
    return kernel


def clean() -> int:
    """Remove sources, objects and kernels; returns the bytes that this freed."""
    freed = 0
    for folder in ("source", "fetched", "build", "kernels"):
        place = sources.cache() / folder
        if place.is_dir():
            freed += sum(seen.st_blocks * 512 for _, seen in mirror.entries(place))
            shutil.rmtree(place)
    return freed


def _place(digest: str) -> Path:
    return sources.cache() / "kernels" / digest


def _found(variant: Variant, config: str, digest: str) -> Kernel | None:
    place = _place(digest)
    try:
        meta = json.loads((place / "meta.json").read_text())
    except OSError:
        return None
    kernel = Kernel(
        slug=variant.slug,
        variant=variant.name,
        config=config,
        digest=digest,
        image=place / "bzImage",
        vmlinux=place / "vmlinux",
        build_id=meta["build_id"],
        version=meta["version"],
        compiler=meta["compiler"],
    )
    if config == "base":
        check_layout(variant, kernel.vmlinux)
    return kernel


def check_layout(variant: Variant, vmlinux: Path) -> None:
    """See that structs lie as a variant says.

    Raises:
        LayoutError: one does not; the message gives the offsets.
    """
    for wanted in variant.layout:
        if bad := layout.problems(_struct(vmlinux, wanted.struct), wanted):
            raise LayoutError(f"{variant}: in struct {wanted.struct} {'; '.join(bad)}")


def _struct(vmlinux: Path, name: str) -> layout.Struct:
    """A struct of a finished kernel; what was read of it is kept, since reading takes seconds."""
    kept = vmlinux.parent / f"struct-{name}.json"
    with suppress(OSError, ValueError, TypeError):
        content = json.loads(kept.read_text())
        return layout.Struct(
            name, content["size"], tuple(layout.Field(*f) for f in content["fields"])
        )
    found = layout.struct(vmlinux, name)
    fields = [[field.name, field.offset, field.size] for field in found.fields]
    with suppress(OSError), tempfile.TemporaryDirectory(dir=vmlinux.parent) as scratch:
        new = Path(scratch) / kept.name
        new.write_text(json.dumps({"size": found.size, "fields": fields}))
        new.replace(kept)
    return found


def _need_plain_path(folder: Path) -> None:
    # Kbuild refuses such folders itself, after minutes of unpacking, and in make's words
    if re.search(r"[\s:]", str(folder)):
        raise ContendedError(
            f"a kernel cannot be built in {folder}, for its blanks or colons: set "
            "CONTENDED_CACHE to a folder without them"
        )


def _need_packages() -> None:
    missing = [
        package.name
        for package in doctor.PACKAGES
        if "kernels" in package.needed_for and package.required and not package.there()
    ]
    if missing:
        raise ContendedError(f"building a kernel needs: apt-get install {' '.join(missing)}")


@dataclass(slots=True)
class _State:
    """What an object folder holds, kept beside it.

    Attributes:
        base: The digest of the unpatched kernel whose snapshot there is, or "".
        making: The digest of the kernel that the folder's objects are of, or "".
        clean: Whether every object in it is whole and none gave a warning that counts.
        mtime_ns: The time of modification that the patched files had.
    """

    base: str = ""
    making: str = ""
    clean: bool = False
    mtime_ns: int = 0


class _Build:
    """One configuration's object folder; whoever makes one holds the source's lock."""

    def __init__(
        self, source: Source, config: str, report: Progress, lock: int, boxed: Boxed | None = None
    ) -> None:
        self._source = source
        self._config = config
        self._report = report
        self._lock = lock
        self._boxed = boxed
        self._home = sources.cache() / "build" / f"{source.key}-{config}"
        self._objects = self._home / "objects"
        self._snapshot = self._home / "snapshot"
        self._base = _digest(source, [], config)
        self._state = self._load()

    def make(self, variant: Variant, digest: str) -> None:
        """Put the kernel into the cache."""
        self._home.mkdir(parents=True, exist_ok=True)
        if self._state.base != self._base or not self._snapshot.is_dir():
            self._make_base()
        if digest == self._base:
            if not _place(digest).exists():  # removed by hand: link it again
                self._make_patched(variant, digest)
            return
        self._make_patched(variant, digest)

    def _make_base(self) -> None:
        name = f"Linux {self._source.version}, config {self._config}"
        if self._state.making != self._base:
            self._report(f"{name}: configuring", 0, 0)
            # Objects of another compiler or configuration: nothing of them can be trusted.
            for folder in (self._objects, self._snapshot):
                shutil.rmtree(folder, ignore_errors=True)
            sources.need_space(self._home, BASE_BYTES.get(self._config, 0), "the first build")
            configuration.write(self._source, self._config, self._objects)
            self._save(_State(making=self._base))
        self._compile(name, OBJECTS.get(self._config, 0), ())
        self._publish(self._base)
        self._report(f"{name}: keeping its objects", 0, 0)
        mirror.sync(self._objects, self._snapshot, _LINKED)
        self._save(_State(base=self._base, making=self._base, clean=True))

    def _make_patched(self, variant: Variant, digest: str) -> None:
        name = f"{variant}, config {self._config}"
        sources.need_space(self._home, VARIANT_BYTES, "a build")
        if not (self._state.making == digest and self._state.clean):
            # First the word that the objects are no longer what they were, then the deed.
            self._save(_State(base=self._base))
            self._report(f"{name}: restoring the unpatched objects", 0, 0)
            mirror.sync(self._snapshot, self._objects)
            self._state.mtime_ns = time.time_ns()
        since = self._state.mtime_ns
        with sources.applied(self._source, variant.patches, since) as changed:
            self._save(_State(base=self._base, making=digest, mtime_ns=since))
            try:
                self._compile(name, 0, changed)
            except KeyboardInterrupt:
                # make has removed what was half done; what is done need not be done again.
                self._save(replace(self._state, clean=True))
                raise
            self._publish(digest)
            self._save(replace(self._state, clean=True))

    def _compile(self, name: str, expected: int, patched: Sequence[str]) -> None:
        # A build that goes on counts what is there.
        done = sum(1 for _ in self._objects.rglob("*.o")) if expected else 0
        said: list[str] = []
        self._report(f"{name}: compiling", done, expected)
        jobs = f"-j{len(os.sched_getaffinity(0))}"
        flags = configuration.flags(self._config)
        command = configuration.make(self._source, self._objects, jobs, *flags, "bzImage")
        if patched and self._boxed is not None:
            command = self._boxed(command, self._source.tree, self._objects)
        with _running(command, self._lock) as (process, lines):
            for line in lines:
                said.append(line)
                if re.match(r"  (CC|AS) ", line):
                    done += 1
                    self._report(f"{name}: compiling", done, expected)
                elif re.match(r"  LD +(vmlinux|\.tmp_vmlinux)", line):
                    self._report(f"{name}: linking", done, expected)
                if (warning := self._diagnostic(line, "warning")) and warning[0] in patched:
                    error = BuildError(f"{name} does not compile without a warning: {warning[1]}")
                    error.add_note("\n".join(said[-20:]))
                    raise error
            process.wait()
        if process.returncode:
            # A full disk shows in many ways, most of them less clear than this.
            for where in (self._home, Path(tempfile.gettempdir())):
                sources.need_space(where, 20_000_000, "a build")
            error = BuildError(f"{name} does not compile: {self._reason(said)}")
            error.add_note("\n".join(said[-40:]))
            raise error

    def _reason(self, said: Sequence[str]) -> str:
        """The line of make's output that is most likely to say why it failed."""
        for line in said:
            if found := self._diagnostic(line, "error"):
                return found[1].strip()
        for sign in ("undefined reference", "not found", "No such file", "rror", ""):
            for line in said:
                if sign in line and not line.startswith(("make", "  ")):
                    return line.strip()
        return "make gives no reason"

    def _diagnostic(self, line: str, kind: str) -> tuple[str, str] | None:
        """The file, relative to the tree, and the text of a compiler's warning or error."""
        match = _DIAGNOSTIC.match(line)
        if not match or match["kind"] != kind:
            return None
        file = match["file"]
        for prefix in (f"{self._source.tree}/", "../", "./"):
            file = file.removeprefix(prefix)
        if file.endswith(".o"):  # objtool's words
            file = file[:-1] + ("c" if (self._source.tree / f"{file[:-1]}c").exists() else "S")
        return file, line.replace(f"{self._source.tree}/", "")

    def _publish(self, digest: str) -> None:
        """Put the finished kernel into the cache, whole."""
        place = _place(digest)
        if place.exists():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(".new-*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as scratch:
            work = Path(scratch) / digest
            work.mkdir()
            shutil.copyfile(self._objects / _IMAGE, work / "bzImage")
            shutil.copyfile(self._objects / "vmlinux", work / "vmlinux")
            shutil.copyfile(self._objects / ".config", work / "config")
            meta = {
                "build_id": build_id(work / "vmlinux"),
                "version": self._source.version,
                "compiler": compiler(),
                "config": self._config,
            }
            (work / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
            work.replace(place)

    def _load(self) -> _State:
        try:
            return _State(**json.loads((self._home / "state.json").read_text()))
        except (OSError, ValueError, TypeError):
            return _State()

    def _save(self, state: _State) -> None:
        self._state = state
        new = self._home / "state.new"
        fields = ("base", "making", "clean", "mtime_ns")
        new.write_text(json.dumps({name: getattr(state, name) for name in fields}))
        new.replace(self._home / "state.json")


@contextmanager
def _running(
    command: Sequence[str], lock: int
) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """A make and its output, line by line; nothing of it goes on when the block is left.

    It has a process group of its own, so that Ctrl-C comes to us and we end it in order; if we are
    killed it ends as well; and it holds the lock until its last process is gone.
    """
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "sh", "-c", _SUPERVISOR, "sh", *command],
        env=configuration.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock,),
    )
    assert process.stdout
    try:
        yield process, (line.rstrip("\n") for line in process.stdout)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise BuildError("make did not end and was killed: build again") from None


def build_id(vmlinux: Path) -> str:
    """The build id that the linker wrote into an ELF file.

    Raises:
        ContendedError: it has none.
    """
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import NoteSection

    with vmlinux.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    raise ContendedError(f"{vmlinux} has no build id")
