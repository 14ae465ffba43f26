# SPDX-License-Identifier: MIT
"""What dwarf.py says of a small program is what the compiler and binutils say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ctools import C, execute

from contended import cc
from contended.errors import ContendedError, UsageError
from contended.profile import assemble
from contended.profile.dwarf import Image
from contended.profile.entries import Frame, StructMember

SOURCE = C / "layouts.c"


def compiled(where: Path, *flags: str) -> Path:
    program = where / "layouts"
    done = execute(
        *(cc.compiler().command, "-O2", "-g", "-no-pie", "-Wl,--build-id", *flags),
        *("-o", program, SOURCE),
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module", params=["-gdwarf-5", "-gdwarf-4"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("layouts"), request.param)


@pytest.fixture
def image(program: Path) -> Iterator[Image]:
    with Image(program) as image:
        yield image


def line_of(text: str) -> int:
    """The line of the source that contains a text, which must be one only."""
    found = [i for i, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line]
    assert len(found) == 1, text
    return found[0]


def test_every_instruction_has_the_frames_that_addr2line_finds(image: Image) -> None:
    if shutil.which("addr2line") is None:
        pytest.skip("addr2line is not installed: apt-get install binutils")
    pcs = [
        pc
        for name in ("spin_lock", "take", "take_twice", "main")
        for pc in range(
            image.symbol(name).address, image.symbol(name).address + image.symbol(name).size
        )
    ]
    said = execute("addr2line", "-afie", image.path, *map(hex, pcs)).stdout
    expected: dict[int, list[tuple[str, str]]] = {}
    words = iter(said.split("\n"))
    here: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("0x"):
            here = expected.setdefault(int(word, 16), [])
        elif word:
            here.append((word, Path(next(words).split(" (disc")[0]).name))
    seen = {
        pc: [(frame.function, frame.place) for frame in frames]
        for pc, frames in assemble.frames(image, pcs).items()
    }
    assert seen == expected
    assert max(len(frames) for frames in seen.values()) == 3, "nothing was inlined twice"


def test_an_inlined_instruction_tells_where_it_was_inlined(image: Image) -> None:
    take = image.symbol("take")
    chains = [image.frames(pc) for pc in range(take.address, take.address + take.size)]
    deep = next(chain for chain in chains if len(chain) == 3)
    assert [frame.function for frame in deep] == ["innermost", "middle", "take"]
    assert deep[0].line == line_of("__atomic_add_fetch")
    assert deep[1].line == line_of("return innermost(e);")
    assert deep[2].line in (line_of("int got = middle(e);"), line_of("got = middle(e) + plain;"))
    assert deep[0].place == f"layouts.c:{deep[0].line}"


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "flags"),
        (4, "first"),
        (6, "second"),
        (8, "name[0]"),
        (23, "name[15]"),
        (24, "ref"),  # lock_count or lock: there is no telling
        (28, "ref.count"),
        (32, "lru/wait"),
        (40, "lru.prev"),
        (48, "children[0].next"),
        (72, "children[1].prev"),
        (96, "grid[0][0]"),
        (112, "grid[1][1]"),
        (120, "guard"),  # a typedef is not taken apart
        (124, "guard"),
        (128, "bit/bits"),
        (130, "pad"),
        (132, ""),
        (136, "parent"),
        (144, ""),
    ],
)
def test_the_member_at_an_offset(image: Image, offset: int, name: str) -> None:
    assert image.type("entry").at(offset) == name


def test_members_by_name(image: Image) -> None:
    entry = image.type("entry")
    assert (entry.name, entry.size) == ("entry", 144)
    assert entry.field("ref") == StructMember("ref", 24, 8)
    assert entry.field("ref.count") == StructMember("ref.count", 28, 4)
    assert entry.field("second") == StructMember("second", 6, 2)
    assert entry.field("children").size == 48
    with pytest.raises(UsageError, match=r"struct entry has no member 'ref\.none'"):
        entry.field("ref.none")


def test_types_behind_pointers_and_behind_the_end(image: Image) -> None:
    longest = image.type("long_entry")
    target = longest.target("entry")
    assert target is not None
    assert target.name == "entry"
    assert longest.target("last") is None
    assert longest.at(16) == ""
    assert longest.tail(16) == "tail[0].next"
    assert longest.tail(40) == "tail[1].prev"
    assert image.type("entry").tail(500) == ""
    with pytest.raises(UsageError, match="no member 'none'"):
        longest.target("none")


def test_short_and_shared_names_are_found(image: Image) -> None:
    assert image.type("ns").size == 4
    assert image.type("entry").size == 144
    assert image.type("entry", near="take").size == 144
    assert image.enumerator("PG_slab") == 9
    variable = image.variable("root_entry")
    assert variable is not None
    assert variable.name == "entry"
    assert image.variable("plain") is None
    assert image.variable("root_entry") is variable, "it is not looked for again"
    with pytest.raises(UsageError, match="no struct nothing"):
        image.type("nothing")
    with pytest.raises(UsageError, match="no constant PG_none"):
        image.enumerator("PG_none")


def test_symbols(image: Image) -> None:
    root = image.symbol("root_entry")
    assert root.size == 144
    assert image.symbol_at(root.address + 143) == root
    after = image.symbol_at(root.address + 144)
    assert after is None or after.name != "root_entry"
    assert image.symbol_at(8) is None
    assert image.has("take")
    assert not image.has("nothing")
    with pytest.raises(UsageError, match="no symbol 'nothing'"):
        image.symbol("nothing")


def test_of_the_worst_alone_the_debug_information_is_asked(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "RESOLVED_PCS", 1)
    take = image.symbol("take").address
    found = assemble.frames(image, [take, take + 1, 8])
    assert found == {
        take: image.frames(take),
        take + 1: (Frame("take", "", 0),),
        8: (Frame("?", "", 0),),
    }
    assert found[take][0].line


def test_the_calls_are_those_that_objdump_finds(image: Image) -> None:
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed: apt-get install binutils")
    for caller, count in (("take", 1), ("take_twice", 2), ("main", 0)):
        text = execute("objdump", "-d", "--no-show-raw-insn", image.path).stdout
        body = re.search(rf"<{caller}>:\n(.*?)\n\n", text, re.S)
        assert body
        listed = re.findall(r"^ *([0-9a-f]+):.*(?:call|jmp)\S* .*<spin_lock>", body[1], re.M)
        assert image.calls(caller, "spin_lock") == tuple(int(at, 16) for at in listed)
        assert len(listed) == count


def test_what_was_found_is_remembered_by_build(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = image.symbol("take").address
    first = assemble.frames(image, [take], tmp_path / "symbols")
    file = tmp_path / "symbols" / f"{image.build_id}.json"
    assert file.is_file()
    monkeypatch.setattr(image, "frames", lambda pc: (Frame("asked again", "", 0),))
    assert assemble.frames(image, [take], tmp_path / "symbols") == first
    fresh = assemble.frames(image, [take, take + 1], tmp_path / "symbols")
    assert fresh[take] == first[take]
    assert fresh[take + 1][0].function == "asked again"
    for damaged in ("", "{", "[]", '{"schema": 0}', '{"schema": 2, "frames": {"x": 1}}'):
        file.write_text(damaged)
        assert assemble.frames(image, [take], tmp_path / "symbols")[take][0].function == (
            "asked again"
        )


def test_a_cache_that_cannot_be_written_only_costs_time(image: Image, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    take = image.symbol("take").address
    found = assemble.frames(image, [take], tmp_path / "file" / "symbols")
    assert found[take][-1].function == "take"


def test_the_build_id_is_readelfs(image: Image) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed: apt-get install binutils")
    said = execute("readelf", "-n", image.path).stdout
    assert image.build_id in said
    assert len(image.build_id) == 40


@pytest.mark.parametrize("where", ["tree", "arch/linux", "include/linux"])
def test_names_of_files_do_not_tell_where_it_was_built(tmp_path: Path, where: str) -> None:
    """Built elsewhere, as a kernel is beside its source: that is where its headers are."""
    tree = tmp_path / where
    header, source = tree / "include/linux/list.h", tree / "fs/namei.c"
    assembly = tree / "arch/x86/lib/clear.S"
    for file in (header, source, assembly):
        file.parent.mkdir(parents=True)
    header.write_text("static inline int first(volatile int *p) { return *p; }\n")
    source.write_text(
        "#include <linux/list.h>\nstatic int hot;\n"
        "int look(void) { return first(&hot); }\nint main(void) { return look(); }\n"
    )
    assembly.write_text(".globl clear\nclear: nop\n.size clear, 1\n")
    include = f"-I{tree / 'include'}"
    for version in ("-gdwarf-4", "-gdwarf-5"):
        built = execute(
            *(cc.compiler().command, "-O2", "-g", version, "-no-pie", "-Wl,--build-id", include),
            *("-o", tmp_path / "namei", source, assembly),
        )
        assert built.returncode == 0, built.stderr
        with Image(tmp_path / "namei") as image:
            at = image.symbol("look")
            pcs = [*range(at.address, at.address + at.size), image.symbol("clear").address]
            frames = [image.frames(pc) for pc in pcs]
        files = {frame.file for each in frames for frame in each}
        assert files == {"fs/namei.c", "include/linux/list.h", "arch/x86/lib/clear.S"}, version


def test_bad_files_are_refused(tmp_path: Path, program: Path) -> None:
    with pytest.raises(ContendedError, match=r"cannot read .*none"):
        Image(tmp_path / "none")
    for content in (b"", b"\x7fELF", b"no ELF at all" * 100):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ContendedError, match="is no 64-bit ELF file"):
            Image(tmp_path / "bad")
    stripped = tmp_path / "stripped"
    shutil.copy(program, stripped)
    subprocess.run(["strip", stripped], check=True, env={**os.environ, "LC_ALL": "C"})
    with Image(stripped) as image:
        with pytest.raises(ContendedError, match="has no symbols"):
            image.symbol("main")
        with pytest.raises(ContendedError, match="has no debug information"):
            image.type("entry")
    nameless = compiled(tmp_path, "-Wl,--build-id=none")
    with Image(nameless) as image, pytest.raises(ContendedError, match="has no build id"):
        image.build_id  # noqa: B018
