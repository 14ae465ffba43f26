# SPDX-License-Identifier: MIT
"""The scoreboard: every published number has a row, a verdict that follows, and a reason."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support import make_home, one_line

from contended import cases, register
from contended.book import scoreboard
from contended.cases.evidence import Evidence, Read, RunProbe, Runs, count, lab, lab_text, ratio
from contended.cli import main
from contended.errors import ContendedError
from contended.measure import TooFewCpus, results
from contended.measure.results import Measurement
from contended.scoreboard import board, simulated
from contended.scoreboard.board import Entry
from contended.show import claims, lesson
from contended.simulate import predict
from contended.simulate.predict import Predicted


@pytest.fixture(scope="module")
def entries(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Entry, ...]:
    """The board of the recorded runs alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTENDED_HOME", str(root))
        return board.board(tmp_path_factory.mktemp("nothing-fresh"))


# --- every number --------------------------------------------------------------------------------


def test_every_published_number_has_a_row(entries: tuple[Entry, ...]) -> None:
    shown = {(e.slug, e.figure, row.name) for e in entries for row in e.rows}
    for case in register.all():
        for figure in case.published:
            for value in figure.values:
                assert (case.slug, figure.id, value.name) in shown
        for kept in simulated.load(case.slug):
            assert (case.slug, kept.figure, kept.name) in shown
    assert len(entries) == sum(len(case.published) for case in register.all())


def test_the_evidence_is_of_figures_that_there_are() -> None:
    for case in register.all():
        assert cases.study(case.slug).evidence.keys() == {figure.id for figure in case.published}
    found = [each for slug in register.slugs() for each in cases.study(slug).evidence.values()]
    for about in found:
        # either a reading or the reason why there is none, never both
        assert bool(about.userspace) != bool(about.no_userspace)
        assert bool(about.kernel) != bool(about.no_kernel)
        assert about.note.strip()


