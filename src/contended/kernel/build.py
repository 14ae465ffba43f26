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
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contended import doctor, records
from contended.errors import ContendedError
from contended.kernel import config as configuration
from contended.kernel import layout, make, mirror, patchfile, store
from contended.kernel import source as sources
from contended.kernel.make import Boxed, Progress
from contended.kernel.source import Source
from contended.kernel.variants import Variant
from contended.profile.dwarf import Image
from contended.records import Record

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


@dataclass(frozen=True, slots=True)
class _Meta(Record):
    """What is kept beside a kernel."""

    build_id: str
    version: str
    compiler: str
    config: str


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
    texts = [patch.read_text(errors="replace") for patch in variant.patches]
    return _digest(source, [patchfile.changes_of(text) for text in texts], config)


def _digest(source: Source, patches: Sequence[str], config: str) -> str:
    options, flags = configuration.options(config), configuration.flags(config)
    parts = (RECIPE, source.digest, patches, options, compiler(), *flags)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def find(variant: Variant, config: str, source: Source | None = None) -> Kernel | None:
    """A kernel, if it is built already and its structs lie as the variant says.

    Raises:
        ContendedError: there is no source.
    """
    source = source or sources.find()
    try:
        return _found(variant, config, digest_of(source, variant, config))
    except layout.LayoutError:
        return None


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
        ContendedError: it does not compile, or a patched file gives a warning; make's last words
            are attached as a note.
        layout.LayoutError: a struct does not lie as the variant says.
        ContendedError: there is no source, a patch does not apply, a package is missing, or the
            disk is full.
    """
    report: Progress = progress or (lambda _what, _done, _expected: None)
    _need_plain_path(store.cache())
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


def _place(digest: str) -> Path:
    return store.cache() / "kernels" / digest


def _found(variant: Variant, config: str, digest: str) -> Kernel | None:
    place = _place(digest)
    try:
        text = (place / "meta.json").read_bytes()
    except OSError:
        return None
    meta: _Meta = records.adapter(_Meta).validate_json(text)
    kernel = Kernel(
        slug=variant.slug,
        variant=variant.name,
        config=config,
        digest=digest,
        image=place / "bzImage",
        vmlinux=place / "vmlinux",
        build_id=meta.build_id,
        version=meta.version,
        compiler=meta.compiler,
    )
    if config == "base":
        layout.check(variant, kernel.vmlinux)
    return kernel


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
class _State(Record):
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
        self._home = store.cache() / "build" / f"{source.key}-{config}"
        self._objects = self._home / "objects"
        self._snapshot = self._home / "snapshot"
        self._file = self._home / "state.json"
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
            store.need_space(self._home, BASE_BYTES.get(self._config, 0), "the first build")
            configuration.write(self._source, self._config, self._objects)
            self._save(_State(making=self._base))
        self._compile(name, OBJECTS.get(self._config, 0))
        self._publish(self._base)
        self._report(f"{name}: keeping its objects", 0, 0)
        mirror.sync(self._objects, self._snapshot, _LINKED)
        self._save(_State(base=self._base, making=self._base, clean=True))

    def _make_patched(self, variant: Variant, digest: str) -> None:
        name = f"{variant}, config {self._config}"
        store.need_space(self._home, VARIANT_BYTES, "a build")
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

    def _compile(self, name: str, expected: int, patched: Sequence[str] = ()) -> None:
        target = make.Target(name, self._source, self._config, self._objects)
        boxed = self._boxed if patched else None
        make.run(target, self._lock, self._report, expected, patched, boxed)

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
            with Image(work / "vmlinux") as image:
                build_id = image.build_id
            _Meta(build_id, self._source.version, compiler(), self._config).save(work / "meta.json")
            work.replace(place)

    def _load(self) -> _State:
        try:
            state: _State = records.adapter(_State).validate_json(self._file.read_bytes())
        except (OSError, ValueError):
            state = _State()
        return state

    def _save(self, state: _State) -> None:
        self._state = state
        state.save(self._file)
