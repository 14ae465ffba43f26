# SPDX-License-Identifier: MIT
"""Build kernels: an object folder per configuration, a snapshot of it, and what a patch needs.

The unpatched kernel of a configuration is built once. Its object folder is then copied; each
variant starts from that copy, with the patched files newer than every object, so that make compiles
what depends on them and nothing else. On a header of all that is nearly everything, so our variants
with the same patches of such headers start from a kernel that has these and no others. A finished
kernel is put into the cache whole, by one rename, under a digest of all that went into it: variants
that are the same share it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from contended import doctor, records
from contended.errors import ContendedError, UsageError
from contended.kernel import make, patchfile, store
from contended.kernel import source as sources
from contended.kernel.make import Boxed, BuildError, Progress
from contended.kernel.source import KernelSource
from contended.kernel.variants import CONFIGS, WITH_DWARF, Layout, Variant
from contended.profile.dwarf import Image
from contended.profile.entries import StructMember
from contended.records import Record

Report = Callable[..., None]  #: A `Progress` whose numbers may be left out.

RECIPE = 1  #: Raised when kernels must be built anew although nothing of them changed.
#: What the first build of a configuration needs on the disk with its snapshot, and a variant.
BASE_BYTES = {**dict.fromkeys(CONFIGS, 400_000_000), **dict.fromkeys(WITH_DWARF, 1_200_000_000)}
VARIANT_BYTES = 400_000_000
#: About how many objects a configuration has, for the progress shown and for nothing else.
OBJECTS = {
    **dict.fromkeys(CONFIGS, 720),
    "base": 760,
    "users": 780,
    "handles": 760,
    "many": 760,
    "distribution": 900,
    "distribution-ima": 1000,
    "distribution-disk": 1150,
    "distribution-network": 1200,
    "distribution-many": 900,
    "up": 690,
    "observe": 800,
    "kasan": 740,
    "kcsan": 740,
    "selftests": 800,
}
_LINE = 64  # bytes of a cache line
# Linked at the end of every build, so a snapshot does without them.
_LINKED = (
    *("vmlinux*", ".vmlinux*", ".tmp_vmlinux*", "System.map", "arch/x86/boot/bzImage"),
    *("arch/x86/boot/vmlinux.bin", "arch/x86/boot/compressed/vmlinux*"),
)


class LayoutError(ContendedError):
    """A struct of a patched kernel does not lie as the variant says it does."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A finished kernel in the cache."""

    slug: str  #: The case that it was asked for.
    variant: str
    config: str
    digest: str  #: Of all that it was made from; kernels made from the same are one.
    image: Path  #: The bzImage.
    vmlinux: Path  #: The ELF file; with DWARF if the configuration has it.
    build_id: str  #: Of the linker, hexadecimal; a running kernel has it in /sys/kernel/notes.
    version: str  #: Of Linux.
    compiler: str  #: The first line of what it says of itself.


@dataclass(frozen=True, slots=True)
class _Meta(Record):
    build_id: str
    version: str
    compiler: str
    config: str


@functools.cache
def compiler() -> str:
    """The kernel's compiler, which is gcc whatever `CC` says: the first line of `gcc --version`."""
    try:
        done = store.ask(["gcc", "--version"], env=None)
    except OSError as error:
        raise ContendedError("no gcc was found: apt-get install gcc") from error
    return next(iter(done.stdout.splitlines()), "unknown version")


def digest_of(source: KernelSource, patches: Sequence[Path], config: str) -> str:
    """A digest of all that goes into a kernel: 32 hexadecimal digits."""
    changes = [patchfile.changes_of(patch.read_text(errors="replace")) for patch in patches]
    options, flags = (of(config, source.version) for of in (make.options, make.flags))
    parts = (RECIPE, source.digest, changes, options, compiler(), *flags)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def find(variant: Variant, config: str, source: KernelSource | None = None) -> Kernel | None:
    """A kernel, if it is built already and its structs lie as the variant says."""
    source = source or sources.find()
    try:
        return _found(variant, config, digest_of(source, variant.patches, config))
    except LayoutError:
        return None


