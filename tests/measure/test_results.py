# SPDX-License-Identifier: MIT
"""Results survive a round trip, and a file that was tampered with is refused by field."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import PROVENANCE, sample

from contended import records
from contended.errors import ContendedError
from contended.measure import results
from contended.measure.results import Failure, Measurement, Sample
from contended.show import report


def measurement(
    samples: dict[str, list[Sample]], failures: list[Failure] | None = None
) -> Measurement:
    return results.build(
        case="lockref-degrade",
        metric="ops_per_s",
        unit="operations/s",
        params={"spin": 100},
        samples=samples,
        failures=failures or [],
        provenance=PROVENANCE,
    )


floats = st.floats(min_value=1e-6, max_value=1e12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
samples = st.builds(
    Sample,
    threads=st.integers(1, 256),
    repeat=st.integers(0, 9),
    phase=names,
    value=floats,
    low=floats,
    high=floats,
    pingpong_ns=st.none() | floats,
    start_skew_ns=floats,
    stop_skew_ns=floats,
    runq_wait_ns=floats,
    counts=st.dictionaries(names, st.integers(0, 2**63), max_size=3),
)
failures = st.builds(
    Failure,
    variant=names,
    threads=st.integers(1, 256),
    repeat=st.integers(0, 9),
    reason=names,
)


@settings(max_examples=60)
@given(
    st.dictionaries(names, st.lists(samples, max_size=4), min_size=1, max_size=3),
    st.lists(failures, max_size=2),
)
def test_save_and_load_keep_everything(
    tmp_path_factory: pytest.TempPathFactory,
    rows: dict[str, list[Sample]],
    failed: list[Failure],
) -> None:
    before = measurement(rows, failed)
    path = tmp_path_factory.mktemp("round-trip") / "run.json"
    before.save(path)
    after = results.load(path)
    assert after.recorded
    assert not before.recorded
    for name in Measurement.__dataclass_fields__:
        if name != "recorded":
            assert getattr(after, name) == getattr(before, name)
    assert list(after.variants) == list(before.variants), "the first variant is the base"


def test_json_has_the_documented_layout() -> None:
    text = measurement({"before": [sample(1)], "after": [sample(2)]}).to_json()
    tree = json.loads(text)
    for key in ("case", "metric", "unit", "variants", "ratio", "provenance"):
        assert key in tree
    assert set(tree["variants"]["after"]) == {"samples", "counts"}
    assert tree["ratio"]["after/before"][0]["median"] == 2
    assert text.endswith("}\n")


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(
        measurement({"before": [sample(1)], "after": [sample(2)]}).to_json()
    )
    return read


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ContendedError) as error:
        results.load(path)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def _set(*path: str | int, to: object) -> Callable[[Any], None]:
    def change(node: Any) -> None:
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_set("surprise", to=1), "surprise"),
        (_set("provenance", "surprise", to=1), "provenance.surprise"),
        (_set("case", to=7), "case"),
        (_set("provenance", "cpu", to=None), "provenance.cpu"),
        (_set("provenance", "seconds", to="1.5"), "provenance.seconds"),
        (
            _set("variants", "after", "samples", 0, "value", to="fast"),
            "variants.after.samples.0.value",
        ),
        (_set("variants", "after", "counts", "ops", to=1.5), "variants.after.counts.ops"),
        (_set("ratio", "after/before", 0, "pairs", to="1"), "ratio.after/before.0.pairs"),
        (lambda tree: tree.pop("unit"), "unit"),
        (lambda tree: tree["provenance"].pop("kernel"), "provenance.kernel"),
    ],
)
def test_a_tampered_field_is_named(
    tmp_path: Path, tree: dict[str, Any], change: Callable[[Any], None], field: str
) -> None:
    change(tree)
    assert f": {field}: " in refusal(tmp_path, json.dumps(tree))


def test_another_schema_is_refused(tmp_path: Path, tree: dict[str, Any]) -> None:
    tree["schema"] = results.SCHEMA + 1
    message = refusal(tmp_path, json.dumps(tree))
    assert f"schema {results.SCHEMA + 1}" in message
    assert "measure again" in message


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_file_cut_short_is_refused(tmp_path: Path, tree: dict[str, Any], keep: float) -> None:
    text = json.dumps(tree)
    assert "no valid results" in refusal(tmp_path, text[: int(len(text) * keep)])


@pytest.mark.parametrize("text", ["[]", "null", "not json", '{"case": "x"}'])
def test_other_text_is_refused(tmp_path: Path, text: str) -> None:
    assert "no valid results" in refusal(tmp_path, text)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContendedError, match=r"cannot read results from .*No such file"):
        results.load(tmp_path / "absent.json")


def test_write_whole_replaces_and_obeys_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    old = os.umask(0o027)
    try:
        records.write_whole(path, "né\n")
    finally:
        os.umask(old)
    assert path.read_text(encoding="utf-8") == "né\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole_follows_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    records.write_whole(link, "{}")
    assert link.is_symlink()
    assert real.read_text() == "{}"


def test_write_whole_writes_to_a_pipe_instead_of_replacing_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        records.write_whole(pipe, "{}")
        assert os.read(reader, 10) == b"{}"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_write_whole_to_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    records.write_whole(Path("-"), "{}\n")
    assert capsys.readouterr().out == "{}\n"
    assert not Path("-").exists()


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ContendedError, match=r"cannot write .*No such file"):
        records.write_whole(tmp_path / "absent" / "run.json", "{}")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ContendedError, match=r"cannot write .*directory"):
        records.write_whole(folder, "{}")
    assert list(tmp_path.iterdir()) == [folder]
    assert list(folder.iterdir()) == []


def test_an_interrupted_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        records.write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_ratios_pair_the_same_repeat_only() -> None:
    before = [sample(10, repeat=0), sample(1000, repeat=1), sample(5, repeat=3)]
    after = [sample(2000, repeat=1), sample(20, repeat=0), sample(1, repeat=2)]
    ratio = measurement({"before": before, "after": after}).ratio_at("after", threads=1)
    # pairing by position would give 200 and 0.02; repeats 2 and 3 have no partner
    assert (ratio.median, ratio.low, ratio.high, ratio.pairs) == (2, 2, 2, 2)


def test_ratios_keep_thread_counts_and_phases_apart() -> None:
    def rows(factor: float) -> list[Sample]:
        return [
            sample(factor ** (threads + 10 * (phase == "after")), threads=threads, phase=phase)
            for threads in (1, 2)
            for phase in ("calm", "after")
        ]

    seen = measurement({"before": rows(1), "after": rows(2)})
    ratios = {(r.threads, r.phase): r.median for r in seen.ratio["after/before"]}
    assert ratios == {
        (1, "calm"): 2,
        (2, "calm"): 4,
        (1, "after"): 2**11,
        (2, "after"): 2**12,
    }
    assert seen.thread_counts == [1, 2]
    assert seen.phases == ["calm", "after"]
    with pytest.raises(ContendedError, match="no ratio after/before at 3 threads"):
        seen.ratio_at("after", threads=3, phase="calm")


def test_every_later_variant_is_compared_with_the_first() -> None:
    seen = measurement({"after": [sample(2)], "before": [sample(1)], "spin": [sample(3)]})
    assert list(seen.ratio) == ["before/after", "spin/after"]
    assert seen.ratio_at("spin", threads=1).median == 1.5


def test_a_variant_without_samples_has_no_ratio() -> None:
    assert measurement({"before": [sample(1)], "after": []}).ratio == {"after/before": []}


def test_counts_and_shares() -> None:
    seen = measurement(
        {
            "before": [
                sample(1, phase="calm", counts={"fast": 90, "slow": 10}),
                sample(1, phase="after", counts={"fast": 0, "slow": 100}),
                sample(1, phase="calm", repeat=1, counts={"fast": 110, "slow": 90}),
            ]
        }
    )
    assert seen.variants["before"].counts == {"fast": 200, "slow": 200}
    assert seen.count("before", "slow", phase="calm") == 100
    assert seen.share("before", "slow", ["fast", "slow"]) == 0.5
    assert seen.share("before", "slow", ["fast", "slow"], phase="calm") == pytest.approx(1 / 3)
    assert math.isnan(seen.share("before", "slow", ["fast", "slow"], threads=2))


def test_html_shows_medians_failures_and_escapes() -> None:
    seen = measurement(
        {"before": [sample(1), sample(3, repeat=1)], "<b>": [], "absent": []},
        [Failure(variant="<b>", threads=2, repeat=0, reason="a < b & c")],
    )
    page = report.measurement_table(seen)._repr_html_()
    html = re.sub(r' (scope|style)="[^"]*"', "", page)
    assert "<th>before</th><td>1</td><td>run</td><td>2</td><td>1 to 3</td><td>2</td>" in html
    assert "&lt;b&gt;</th><td>2</td>" in html
    assert "a &lt; b &amp; c" in html
    assert "<th>absent</th><td colspan" in html
    assert "measured now" in html
