# SPDX-License-Identifier: MIT
"""Compiling models when they are used: once, again after an edit, and never half."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import MODELS, eventually, make_home

from contended import cc, tree
from contended.errors import ContendedError, UsageError
from contended.measure import models, native


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home and a cache of this test's own."""
    monkeypatch.setenv("CONTENDED_HOME", str(make_home(tmp_path / "home", "hostile")))
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "cache"))
    cc.compiler.cache_clear()
    yield tmp_path / "home"
    cc.compiler.cache_clear()


def cached(home: Path) -> list[Path]:
    return [p for p in (home.parent / "cache").rglob("*") if not p.is_dir()]


def test_the_models_are_found(home: Path) -> None:
    assert {"hostile", "lockref-degrade", "measuring", "pingpong"} == set(native.available())
    assert native.source("lockref-degrade").name == "lockref_degrade.c"
    with pytest.raises(UsageError, match=r"no model 'lockref_degrade'; there are: .*pingpong"):
        native.source("lockref_degrade")


def test_a_build_is_kept_until_something_it_is_made_of_changes(home: Path) -> None:
    first = native.build("measuring")
    made = first.stat()
    again = native.build("measuring")
    assert again == first
    assert again.stat().st_mtime_ns == made.st_mtime_ns
    assert again.stat().st_ino == made.st_ino

    builds = {first}
    for edited in ("models/measuring.c", "harness.h", "abi.h", "locks.h"):
        with (home / "csrc" / edited).open("a") as file:
            file.write("/* edited */\n")
        builds.add(native.build("measuring"))
    assert len(builds) == 5
    # What is made of other things stays.
    other = native.build("hostile")
    with (home / "csrc" / "models" / "measuring.c").open("a") as file:
        file.write("/* again */\n")
    assert native.build("hostile") == other


def test_another_compiler_builds_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = native.build("measuring")
    wrapper = tmp_path / "other-cc"
    wrapper.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo other 2.0; exit; }\n'
        f'exec {cc.compiler().command} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    cc.compiler.cache_clear()
    assert cc.compiler() == cc.Compiler(str(wrapper), "other 2.0")
    assert native.build("measuring") != first


def test_an_edit_is_what_runs(home: Path) -> None:
    assert models.describe("measuring").summary != "edited just now"
    file = home / "csrc" / "models" / "measuring.c"
    file.write_text(re.sub(r'\.summary = ".*"', '.summary = "edited just now"', file.read_text()))
    assert models.describe("measuring").summary == "edited just now"


def test_a_model_may_lie_anywhere(home: Path, tmp_path: Path) -> None:
    shutil.copy(MODELS / "hostile.c", tmp_path / "mine.c")
    assert models.describe(tmp_path / "mine.c").slug == "hostile"
    with pytest.raises(ContendedError, match=r"cannot read .*gone\.c: No such file"):
        native.build(tmp_path / "gone.c")


def test_a_compile_error_leaves_nothing_and_carries_the_whole_message(home: Path) -> None:
    with pytest.raises(ContendedError, match=r"compile_error\.c:6:\d+: error: ") as caught:
        native.build(MODELS / "compile_error.c")
    assert "\n" not in str(caught.value)
    assert "error_handler" in caught.value.__notes__[0], "the warning is in the note"
    assert cached(home) == []


def test_a_missing_header_is_named(home: Path) -> None:
    with pytest.raises(ContendedError, match=r"the header no_such_library/anywhere\.h is missing"):
        native.build(MODELS / "missing_header.c")


def test_builds_at_the_same_time_do_not_disturb_each_other(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(lambda _: native.build("measuring"), range(8)))
    assert len(set(built)) == 1
    assert cached(home) == [built[0]]
    assert models.describe("measuring").slug == "measuring"


def test_a_build_that_is_killed_is_never_taken_for_a_whole_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that writes half a file, and a machine that goes down just then."""
    slow = tmp_path / "slow-cc"
    slow.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo slow 1.0; exit; }\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f'printf half > "$2"; touch {tmp_path / "started"}; exec sleep 100\n'
    )
    slow.chmod(0o755)
    env = {
        **os.environ,
        "CC": str(slow),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    code = "from contended.measure import native; native.build('measuring')"
    with subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True) as process:
        assert eventually((tmp_path / "started").exists)
        os.killpg(process.pid, signal.SIGKILL)
    # The same compiler as far as the digest knows, but working now.
    slow.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo slow 1.0; exit; }\n'
        f'exec {cc.compiler().command} "$@"\n'
    )
    monkeypatch.setenv("CC", str(slow))
    cc.compiler.cache_clear()
    library = native.build("measuring")
    assert library.read_bytes() != b"half"
    assert models.describe("measuring").slug == "measuring"


def test_a_library_of_another_layout_is_refused(home: Path) -> None:
    """The digest should keep the two apart; if it ever does not, loading does."""
    library = native.build("measuring")
    header = home / "csrc" / "abi.h"
    header.write_text(header.read_text().replace("uint64_t ops;\n};", "uint64_t ops, more;\n};", 1))
    assert native.build("measuring") != library
    with pytest.raises(ContendedError, match=r"built from another abi\.h"):
        native.load(library, native.interface())


@pytest.mark.parametrize(
    ("name", "reason"), [("other_abi", "another abi.h"), ("no_model", "is no model")]
)
def test_what_is_no_model_is_refused(home: Path, name: str, reason: str) -> None:
    with pytest.raises(ContendedError, match=reason):
        models.describe(MODELS / f"{name}.c")


def test_the_declarations_hold_all_that_the_header_declares() -> None:
    text = (tree.home() / "csrc" / "abi.h").read_text()
    declared = native.declarations()
    assert "#include" not in declared
    assert "#define CT_ABI" in declared
    assert len(re.findall(r"^#define", declared, re.M)) == len(re.findall(r"^#define", text, re.M))
    ffi = native.interface()
    assert ffi.sizeof("struct ct_config") > 0


@pytest.mark.parametrize("variable", ["CONTENDED_CACHE", "XDG_CACHE_HOME"])
def test_where_the_cache_is(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONTENDED_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/somewhere")
    assert tree.cache_dir() == Path("/somewhere/.cache/contended")
    monkeypatch.setenv(variable, str(tmp_path))
    assert tree.cache_dir() in (tmp_path, tmp_path / "contended")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("CONTENDED_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ContendedError, match="set CONTENDED_CACHE"):
        tree.cache_dir()


def test_the_empty_operation_is_a_bare_loop(home: Path) -> None:
    """No call, and a counter that counts down: nothing that could take a nanosecond."""
    dump = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(native.build("measuring"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"<empty_loop>:\n(.*?)\n\n", dump, re.S)
    assert found
    code = [(int(m[1], 16), m[2]) for m in re.finditer(r"^\s*([0-9a-f]+):\s+(.*)$", found[1], re.M)]
    assert not [text for _, text in code if re.match(r"(call|bl)\b", text)]
    loops = []
    for at, text in code:
        if jump := re.match(r"(?:j\w+|b\.\w+|cbnz\s+\w+,)\s+([0-9a-f]+) <empty_loop", text):
            target = int(jump[1], 16)
            if target <= at:
                loops.append(sum(target <= address <= at for address, _ in code))
    assert loops
    assert min(loops) <= 3, dump[found.start() : found.end()]