def build(
    variant: Variant,
    config: str,
    source: KernelSource | None = None,
    progress: Progress | None = None,
    boxed: Boxed | None = None,
) -> Kernel:
    """Build a kernel, unless it is in the cache; `boxed` compiles patches of somebody else.

    Raises BuildError if it does not compile, or a patched file gives a warning, LayoutError if a
    struct does not lie as the variant says, and ContendedError for what is missing: the source, a
    place where a patch applies, a package, room on the disk.
    """

    def report(what: str, done: int = 0, expected: int = 0) -> None:
        if progress:
            progress(what, done, expected)

    # Kbuild refuses such folders itself, after minutes of unpacking, and in make's words
    if re.search(r"[\s:]", str(store.cache())):
        raise ContendedError(
            f"a kernel cannot be built in {store.cache()}, for its blanks or colons: set "
            "CONTENDED_CACHE to a folder without them"
        )
    source = source or sources.find(say=report)
    digest = digest_of(source, variant.patches, config)
    if kernel := _found(variant, config, digest):
        return kernel
    missing = [package.name for package in tools() if not package.there()]
    if "DEBUG_INFO_BTF" in make.options(config, source.version) and not shutil.which("pahole"):
        missing.append("dwarves")
    if missing:
        raise ContendedError(f"building a kernel needs: apt-get install {' '.join(missing)}")
    with sources.lock(source, report) as lock:
        if not _found(variant, config, digest):
            # Whoever tries a patch of somebody else has no other with the same headers.
            under = () if boxed else sources.wide(source, variant.patches)
            _Build(source, config, report, lock, boxed, under).make(variant, digest)
    kernel = _found(variant, config, digest)
    assert kernel
    return kernel


def tools() -> list[doctor.Package]:
    """The packages without which no kernel can be built."""
    return [p for p in doctor.PACKAGES if "kernels" in p.needed_for and p.required]


def _place(digest: str) -> Path:
    return store.cache() / "kernels" / digest


def _found(variant: Variant, config: str, digest: str) -> Kernel | None:
    place = _place(digest)
    try:
        meta: _Meta = records.adapter(_Meta).validate_json((place / "meta.json").read_bytes())
    except OSError:
        return None
    except ValueError as error:
        raise ContendedError(f"{place} is damaged: remove it to have it built again") from error
    about = (meta.build_id, meta.version, meta.compiler)
    files = (place / "bzImage", place / "vmlinux")
    kernel = Kernel(variant.slug, variant.name, config, digest, *files, *about)
    if config in WITH_DWARF:
        _check_layout(variant, kernel.vmlinux)
    return kernel


def _check_layout(variant: Variant, vmlinux: Path) -> None:
    """Raise LayoutError unless structs lie as a variant says; that is kept beside the kernel.

    Offsets are never assumed: an option of the kernel's configuration moves them, and what shares a
    64-byte line is what several of the cases are about.
    """
    if not variant.layout:
        return
    wanted = hashlib.sha256(repr(sorted(variant.layout.items())).encode()).hexdigest()[:16]
    kept = vmlinux.parent / f"layout-{wanted}"
    try:
        bad = kept.read_text()
    except OSError:
        with Image(vmlinux) as image:
            try:
                problems = [layout_problem(image, *each) for each in variant.layout.items()]
                bad = next(filter(None, problems), "")
            except UsageError as error:  # a struct or member is not there
                bad = str(error)
        with suppress(ContendedError):  # reading it again costs seconds, and no more
            records.write_whole(kept, bad)
    if bad:
        raise LayoutError(f"{variant}: {bad}")


def layout_problem(image: Image, name: str, wanted: Layout) -> str:
    """In what a struct does not lie as it should, with its offsets; empty if it does."""
    found = image.type(name)
    bad = []
    if wanted.size is not None and found.size != wanted.size:
        bad.append(f"its size is {found.size} and not {wanted.size}")
    for pairs, should_share in ((wanted.apart, False), (wanted.together, True)):
        for pair in pairs:
            one, other = map(found.field, pair)
            if bool(_lines(one) & _lines(other)) != should_share:
                places = " and ".join(f"{f.name} (offset {f.offset})" for f in (one, other))
                bad.append(f"{places} {'share no' if should_share else 'share a'} line")
    return f"in struct {name} {'; '.join(bad)}" if bad else ""


