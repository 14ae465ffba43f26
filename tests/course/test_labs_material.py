# SPDX-License-Identifier: MIT
"""The labs' own material: notebooks as they are in git, harnesses that count, a box that lies.

Whether a lab grades as it says is another question: see test_labs.py.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ctools import compile_c, execute

from contended import tree
from contended.course import lab

LABS = tree.home() / "labs"
SLUGS = sorted(path.parent.name for path in LABS.glob("*/lab.toml"))
C_LABS = {
    "lockref-degrade": ("lockref.c", "sim.c"),
    "percpu-area-map": ("areas.c", "count.c"),
    "proc-mounts-seek": ("reader.c", "drive.c"),
    "struct-layout": ("object.c", "lines.c"),
}
RUNS: dict[str, list[tuple[str, ...]]] = {
    "lockref-degrade": [
        ("script", "get", "3", "10", "2", "1:hold", "3:+2", "5:drop"),
        ("script", "put", "1", "10", "2", "line:+1"),
        ("cpus", "6", "200", "40", "3", "20", "9", "5"),
    ],
    "percpu-area-map": [
        ("fill", "500", "3", "random", "1000000", "2"),
        ("holes", "400", "first", "1000000", "2"),
        ("mixed", "2000", "900", "40", "10000000", "2"),
        ("refuse", "300", "1000000", "2"),
    ],
    "proc-mounts-seek": [
        ("400", "0", "2", "2", "next", "2", "1", "1000000", "3"),
        ("0", "4096", "0", "1", "any", "1", "1", "1000000", "3"),
    ],
    "struct-layout": [("layout",), ("run", "16", "4", "4", "3", "2", "100", "5")],
}


def cells_of(slug: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (LABS / slug / f"{slug}.ipynb").read_text(encoding="utf-8")
    )["cells"]
    return found


@pytest.fixture(scope="module")
def measuring() -> tuple[ModuleType, ModuleType]:
    """The box, and the benchmark that was given."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, LABS / "measuring" / f"{name}.py")
        assert spec
        assert spec.loader
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    box = load("box")
    return box, load("lying")


# --- Notebooks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", SLUGS)
def test_a_notebook_has_ids_and_no_outputs(slug: str) -> None:
    cells = cells_of(slug)
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids)
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            assert cell["execution_count"] is None
    assert "SPDX-License-Identifier: CC-BY-4.0" in "".join(cells[0]["source"])


@pytest.mark.parametrize("slug", SLUGS)
def test_a_notebook_says_what_it_takes_and_folds_its_hints(slug: str) -> None:
    about = lab.load(LABS / slug)
    text = "\n".join("".join(c["source"]) for c in cells_of(slug) if c["cell_type"] == "markdown")
    assert f"about {about.minutes} minutes" in text
    assert re.search(rf"\*\*Points:\*\* {about.points}\b", text)
    assert "After this lab you can" in text
    assert text.count("<details>") == text.count("</details>") >= 4
    assert all(part.rubric and part.hint for part in about.parts)


@pytest.mark.parametrize("slug", SLUGS)
def test_a_notebook_names_its_chapter_as_the_book_does(slug: str, root: Path) -> None:
    text = "".join(cells_of(slug)[0]["source"])
    named = re.search(r"chapter (\d+), \*([^*]+)\*", text)
    assert named
    (chapter,) = (root / "notebooks").glob(f"{int(named[1]):02}-*.ipynb")
    if any((root / "notebooks").glob(f"*-{slug}.ipynb")):
        assert chapter.stem.endswith(slug)
    title = "".join(json.loads(chapter.read_text(encoding="utf-8"))["cells"][0]["source"])
    assert f"# {named[2]}\n" in title


@pytest.mark.parametrize("slug", SLUGS)
def test_no_lab_looks_at_a_clock(slug: str) -> None:
    folder = LABS / slug
    code = [path.read_text() for path in folder.glob("*.[ch]")]
    code += ["".join(c["source"]) for c in cells_of(slug) if c["cell_type"] == "code"]
    for text in code:
        assert not re.search(r"clock_gettime|gettimeofday|rdtsc|perf_counter|time\.time", text)


