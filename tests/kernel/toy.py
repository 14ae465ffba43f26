# SPDX-License-Identifier: MIT
"""A kernel tree of three files that is built in half a second, and otherwise as Linux is.

It has a version, `make O=DIR tinyconfig olddefconfig bzImage`, dependencies by make and compiler,
the messages of kbuild, and an ELF file with a build id and DWARF. So what surrounds the real build
(caches, patches, journals, interruptions) is tested without waiting for it.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from contended import tree
from contended.errors import ContendedError
from contended.kernel import source as sources
from contended.kernel.source import KernelSource
from contended.kernel.variants import Variant

MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 1
SUBLEVEL = 192
EXTRAVERSION =
SRC := $(CURDIR)
OBJECTS := $(O)/fs/namei.o $(O)/fs/dcache.o

tinyconfig:
	@mkdir -p $(O)
	@echo CONFIG_TINY=y > $(O)/.config

olddefconfig:
	@if grep -q CONFIG_NEEDS_ACPI $(O)/.config; then sed -i /NEEDS_ACPI/d $(O)/.config; fi

bzImage: $(O)/arch/x86/boot/bzImage

$(O)/arch/x86/boot/bzImage: $(O)/vmlinux
	@mkdir -p $(dir $@)
	@cp $< $@

$(O)/vmlinux: $(OBJECTS)
	@echo "  LD      vmlinux"
	@gcc -nostdlib -static -g -Wl,--build-id=sha1 -Wl,-e,0 -o $@ $^

$(O)/fs/%.o: $(SRC)/fs/%.c
	@mkdir -p $(dir $@)
	@echo "  CC      fs/$*.o"
	@if [ -e $(O)/../../../slow-$* ]; then touch $(O)/../../../sleeping; sleep 6000; fi
	@gcc -g -Wall -MD -I$(SRC)/include -fno-pie -c -o $@ $<

-include $(wildcard $(O)/fs/*.d)
.DELETE_ON_ERROR:
"""

FILES = {
    "Makefile": MAKEFILE,
    "Kconfig": "# none\n",
    "include/dcache.h": """\
struct lockref { unsigned long long lock_count; };
struct dentry {
	unsigned int d_flags;
	void *d_parent;
	union {
		struct lockref d_lockref;
		char d_small[4];
	};
	unsigned char d_iname[96];
	int d_time;
};
""",
    "fs/namei.c": """\
#include <dcache.h>

int look_up(struct dentry *d)
{
	return d->d_flags;
}

int look_down(struct dentry *d)
{
	return d->d_time;
}
""",
    "fs/dcache.c": """\
#include <dcache.h>

int dget(struct dentry *d)
{
	return ++d->d_lockref.lock_count;
}
""",
}


def change(name: str, *edits: tuple[str, str]) -> str:
    """The patch that makes these edits in one of the toy's files."""
    old = new = FILES[name]
    for before, after in edits:
        assert new.count(before) == 1, before
        new = new.replace(before, after)
    one, other = (text.splitlines(keepends=True) for text in (old, new))
    return "".join(difflib.unified_diff(one, other, f"a/{name}", f"b/{name}"))


NAMEI = "The message, which is no part of the change.\n---\n" + change(
    "fs/namei.c", ("d->d_flags", "d->d_flags + 1")
)
HEADER = change("include/dcache.h", ("unsigned int d_flags", "unsigned long d_flags"))
WARNS = change("fs/dcache.c", ("{\n", "{\n\tint unused;\n"))
BROKEN = change("fs/dcache.c", ("{\n", "{\n\tint unused\n"))
NEW_FILE = """\
--- /dev/null
+++ b/lib/new/more.c
@@ -0,0 +1 @@
+int more;
--- a/fs/dcache.c
+++ /dev/null
@@ -1,6 +0,0 @@
-#include <dcache.h>
-
-int dget(struct dentry *d)
-{
-	return ++d->d_lockref.lock_count;
-}
"""


@dataclass(frozen=True)
class Toy:
    """A home with the toy's tree and configuration, and a cache of its own."""

    home: Path
    cache: Path
    tree: Path

    def source(self) -> KernelSource:
        return sources.find(self.tree)

    def patch(self, text: str, name: str = "0001-a.patch") -> Path:
        file = self.home / "patches" / "toy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def variant(self, *patches: Path, name: str = "after", **fields: object) -> Variant:
        return Variant("toy", name, "a toy", patches=patches, **fields)  # type: ignore[arg-type]


def image(root: Path) -> dict[str, tuple[bytes, int]]:
    """All files of a folder: what is in them, and when they were changed."""
    return {
        str(file.relative_to(root)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def make(where: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Write the toy; its files are an hour old, as an unpacked tarball's are years."""
    home, cache, tree = where / "home", where / "cache", where / "linux"
    (home / "csrc").mkdir(parents=True)
    (home / "csrc" / "abi.h").touch()
    (home / "patches" / "config").mkdir(parents=True)
    lines = {"base": "CONFIG_BASE=y", "bare": "", "debug": "CONFIG_BASE=n", "up": ""}
    for name, line in lines.items():
        (home / "patches" / "config" / f"{name}.config").write_text(line + "\n")
    for name, text in FILES.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        then = time.time() - 3600
        os.utime(file, (then, then))
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    monkeypatch.setenv("CONTENDED_CACHE", str(cache))
    monkeypatch.delenv("CONTENDED_KERNEL_SOURCE", raising=False)
    return Toy(home, cache, tree)


def tarball(toy: Toy, where: Path, compression: str = "J") -> Path:
    """The toy as a distribution packs it: in a folder of its own."""
    file = where / "linux-toy.tar.xz"
    command = ["tar", f"-c{compression}f", str(file), "-C", str(toy.tree.parent), toy.tree.name]
    subprocess.run(command, check=True)
    return file


def real() -> KernelSource:
    """The real source, unpacked; the test that asks for it is skipped where there is none."""
    try:
        tree.home()
        return sources.find()
    except ContendedError as error:
        if "apt-get" not in str(error):
            raise
        pytest.skip(str(error))