def _lines(field: StructMember) -> set[int]:
    """The numbers of the lines that a member lies on, if the struct starts a line."""
    last = field.offset + max(field.size, 1) - 1
    return set(range(field.offset // _LINE, last // _LINE + 1))


@dataclass(slots=True)
class _State(Record):
    """What an object folder holds, kept beside it."""

    base: str = ""  # the digest of the unpatched kernel whose snapshot there is
    making: str = ""  # the digest of the kernel that the folder's objects are of
    clean: bool = False  # every object in it is whole and none gave a warning that counts
    mtime_ns: int = 0  # the time of modification that the patched files had


class _Build:
    """One configuration's object folder; whoever makes one holds the source's lock.

    It has the patches `under`, and so have all variants that are built in it.
    """

    def __init__(
        self,
        source: KernelSource,
        config: str,
        report: Callable[..., None],
        lock: int,
        boxed: Boxed | None,
        under: Sequence[Path],
    ) -> None:
        self._source, self._config, self._under = source, config, under
        self._report, self._lock, self._boxed = report, lock, boxed
        self._base = digest_of(source, under, config)
        name = (source.tree.parent.name, config, *([self._base[:8]] if under else []))
        self._home = store.cache() / "build" / "-".join(name)
        self._objects, self._snapshot = self._home / "objects", self._home / "snapshot"
        self._state = _State()
        with suppress(OSError, ValueError):
            kept = (self._home / "state.json").read_bytes()
            self._state = records.adapter(_State).validate_json(kept)

    def make(self, variant: Variant, digest: str) -> None:
        """Put the kernel into the cache."""
        self._home.mkdir(parents=True, exist_ok=True)
        if self._state.base != self._base or not self._snapshot.is_dir():
            self._make_base()
        if not _place(digest).exists():  # or that one's was removed by hand: link it again
            self._make_patched(variant, digest)

    def _make_base(self) -> None:
        patched = "".join(f", {patch.stem}" for patch in self._under)
        name = f"Linux {self._source.version}{patched}, config {self._config}"
        if self._state.making != self._base:
            self._report(f"{name}: configuring")
            # Objects of another compiler or configuration: nothing of them can be trusted.
            for folder in (self._objects, self._snapshot):
                shutil.rmtree(folder, ignore_errors=True)
            store.need_space(self._home, BASE_BYTES.get(self._config, 0), "the first build")
            make.configure(self._source, self._config, self._objects)
            self._save(_State(making=self._base))
        with sources.applied(self._source, self._under, 0, self._under) as changed:
            try:
                self._compile(name, OBJECTS.get(self._config, 0), changed)
            except BuildError:
                if changed:  # the next time what gave a warning would be there
                    self._save(_State())
                raise
        self._publish(self._base)
        self._report(f"{name}: keeping its objects")
        store.sync(self._objects, self._snapshot, _LINKED)
        self._save(_State(base=self._base, making=self._base, clean=True))

    def _make_patched(self, variant: Variant, digest: str) -> None:
        name = f"{variant}, config {self._config}"
        store.need_space(self._home, VARIANT_BYTES, "a build")
        if not (self._state.making == digest and self._state.clean):
            # First the word that the objects are no longer what they were, then the deed.
            self._save(_State(base=self._base))
            self._report(f"{name}: restoring the unpatched objects")
            store.sync(self._snapshot, self._objects)
            # A clock that was set back would otherwise leave the patched files the older ones.
            newest = max((seen.st_mtime_ns for _, seen in store.entries(self._snapshot)), default=0)
            self._state.mtime_ns = max(time.time_ns(), newest + 1_000_000)
        since = self._state.mtime_ns
        with sources.applied(self._source, variant.patches, since, self._under) as changed:
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
        source, objects = self._source, self._objects
        jobs = f"-j{len(os.sched_getaffinity(0))}"
        command = make.command(
            source, objects, jobs, *make.flags(self._config, source.version), "bzImage"
        )
        most = self._boxed if patched else None
        if most:
            command = most.command(command, source.tree, objects)
        make.run(name, source, command, objects, self._lock, self._report, expected, patched, most)

    def _publish(self, digest: str) -> None:
        with store.making(_place(digest), self._report) as work:
            if work is None:
                return
            for made in ("arch/x86/boot/bzImage", "vmlinux", ".config"):
                shutil.copyfile(self._objects / made, work / Path(made).name.removeprefix("."))
            with Image(work / "vmlinux") as image:
                build_id = image.build_id
            _Meta(build_id, self._source.version, compiler(), self._config).save(work / "meta.json")

    def _save(self, state: _State) -> None:
        self._state = state
        state.save(self._home / "state.json")
