# SPDX-License-Identifier: MIT
"""What chapters show: predictions, boxes, tables, and reference runs where nothing can be run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import make_home

from contended.errors import ContendedError
from contended.measure import TooFewCpus, measure, results
from contended.measure.results import Failure, Measurement
from contended.measure.runner import RunFailed
from contended.show import claims, lesson, widget
from contended.show.table import Table


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measurement]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTENDED_CACHE", str(tmp_path_factory.mktemp("lesson")))
        done = measure(
            "measuring",
            variants=["kept", "empty"],
            threads=[1],
            repeats=1,
            slices=1,
            slice_ms=1.0,
            warmup_ms=0,
        )
        # A machine that others load, as tests are by each other, would have its own box shown.
        yield replace(done, provenance=replace(done.provenance, state=[]))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTENDED_HOME", str(make_home(tmp_path / "home")))
    monkeypatch.delenv(claims.RECORD, raising=False)
    return tmp_path / "home"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setattr("IPython.display.display", seen.append)
    return seen


def too_few() -> Measurement:
    raise TooFewCpus("contention needs two CPUs")


# --- live and recorded ---------------------------------------------------------------------------


def test_live_measures_and_records_nothing(
    home: Path, measured: Measurement, shown: list[Any]
) -> None:
    assert lesson.live("measuring/loop", lambda: measured) is measured
    assert not (home / "results").exists()
    assert shown == []


def test_live_records_when_told_to(
    home: Path, measured: Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("0", "", "yes"):
        monkeypatch.setenv(claims.RECORD, value)
        lesson.live("measuring/loop", lambda: measured)
        assert not (home / "results").exists()
    monkeypatch.setenv(claims.RECORD, "1")
    lesson.live("measuring/loop", lambda: measured)
    assert results.load(home / "results" / "measuring" / "loop.json").recorded
    assert lesson.recorded("measuring/loop").variants == measured.variants


def test_too_few_cpus_show_the_reference_run_and_say_so(
    home: Path, measured: Measurement, shown: list[Any]
) -> None:
    with pytest.raises(TooFewCpus):
        lesson.live("measuring/loop", too_few)
    assert shown == []
    lesson.reference("measuring/loop").parent.mkdir(parents=True)
    measured.save(lesson.reference("measuring/loop"))
    got = lesson.live("measuring/loop", too_few)
    assert got.recorded
    assert got.variants == measured.variants
    (box,) = shown
    assert box.kind == "warning"
    assert "contention needs two CPUs" in box.text
    assert "results/measuring/loop.json" in box.text


def test_a_failed_variant_stops_the_chapter_and_is_not_recorded(
    home: Path, measured: Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setenv(claims.RECORD, "1")
    failed = replace(
        measured, failures=[Failure(variant="kept", threads=1, repeat=0, reason="crashed")]
    )
    with pytest.raises(ContendedError, match="measuring, variant kept: crashed"):
        lesson.live("measuring/loop", lambda: failed)
    assert not (home / "results").exists()


def starved(measured: Measurement) -> Measurement:
    late = Failure(variant="kept", threads=1, repeat=0, reason="did not finish", late=True)
    return replace(measured, failures=[late])


def out_of_time() -> Measurement:
    raise RunFailed("did not finish within 5 s and was stopped", late=True)


def test_a_starved_run_is_replaced_by_the_recorded_one(
    home: Path, measured: Measurement, shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in (lambda: starved(measured), out_of_time):
        with pytest.raises(ContendedError, match="did not finish"):
            lesson.live("measuring/loop", run)  # nothing is recorded that could stand for it
    monkeypatch.setenv(claims.RECORD, "1")
    lesson.live("measuring/loop", lambda: measured)
    with pytest.raises(ContendedError, match="did not finish"):
        lesson.live("measuring/loop", out_of_time)
    monkeypatch.delenv(claims.RECORD)
    for run in (lambda: starved(measured), out_of_time):
        assert lesson.live("measuring/loop", run).recorded
        claim = shown.pop()
        assert not claim.holds
        assert "did not finish" in claim.seen
        assert "results/measuring/loop.json" in claim.seen


def test_a_live_run_knows_its_record(
    home: Path, measured: Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lesson.live("measuring/loop", lambda: replace(measured))
    assert claims.recorded_of(run) is None
    monkeypatch.setenv(claims.RECORD, "1")
    lesson.live("measuring/loop", lambda: measured)
    monkeypatch.delenv(claims.RECORD)
    assert claims.recorded_of(run) == lesson.recorded("measuring/loop")


def test_other_errors_are_not_hidden(home: Path) -> None:
    def broken() -> Measurement:
        raise ContendedError("does not compile")

    lesson.reference("measuring/loop").parent.mkdir(parents=True)
    lesson.reference("measuring/loop").write_text("{}")
    with pytest.raises(ContendedError, match="does not compile"):
        lesson.live("measuring/loop", broken)


# --- predictions ---------------------------------------------------------------------------------


def test_a_prediction_without_a_guess() -> None:
    asked = lesson.predict("How much slower?", unit="times")
    assert "no guess yet" in repr(asked)
    assert "no guess yet" in asked._repr_html_()
    box = asked.reveal(12.345)
    assert "Measured here: 12.3 times." in box.text
    assert "How much slower?" in box.text


@pytest.mark.parametrize(
    ("guess", "answer", "words"),
    [
        (10, 12, "Well predicted."),
        (12, 10, "Well predicted."),
        (2, 20, "Off by a factor of 10."),
        (20, 2, "Off by a factor of 10."),
    ],
)
def test_a_guess_is_judged_by_its_factor(guess: float, answer: float, words: str) -> None:
    asked = lesson.predict("How much?", unit="times", guess=guess)
    assert repr(asked) == f"How much? ({guess} times)"
    box = asked.reveal(answer)
    assert box.text.startswith(f"{guess} times. ")
    assert box.text.endswith(words)


@pytest.mark.parametrize(("guess", "answer"), [(0, 5), (5, 0), (-5, 5), (5, -5), (0, 0)])
def test_no_factor_no_verdict(guess: float, answer: float) -> None:
    text = lesson.predict("How much?", unit="ns", guess=guess).reveal(answer).text
    assert "Measured here" in text
    assert "predicted" not in text
    assert "factor" not in text


def test_in_jupyterlab_a_prediction_is_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(widget.BOOK, raising=False)
    asked = lesson.predict("How much?", unit="times")
    question, row, said = asked.form().children
    field = row.children[0]
    assert "How much?" in question.value
    field.value = "2,5"
    assert asked.guess == 2.5
    assert "2.5" in said.value
    for wrong in ("", "nan", "1e999", "<b>many"):
        field.value = wrong
        assert asked.guess == 2.5
        assert "is no number" in said.value
    assert said.value.startswith("&lt;b&gt;many is no number")
    assert asked.reveal(2.5).text.endswith("Well predicted.")
    assert lesson.predict("?", unit="ns", guess=3).form().children[1].children[0].value == "3"
    bundle = asked._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "2.5 times" in bundle["text/plain"]


def test_without_widgets_a_prediction_is_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = lesson.predict("How much?", unit="times", guess=2)
    monkeypatch.setenv(widget.BOOK, "1")
    assert set(asked._repr_mimebundle_()) == {"text/plain", "text/html"}
    monkeypatch.delenv(widget.BOOK)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert set(asked._repr_mimebundle_()) == {"text/plain", "text/html"}


# --- boxes and tables ----------------------------------------------------------------------------

EVIL = "<script>alert('x')</script> & \"more\""


def test_a_box_escapes_what_it_is_given() -> None:
    html = lesson.Note(EVIL, EVIL, EVIL)._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 3
    assert '"more"' not in html, "an attribute must not be closed from inside"
    assert repr(lesson.Note("Note", "text")) == "Note: text"


def test_a_table_escapes_and_aligns() -> None:
    table = Table(EVIL, ["a", EVIL], [[1, EVIL]])
    html = table._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 3
    assert html.count('<th scope="col"') == 2
    assert '<th scope="row" style="text-align:right;font-weight:normal">1</th>' in html
    mixed = Table("", ["", "n", "words"], [["x", "1,000", "y"], ["", 2.5, 3], ["wide"]])
    html = mixed._repr_html_()
    assert '<td style="text-align:left"></td><th scope="col" style="text-align:right">n' in html
    assert '<td style="text-align:left"></td><td style="text-align:right">2.5</td>' in html
    assert '<td style="text-align:left">3</td>' in html
    assert '<th scope="row" colspan="3"' in html
    names = "calls_per_op.__legitimize_path(x)", "123456789.012", "d_iname"
    long = Table("", ["name"], [[name] for name in names])
    said = "calls_<wbr>per_<wbr>op.__<wbr>legitimize_<wbr>path(<wbr>x)"
    html = long._repr_html_()
    assert f">{said}</th>" in html
    assert ">123456789.012</th>" in html
    assert ">d_iname</th>" in html
    plain = repr(Table("c", ["name", "n"], [["x", 10], ["longer", 2]]))
    assert plain.splitlines() == ["name    n", "x       10", "longer  2"]


def test_a_number_stands_with_its_unit() -> None:
    units = Table("", ["", "one", "two"], [["a", "1,000 µs", "3 ms"], ["b", "none", "40 µs"]])
    html = units._repr_html_()
    assert '<td style="text-align:right;white-space:nowrap">1,000 µs</td>' in html
    assert '<td style="text-align:left;white-space:nowrap">40 µs</td>' in html, "not one unit"


def test_a_prediction_escapes_its_question() -> None:
    assert "<script" not in lesson.predict(EVIL, unit="times")._repr_html_()