# --- C -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", C_LABS)
def test_counts_are_the_same_each_time_and_no_sanitizer_complains(
    slug: str, tmp_path: Path
) -> None:
    student, harness = C_LABS[slug]
    flags = ("-D_GNU_SOURCE", "-O1", "-g", "-iquote", str(LABS / slug))
    files = (str(LABS / slug / student),)
    plain = compile_c(tmp_path / "plain", LABS / slug / harness, *flags, link=files)
    strict = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    checked = compile_c(tmp_path / "checked", LABS / slug / harness, *flags, *strict, link=files)
    for words in RUNS[slug]:
        first, again = execute(plain, *words), execute(plain, *words)
        assert first.stdout == again.stdout
        assert json.loads(first.stdout)["fault"] == ""
        if slug == "lockref-degrade" and words[0] == "cpus":
            continue  # stacks of its own confuse the sanitizer
        watched = execute(checked, *words)
        assert watched.returncode == 0, watched.stderr
        assert watched.stdout == first.stdout


@pytest.mark.parametrize("slug", C_LABS)
def test_a_harness_refuses_what_it_does_not_know(slug: str, tmp_path: Path) -> None:
    student, harness = C_LABS[slug]
    flags = ("-D_GNU_SOURCE", "-iquote", str(LABS / slug))
    files = (str(LABS / slug / student),)
    program = compile_c(tmp_path / "program", LABS / slug / harness, *flags, link=files)
    done = execute(program, "nonsense")
    assert done.returncode == 2
    assert done.stderr


@pytest.mark.parametrize("slug", C_LABS)
def test_wrong_solutions_compile_without_a_warning(slug: str, tmp_path: Path) -> None:
    student, harness = C_LABS[slug]
    for number, wrong in enumerate(sorted((LABS / slug / "wrong").glob(f"*/{student}"))):
        flags = ("-D_GNU_SOURCE", "-O2", "-iquote", str(LABS / slug))
        compile_c(tmp_path / str(number), LABS / slug / harness, *flags, link=(str(wrong),))


def test_waiters_without_patience_stay_in_the_queue(tmp_path: Path) -> None:
    """The state that feeds itself: nobody asks for the lock any more, and nearly all take it."""
    folder = LABS / "lockref-degrade"
    program = compile_c(
        tmp_path / "sim", folder / "sim.c", "-D_GNU_SOURCE", "-O2", "-iquote", str(folder),
        link=(str(folder / "lockref.c"),),
    )  # fmt: skip

    def locked(looks: int, turns: int) -> list[float]:
        words = ("cpus", "8", "1000", str(looks), str(turns), "100", "20", "1")
        seen = json.loads(execute(program, *words).stdout)
        return [lock / refs for lock, refs in zip(seen["locked"], seen["refs"], strict=True)]

    hasty, patient = locked(100, 1), locked(100, 100)
    assert hasty[0] == 0
    assert hasty[2] > 0.9
    assert max(patient) < 0.01


def test_what_a_layout_costs_its_readers(tmp_path: Path) -> None:
    """By hand: of two references, each second one finds the line modified by the other."""
    folder = LABS / "struct-layout"
    flags = ("-D_GNU_SOURCE", "-O2", "-iquote", str(folder))

    def seen(source: Path, *words: str) -> dict[str, list[int]]:
        made = compile_c(tmp_path / "lines", folder / "lines.c", *flags, link=(str(source),))
        found: dict[str, list[int]] = json.loads(execute(made, "run", *words).stdout)
        return found

    right, wrong = folder / "object.c", folder / "wrong" / "counter-only" / "object.c"
    few = ("1", "1", "0", "1", "0", "500", "1")
    assert seen(right, *few)["hitm"] == [0, 0, 0, 0]
    # A lookup after a reference is a HITM, one after another lookup is none.
    hits, _, lost, _ = seen(wrong, *few)["hitm"]
    assert 0.4 * 500 < hits < 0.6 * 500
    assert lost == 0  # a copy is taken away without being modified
    assert 0.4 * 1000 < seen(right, "1", "0", "0", "2", "0", "500", "1")["hitm"][2] < 0.6 * 1000


# --- The box -------------------------------------------------------------------------------------


