# SPDX-License-Identifier: MIT
"""What the tests of C share: strict builds, the oracles of tests/c, and models with a mistake."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from contended import cc, tree
from contended.measure import native

ROOT = tree.home()
C = ROOT / "tests" / "c"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{ROOT / 'csrc'}"]

# What the thread sanitizer cannot know of libraries that were built without it, with reasons.
# In quotes, since the folder's name may have a space in it.
TSAN = {"TSAN_OPTIONS": f"suppressions='{C / 'tsan.supp'}':print_suppressions=0"}


def libraries(slug: str) -> tuple[str, ...]:
    """What a model is linked with; the test is skipped if that is not here."""
    try:
        native.build(slug)
    except native.MissingPackage as lacking:
        pytest.skip(str(lacking))
    return native.link_flags(native.source(slug))


def compile_c(out: Path, source: Path, *flags: str, link: tuple[str, ...] = ()) -> Path:
    """Compile without a warning; skipped if this compiler lacks a sanitizer's runtime."""
    run = subprocess.run(
        [cc.compiler().command, *STRICT, *flags, "-o", str(out), str(source), *link],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in run.stderr and "-fsanitize" in " ".join(flags):
        pytest.skip(f"this compiler has no runtime for {flags}: install gcc's sanitizer libraries")
    assert run.returncode == 0, run.stderr
    return out


def execute(*command: str | Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """Run to the end, whatever it returns."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env={**os.environ, **TSAN},
    )


def runner(where: Path, model: Path, *flags: str, link: tuple[str, ...] = ()) -> Path:
    """tests/c/run_model.c around a model: runs it without Python."""
    return _around(where, model, "run_model", flags, link)


def oracle(where: Path, model: Path, *flags: str) -> Path:
    """The model's own tests/c/..._oracle.c around it: compares it with something simpler."""
    return _around(where, model, f"{model.stem}_oracle", flags)


def mutant(where: Path, slug: str, *changes: tuple[str, str]) -> Path:
    """A copy of the model, with its headers, in which each `old` became `new`."""
    source = native.source(slug)
    text = source.read_text()
    for old, new in changes:
        found = text.count(old)
        assert found == 1, f"{source.name} has {old!r} {found} times: bring this mistake up to date"
        text = text.replace(old, new)
    model = where / "models" / source.name
    model.parent.mkdir()  # the headers lie above it, as in csrc
    for header in (ROOT / "csrc").glob("*.h"):
        shutil.copy(header, where)
    model.write_text(text)
    return model


def _around(
    where: Path, model: Path, driver: str, flags: tuple[str, ...], link: tuple[str, ...] = ()
) -> Path:
    # a mistake may leave something unused
    lenient = () if model.is_relative_to(ROOT / "csrc") else ("-Wno-unused",)
    return compile_c(
        where / driver, C / f"{driver}.c", *flags, *lenient, f'-DMODEL="{model}"', link=link
    )
