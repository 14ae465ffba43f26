# SPDX-License-Identifier: MIT
"""What the sliders of the book's pages look up: the records, and what is made of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contended.cases import beyond
from contended.errors import ContendedError
from contended.show import lesson, widget
from contended.simulate import curves, grid, machines, slider
from contended.simulate.grid import Grid

pytest.importorskip("pandas")

SLUGS = tuple(beyond.sweeps())


def recorded(slug: str) -> Grid:
    path = lesson.reference(f"{slug}/grid")
    return grid.load(path, beyond.sweep(slug), f"run {beyond.grid_command(slug)}")


@pytest.mark.parametrize("slug", SLUGS)
def test_the_record_is_what_is_simulated_digit_for_digit(slug: str) -> None:
    """On the first and last machine and one of two threads, at the knob's ends and in between."""
    sweep, found = beyond.sweep(slug), recorded(slug)
    assert found.cpus == curves.LIVE_CPUS
    assert min(found.amounts) <= sweep.knob.start <= max(found.amounts)
    cpus, amounts = (1, 24, 192), found.amounts
    known = list(found.values)
    for machine in {known[0], sweep.machine, known[-1], *{"2x16-smt"}.intersection(known)}:
        for amount in (amounts[0], amounts[len(amounts) // 3], amounts[-1]):
            now = grid.values(sweep.now(cpus, machine=machine, amount=amount))
            kept = [[line[found.cpus.index(n)] for n in cpus] for line in found.at(machine, amount)]
            assert [list(line) for line in now] == kept, f"run {beyond.grid_command(slug)}"


@pytest.mark.parametrize("slug", SLUGS)
def test_the_record_has_every_machine_and_setting(slug: str) -> None:
    sweep, found = beyond.sweep(slug), recorded(slug)
    named = set(machines.names()) - {machines.HERE} if sweep.knob.machine else {sweep.machine}
    assert set(found.values) == named
    assert len({found.at(sweep.machine, amount) for amount in found.amounts}) == len(found.amounts)
    assert len({str(each) for each in found.values.values()}) == len(named)
    assert all(float(f"{v:.3g}") == v for row in found.at(sweep.machine, 1.0) for v in row)


def test_recording_makes_what_loading_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "LIVE_CPUS", (1, 24))
    knob = beyond.sweep("overlay-creds").knob
    monkeypatch.setattr(curves.Knob, "amounts", (1.0, 8.0))
    sweep = replace(beyond.sweep("overlay-creds"), knob=knob)
    seen: list[tuple[int, int]] = []
    made = grid.record(sweep, lambda *how_far: seen.append(how_far))
    planned = 2 * len(made.values)
    assert seen == [(n, planned) for n in range(1, planned + 1)]
    assert made.at("2x48-smt", 8.0) == grid.values(
        sweep.now((1, 24), machine="2x48-smt", amount=8.0)
    )
    path = tmp_path / "grid.json"
    made.save(path)
    assert grid.load(path, sweep, "again") == made


def test_a_bad_record_is_one_line_that_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = "overlay-creds"
    good = json.loads(recorded(slug).to_json())
    path = tmp_path / slug / "grid.json"
    path.parent.mkdir()
    monkeypatch.setenv(widget.BOOK, "1")
    monkeypatch.setattr(lesson, "reference", lambda name: tmp_path / f"{name}.json")
    remedy = "run contended simulate overlay-creds --grid results/overlay-creds/grid.json"

    def refused() -> str:
        with pytest.raises(ContendedError) as raised:
            beyond.slider(slug, "Bad")
        said = str(raised.value)
        assert remedy in said
        assert "\n" not in said
        return said

    assert "cannot read grid" in refused()
    for text in ("", "{}", "[1", json.dumps(good | {"more": 1})):
        path.write_text(text)
        assert "no valid grid" in refused()
    path.write_text(json.dumps(good | {"schema": 0}))
    assert "has schema 0" in refused()
    for name, other in (("workload", "x"), ("cpus", [1]), ("amounts", [1.0]), ("lines", ["a"])):
        path.write_text(json.dumps(good | {name: other}))
        assert f"has other {name}" in refused()
    few = {name: box for name, box in good["values"].items() if name != "1x24"}
    short = good["values"] | {"1x24": good["values"]["1x24"][1:]}
    nothing = json.loads(json.dumps(good["values"]))
    nothing["1x24"][3][1][4] = 0.0
    path.write_text(json.dumps(good | {"values": few}))
    assert "has other machines" in refused()
    for values in (short, nothing):
        path.write_text(json.dumps(good | {"values": values}))
        assert "lacks settings or numbers" in refused()
    changed = json.loads(json.dumps(good["values"]))
    changed["2x20-smt"][good["amounts"].index(1.0)][0][0] *= 1.01
    path.write_text(json.dumps(good | {"values": changed}))
    assert "is not what is simulated now" in refused()
    path.write_text(json.dumps(good))
    assert isinstance(beyond.slider(slug, "Good"), slider.Page)


@pytest.mark.parametrize("slug", SLUGS)
def test_a_page_has_the_still_figure_and_the_grid(
    slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(widget.BOOK, "1")
    bundle = beyond.slider(slug, "A </script> in a title")._repr_mimebundle_()
    html = bundle["text/html"]
    still = beyond.sweep(slug).now(curves.LIVE_CPUS).plot("A </script> in a title")
    assert still._repr_html_() in html
    assert bundle["text/plain"] == still.alt
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', html)
    data, found = json.loads(text), recorded(slug)
    assert data["title"] == "A </script> in a title"
    assert data["values"] == json.loads(found.to_json())["values"]
    assert data["amounts"][data["start"]] == beyond.sweep(slug).knob.start
    assert set(data["machines"]) == set(data["values"])
    assert len(html) - len(still._repr_html_()) < 100_000


def test_where_there_is_no_page_nothing_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(widget.BOOK, raising=False)
    monkeypatch.setattr(lesson, "reference", lambda name: tmp_path / f"{name}.json")
    assert isinstance(beyond.slider("overlay-creds", "Live"), slider.Slider)
