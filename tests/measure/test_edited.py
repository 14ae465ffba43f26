# SPDX-License-Identifier: MIT
"""Functions of the reader's own in a model: where they go, and that they are what runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from support import two_cpus

from contended import cc
from contended.errors import UsageError
from contended.measure import edited, measure, models, native

MODEL = """\
/* SPDX-License-Identifier: MIT */
#include "../harness.h"
#define TURNS 2 \\
	+ 1

static int helper(int (*f)(void))
{
	return TURNS + f();
}

LOOP(a, b)

static inline __attribute__((always_inline)) void
op(struct ct_worker *w)
{
	helper(0);
}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path))
    return tmp_path


def test_functions_are_found_in_every_model() -> None:
    assert edited.functions(MODEL) == ["helper", "op"]
    for slug in native.available():
        text = native.source(slug).read_text()
        found = edited.functions(text)
        assert "setup" in found or "setup_before" in found, slug
        named = set(re.findall(r"^(?:\w+ )+\*?(\w+)\([^;()]*\)\n\{", text, re.M))
        assert named, slug
        assert named <= set(found), slug


def test_each_goes_where_its_own_was_and_the_rest_before_the_first_function() -> None:
    cell = (
        "int mine;\n#define TURNS 5\nstatic inline void op(struct ct_worker *w) {\n\tmine++;\n}\n"
    )
    made = edited.edit(MODEL, cell, "model.c")
    order = ["TURNS 5", "helper(int", "LOOP(a, b)", "int mine;", "mine++"]
    places = [made.index(text) for text in order]
    assert places == sorted(places)
    assert "TURNS 2" not in made
    assert "helper(0)" not in made
    assert '#line 3 "your cell"\nstatic inline void op' in made
    assert '#line 5 "model.c"\n\nstatic int helper' in made, "the model's own lines keep theirs"
    assert '#include "harness.h"' in made


def test_a_cell_that_replaces_nothing_names_what_could_be(cache: Path) -> None:
    with pytest.raises(UsageError, match=r"no function of lockref_degrade\.c, which has: .*setup"):
        edited.edited("lockref-degrade", "#define RETRIES 3\nint other(void)\n{\n}\n")


def test_a_mistake_is_counted_from_the_top_of_the_cell(cache: Path) -> None:
    cell = "\nstatic void teardown(struct ct_run *run)\n{\n\tint n = run->no_such;\n}\n"
    with pytest.raises(cc.CompileError, match=r"your cell:4:\d+: error"):
        models.describe(edited.edited("lockref-degrade", cell))


def test_pieces_are_replaced_however_their_lines_are_broken(cache: Path) -> None:
    made = edited.replace(
        MODEL, {"{ helper(0); }": "{ w->sink++; }", "TURNS 2 \\": "TURNS 7"}, "m.c"
    )
    assert "op(struct ct_worker *w)\n{ w->sink++; }\n" in made
    assert '#include "harness.h"' in made, "the kept file lies elsewhere"
    assert made.count("TURNS") == MODEL.count("TURNS")
    chained = edited.replace(MODEL, {"helper(0)": "helper(1)", "helper(1)": "other(1)"}, "m.c")
    assert "other(1)" in chained, "one after the other"


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        ("no_such_thing()", "has 'no_such_thing\\(\\)' not"),
        ("helper", "has 'helper' 2 times"),
        (" ", "not"),
    ],
)
def test_a_piece_stands_there_once_or_nothing_is_changed(
    piece: str, why: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=why + ": give what stands there just once"):
        edited.replace(MODEL, {piece: "x"}, "model.c")
    with pytest.raises(UsageError, match=r"lockref_degrade\.c has"):
        edited.edited("lockref-degrade", {"no such text": "x"})
    assert not list(cache.rglob("*.c"))


#: A model whose counts tell which of its two bodies ran.
COUNTS = "static inline void shared_op(struct ct_worker *w)\n{\n\tw->local[0]++;\n}\n"


@two_cpus
def test_it_is_measured_beside_the_models_own(cache: Path) -> None:
    """A shared counter that nobody adds to fails the check of its sum: so the cell's C ran."""
    file = edited.edited("measuring", COUNTS)
    beside = {"yours": (file, "shared"), "same": (native.source("measuring"), "shared")}
    done = measure(
        "measuring", variants=["shared"], beside=beside, threads=[1], repeats=1, ops=10, slices=1
    )
    assert {name: len(v.samples) for name, v in done.variants.items()} == {
        "shared": 1,
        "yours": 0,
        "same": 1,
    }
    (failure,) = done.failures
    assert failure.variant == "yours"
    assert list(done.ratio) == ["yours/shared", "same/shared"]
    with pytest.raises(UsageError, match="describes itself otherwise"):
        measure("measuring", beside={"x": (native.source("pingpong"), "store")}, threads=[1])


@pytest.fixture
def shell(cache: Path) -> Iterator[InteractiveShell]:
    made = InteractiveShell.instance()  # type: ignore[no-untyped-call, unused-ignore]
    made.run_line_magic("load_ext", "contended.show.magic")
    yield made
    InteractiveShell.clear_instance()


@two_cpus
def test_the_magic_shows_tables_and_one_line_of_what_is_wrong(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(line: str, cell: str) -> str:
        shell.run_cell(  # type: ignore[no-untyped-call, unused-ignore]
            f"%%model {line}\n{cell}"
        )
        seen = capsys.readouterr()
        return seen.out + seen.err

    good = said("measuring --of shared --threads 1 --repeats 1", COUNTS)
    assert "failed" in good
    assert "yours/" not in good, "there is nothing to pair"
    assert list(shell.user_ns["yours"].variants)[-1] == "yours"
    for line, cell, words in [
        ("no-such", COUNTS, "no model 'no-such'; there are: "),
        ("measuring --threads 0", COUNTS, "threads"),
        ("measuring --repeat", COUNTS, "usage: %%model"),
        ("measuring --set hold", COUNTS, "is not like name=123"),
        ("measuring", "int x;", "the cell holds no function of measuring.c"),
        ("measuring", COUNTS.replace("++", "+ +"), "your cell:3"),
    ]:
        text = said(line, cell)
        assert words in text
        assert "Traceback" not in text
    monkeypatch.setenv("CONTENDED_RECORDED", "1")
    assert "recorded runs" in said("measuring", COUNTS)