def test_a_box_is_its_seed(measuring: tuple[ModuleType, ModuleType]) -> None:
    box, _ = measuring
    plan = [box.ask([box.MULTIPLY, box.KEEP], cpus=[0]), box.ask([box.SHARED], threads=2)]
    assert box.Box(3).run_all(plan) == box.Box(3).run_all(plan)
    assert box.Box(3).run_all(plan) != box.Box(4).run_all(plan)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_every_answer_of_the_given_benchmark_is_wrong(
    measuring: tuple[ModuleType, ModuleType], seed: int
) -> None:
    box, lying = measuring

    def machine(**how: Any) -> Any:
        return box.Box(seed, **how)

    truth = machine().truth()
    own = truth["loop"] + truth["add"]
    shared = max(own + truth["handover"], 2 * truth["handover"])
    work = lying.work_ns(machine().run_all(lying.work_plan()))
    assert abs(work / (16 * truth["multiply"]) - 1) > 0.1
    sharing = lying.sharing_factor(machine().run_all(lying.sharing_plan([0, 1])))
    assert abs(sharing / (shared / own) - 1) > 0.03
    curve = dict(lying.think_curve(machine().run_all(lying.think_plan([0, 1]))))
    assert abs(curve[1000] / ((own + 1000 + truth["handover"]) / (own + 1000)) - 1) > 0.03
    same = [box.MULTIPLY, box.KEEP]
    plan = lying.compare_plan(same, same, 0)
    assert abs(lying.speed_up(machine(neighbour_at=10).run_all(plan)) - 1) > 0.2
    points = [[n, box.usl(n, 1e6, 0.1, 0.01)] for n in (1, 2, 4)]
    assert lying.predict(points, 32)[0] / box.usl(32, 1e6, 0.1, 0.01) > 2


@pytest.mark.parametrize(
    "request_",
    [
        {"body": ["y += 1"]},
        {"cpus": [7]},
        {"threads": 2, "cpus": [0]},
        {"threads": 0},
        {"speed": 3},
    ],
)
def test_the_box_refuses_what_it_does_not_know(
    measuring: tuple[ModuleType, ModuleType], request_: dict[str, Any]
) -> None:
    box, _ = measuring
    with pytest.raises(ValueError, match=r"box|CPU|begin"):
        box.Box(1).run(request_)


# --- The reviewer ---------------------------------------------------------------------------------


def test_of_all_interleavings_each_patch_has_its_own_fault() -> None:
    """Exhaustively: the model says of the patches what the lab asks for, and no more."""
    spec = importlib.util.spec_from_file_location("replay", LABS / "reviewer" / "replay.py")
    assert spec
    assert spec.loader
    replay = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(replay)
    found: dict[str, set[str]] = {}
    shortest = 99
    for patch in replay.PATCHES:
        left: list[list[list[str]]] = [[]]
        seen: set[str] = set()
        while left:
            trace = left.pop()
            machine = replay.replay(patch, trace)
            state = str({k: v for k, v in vars(machine).items() if k != "order"})
            if state in seen:
                continue
            seen.add(state)
            for finding in ("lost", "deadlock", "busy"):
                if getattr(machine, finding):
                    found.setdefault(finding, set()).add(patch)
                    shortest = min(shortest, len(trace)) if finding == "lost" else shortest
            assert not (machine.lost and machine.released)
            for who, steps in machine.order.items():
                for what in steps[len(machine.done[who]) :][:1]:
                    try:
                        replay.replay(patch, [*trace, [who, what]])
                    except replay.Refused:
                        continue
                    left.append([*trace, [who, what]])
    assert found == {"lost": {"B"}, "deadlock": {"C"}, "busy": {"A", "C"}}
    assert shortest == 6


@pytest.mark.parametrize(("letter", "number"), [("a", "0002"), ("b", "0003"), ("c", "0001")])
def test_the_patches_for_review_are_those_of_the_kernel_lab(
    letter: str, number: str, root: Path
) -> None:
    (known,) = (root / "patches" / "umount-grace-period").glob(f"{number}-*.patch")
    given = (LABS / "reviewer" / f"{letter}.patch").read_text()
    assert given[given.index("diff --git") :] in known.read_text()
    assert "Do not use this" not in given


# --- Patches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch", sorted(LABS.glob("*/**/*.patch")), ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_a_patch_of_a_lab_changes_what_is_allowed_or_nothing(patch: Path) -> None:
    text = patch.read_text()
    files = re.findall(r"^\+\+\+ b/(\S+)", text, re.M)
    if patch.name == "fix.patch" and "wrong" not in patch.parts:
        assert not files  # what a student begins with
        return
    assert files
    about = lab.load(next(p for p in patch.parents if (p / "lab.toml").exists()))
    # What the lab adds to a submission is its own; some of it is where no submission may be.
    assert patch.parent == about.folder or all(f.startswith(about.patch.allow) for f in files)
    assert text.startswith("Subject: [PATCH] ")
    assert "SPDX-License-Identifier: GPL-2.0-only" in text