def test_every_verdict_has_a_reason_and_every_row_a_source(entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        assert entry.url.startswith("https://")
        for row in entry.rows:
            assert len(row.why.split()) > 3, row
            assert row.why.endswith(".")
            assert entry.note.endswith(".")


def test_reasons_lead_to_sections_that_there_are(entries: tuple[Entry, ...], root: Path) -> None:
    for entry in entries:
        notebook = json.loads((root / "notebooks" / f"{entry.notebook}.ipynb").read_text())
        prose = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
        heads = re.findall(r"^#+ (.+)$", prose, re.M)
        ids = {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}
        assert entry.section in ids, (entry.notebook, entry.section)


def test_every_reading_is_in_a_file_of_the_tree(entries: tuple[Entry, ...], root: Path) -> None:
    readings = [reading for e in entries for reading in (*e.userspace, *e.kernel)]
    assert readings
    for reading in readings:
        assert not reading.live
        assert list(root.glob(reading.source)), reading.source
        assert re.search(r"\d", reading.text)


# --- verdicts ------------------------------------------------------------------------------------


def test_a_verdict_is_that_of_what_can_be_compared(entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        for row in entry.rows:
            readings = (*entry.userspace, *entry.kernel)
            same = [r for r in readings if r.of == row.name]
            assert row.compared == tuple(r.what for r in same)
            if row.simulated is None and not same:
                assert row.verdict == "cannot"
                continue
            held = all(board.near(r.value, row.published, row.unit) for r in same)
            if row.simulated is not None:
                held &= predict.holds(row.simulated, row.published, row.unit)
            assert row.verdict == ("held" if held else "differs"), row
    assert min(board.tally(entries).values()) > 0
    assert sum(board.tally(entries).values()) == sum(len(e.rows) for e in entries)


@pytest.mark.parametrize(
    ("value", "published", "unit", "agrees"),
    [
        (1.9, (2.0, 2.0), "exponent of N", True),
        (1.8, (2.0, 2.0), "exponent of N", False),
        (2.2, (2.0, 2.0), "exponent of N", False),
        (4200.0, (4096.0, 4096.0), "chains", True),
        (2048.0, (4096.0, 4096.0), "chains", False),
        (0.0, (0.0, 0.0), "HITM", True),
        (0.1, (0.0, 0.0), "HITM", False),
        (52.0, (50.0, 55.0), "s", True),
    ],
)
def test_near(value: float, published: tuple[float, float], unit: str, agrees: bool) -> None:
    assert board.near(value, published, unit) is agrees


@pytest.mark.parametrize("simulated_agrees", [False, True])
def test_one_reading_that_disagrees_decides(
    root: Path, monkeypatch: pytest.MonkeyPatch, simulated_agrees: bool
) -> None:
    """A published number that nobody here sees turns its row, and no other."""
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    case = register.get("mount-hash")
    figure = case.published[0]
    wrong = replace(figure.value("before"), low=512.0, high=512.0)
    changed = replace(figure, values=(wrong, *figure.values[1:]))
    agreed: dict[str, Any] = {"simulated": 512.0, "verdict": "held"} if simulated_agrees else {}
    kept = tuple(
        replace(row, published=(512.0, 512.0), **agreed) if row.name == "before" else row
        for row in simulated.load("mount-hash")
    )
    rows = board._entry(
        case,
        changed,
        cases.study(case.slug).evidence[figure.id],
        Runs(case.slug),
        kept,
        "https://a.invalid",
    ).rows
    assert [row.verdict for row in rows] == ["differs", "held"]
    assert "agree" in rows[0].why


# --- records and live runs -----------------------------------------------------------------------


@pytest.mark.parametrize("slug", register.slugs())
def test_the_recorded_predictions_are_what_is_simulated_now(slug: str) -> None:
    for kept, fresh in zip(simulated.load(slug), cases.prediction(slug).rows, strict=True):
        assert _words(kept) == _words(fresh), f"run {simulated.COMMAND}"
        assert kept.published == pytest.approx(fresh.published, rel=1e-9)
        assert (kept.simulated is None) == (fresh.simulated is None)
        if fresh.simulated is not None:
            numbers = (fresh.simulated, fresh.low, fresh.high)
            assert (kept.simulated, kept.low, kept.high) == pytest.approx(numbers, rel=1e-9), (
                f"run {simulated.COMMAND}"
            )


def _words(row: Predicted) -> tuple[object, ...]:
    return row.figure, row.name, row.unit, row.machine, row.cpus, row.verdict, row.why


def test_a_missing_or_damaged_record_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    with pytest.raises(ContendedError, match="contended scoreboard --simulate"):
        simulated.load("overlay-creds")
    place = home / "results" / "overlay-creds" / "predictions.json"
    place.parent.mkdir(parents=True)
    for text in ("", "{}", '{"rows": [{"figure": "x"}]}', "[1]"):
        place.write_text(text)
        with pytest.raises(ContendedError, match="is no record of predictions: run contended"):
            simulated.load("overlay-creds")


@pytest.fixture
def kept(root: Path) -> Measurement:
    return results.load(root / "results" / "mount-propagation" / "binds-4000.json")


def test_what_the_build_measured_goes_before_the_record(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Measurement
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    monkeypatch.setenv(lesson.FRESH, str(tmp_path))
    monkeypatch.delenv(claims.RECORD, raising=False)
    probe = RunProbe("wasted", count("binds-4000", "before", "wasted"))
    name = "mount-propagation/binds-4000"
    assert not Runs("mount-propagation", tmp_path).read(probe).live
    assert lesson.live(name, lambda: kept) is kept
    reading = Runs("mount-propagation", tmp_path).read(probe)
    assert (reading.live, reading.source) == (True, f"{name}.json")
    assert reading.value == 7_998_000

    def too_few() -> Measurement:
        raise TooFewCpus("contention needs two CPUs")

    # a machine that can no longer measure shows no measurement of its own
    monkeypatch.setattr("IPython.display.display", lambda _: None)
    lesson.live(name, too_few)
    assert not Runs("mount-propagation", tmp_path).read(probe).live


def test_nothing_is_kept_outside_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Measurement
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (lesson.FRESH, claims.RECORD):
        monkeypatch.delenv(name, raising=False)
    lesson.live("mount-propagation/binds-4000", lambda: kept)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "read",
    [
        count("binds-4000", "before", "no-such-counter"),
        count("binds-4000", "no-such-variant", "wasted"),
        count("no-such-run", "before", "wasted"),
        ratio("binds-4000", "after", "no-such-phase"),
        lab("before", "no-such-metric"),
        lab_text("before", "dmesg", r"(\d+)"),
    ],
)
def test_a_probe_that_finds_nothing_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    with pytest.raises(ContendedError) as caught:
        Runs("mount-propagation").read(RunProbe("gone", read))
    assert "\n" not in str(caught.value)


def test_a_reading_of_a_value_that_there_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    about = Evidence(
        userspace=(RunProbe("w", count("binds-4000", "before", "wasted"), of="afterwards"),),
        no_kernel="n",
        note="n",
    )
    case = register.get("mount-propagation")
    with pytest.raises(ContendedError, match="has no value 'afterwards'"):
        board._entry(
            case, case.published[0], about, Runs(case.slug), simulated.load(case.slug), "u"
        )


# --- the command and the page --------------------------------------------------------------------


def test_the_command_prints_every_figure(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    assert main(["scoreboard"]) == 0
    out = capsys.readouterr().out
    for case in register.all():
        for figure in case.published:
            assert f"{case.slug}: {figure.id}\n" in out
    assert re.search(
        r"Of \d+ published numbers and ratios, \d+ held, \d+ differ, and \d+ cannot", out
    )


def test_the_command_as_json(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    assert main(["scoreboard", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["tally"]) == {"held", "differs", "cannot"}
    first = told["figures"][0]
    assert (first["slug"], first["rows"][0]["published"]) == ("lockref-degrade", [8401766.0] * 2)
    assert main(["scoreboard", "--json", str(tmp_path / "board.json")]) == 0
    assert json.loads((tmp_path / "board.json").read_text())["figures"] == told["figures"]
    assert "lockref-degrade: stat-collapse" in capsys.readouterr().out
    assert main(["scoreboard", "--json", str(tmp_path / "no" / "board.json")]) == 2
    assert "there is no folder" in one_line(capsys.readouterr().err)


def test_the_register_is_there_without_the_scoreboard() -> None:
    """Neither the package nor the board's command line pays for the simulator."""
    code = (
        "import sys, contended, contended.scoreboard.board; "
        "print([m for m in ('numba', 'pandas', 'sphinx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Table(HTMLParser):
    """Rows, reasons and links of the page's table, and whether all that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_a_reason_for_each_row(entries: tuple[Entry, ...], root: Path) -> None:
    text = scoreboard.html(entries, "../notebooks/")
    table = Table(text)
    assert not table.open
    rows = sum(len(entry.rows) for entry in entries)
    assert table.seen.count("details") == table.seen.count("summary") == rows
    inside = {link.partition("#")[0] for link in table.links if not link.startswith("https://")}
    chapters = {f"../notebooks/{case.notebook}.html" for case in register.all()}
    assert inside == chapters
    assert {entry.url for entry in entries} <= set(table.links)


def test_what_is_shown_is_escaped(entries: tuple[Entry, ...]) -> None:
    nasty = replace(entries[0], what="<script>", note="<b>", no_kernel="<i>", kernel=())
    text = scoreboard.html([nasty])
    assert not {"<script>", "<b>", "<i>"} & set(re.findall(r"<[^>]*>", text))


def test_the_first_page_asks_for_it(root: Path) -> None:
    assert "```{scoreboard}" in (root / "index.md").read_text()
    assert '"contended.book.scoreboard"' in (root / "conf.py").read_text()
