# SPDX-License-Identifier: MIT
"""Every figure is complete: title, units, spread, safe colours, and words for those who cannot see.

The data are chosen so that medians can be read off: repeat 0, 1, 2 are 90%, 100% and 120% of it.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from support import PROVENANCE, sample

from contended.errors import ContendedError, UsageError
from contended.measure import results
from contended.measure.results import Measurement, Sample
from contended.show import canvas, curves, plot
from contended.show.inline import inline

MEDIANS = {
    ("before", "calm"): 8.4e6,
    ("before", "after"): 1.27e5,
    ("after", "calm"): 8.1e6,
    ("after", "after"): 7.9e6,
}
SLOW = {"before": 960, "after": 20}


def measurement(
    *,
    variants: tuple[str, ...] = ("before", "after"),
    threads: tuple[int, ...] = (1, 2),
    phases: tuple[str, ...] = ("calm", "after"),
    metric: str = "ops_per_s",
    unit: str = "operations/s",
) -> Measurement:
    def made(variant: str, n: int, repeat: int, phase: str) -> Sample:
        value = MEDIANS.get((variant, phase), 3e6) / n * (0.9, 1.0, 1.2)[repeat]
        slow = SLOW.get(variant, 500) if phase == "after" else 0
        counts = {"fast": 1000 - slow, "slow": slow, "ops": 1000}
        return sample(value, threads=n, repeat=repeat, phase=phase, pingpong_ns=31.0, counts=counts)

    return results.build(
        case="lockref-degrade",
        metric=metric,
        unit=unit,
        params={},
        samples={
            v: [made(v, n, r, p) for n in threads for r in range(3) for p in phases]
            for v in variants
        },
        failures=[],
        provenance=PROVENANCE,
    )


PHONE = 340  # px, of the column at a screen of 390, within a solution
MANY = ("before", "after", "call-rcu", "queue-rcu-work", "spin-1000")
CACHE_LINE = "One-way cost of handing over a cache line"


def _think_time() -> canvas.Plot:
    series = {"before": [[9e6, 1e7], [2e6, 4e6]], "after": [[1e7], [6e6, 7e6, 8e6]]}
    return curves.sweep([0, 55], series, "think time (ns)", "operations/s", "Think time")


def _spin_bound() -> canvas.Plot:
    series = {"ticket": [[99.0], [81.0], [33.0], [0.02]], "queued": [[98.0], [80.0], [], [0.03]]}
    return curves.sweep(
        [0, 1, 5, 1000],
        series,
        "spin bound (iterations)",
        "slow path (%)",
        "A long title: how the spin bound decides whether the lock drains at all",
        logx=True,
        logy=True,
        note="recorded reference run",
    )


#: By name: what draws it, words of the axis labels, and medians that its alt text must say.
FIGURES: dict[str, tuple[Callable[[], canvas.Plot], str, str, list[str]]] = {
    "throughput": (
        lambda: plot.throughput(measurement()),
        "threads",
        "throughput (operations/s)",
        ["at 1 thread median 8.4 million", "at 2 threads median 4.05 million", "phase calm"],
    ),
    "throughput of many": (
        lambda: plot.throughput(measurement(variants=MANY, threads=(1, 2, 16, 64))),
        "threads",
        "operations/s",
        ["queue-rcu-work: at 1 thread median 3 million", "at 64 threads median 46.9 thousand"],
    ),
    "throughput at one thread count": (
        lambda: plot.throughput(measurement(threads=(2,), variants=MANY), "after"),
        "throughput (operations/s)",
        "variant",
        ["before: median 63.5 thousand operations/s (57.2 thousand to 76.2 thousand)"],
    ),
    "phases": (
        lambda: plot.phases(measurement(), 2),
        "phase",
        "throughput (operations/s)",
        ["before: in phase calm median 4.2 million", "in phase after median 63.5 thousand"],
    ),
    "shares": (
        lambda: plot.shares(
            measurement(), "slow", ["fast", "slow"], 2, "Slow path", "slow-path operations"
        ),
        "phase",
        "slow-path operations (%)",
        ["before: in phase calm median 0%", "median 96%", "after: ", "median 2%"],
    ),
    "ratios": (
        lambda: plot.ratios(replace(measurement(variants=MANY), recorded=True)),
        "paired ratio (no unit",
        "",
        ["after / before, 1 thread, calm: 0.964 times", "62.2 times", "3 pairs"],
    ),
    "one ratio": (
        lambda: plot.ratios(measurement(threads=(2,), phases=("after",))),
        "paired ratio (no unit",
        "",
        ["after / before, 2 threads, after: 62.2 times"],
    ),
    "matrix": (
        lambda: curves.matrix([[None, 31.2], [162.0, None]], [0, 3], "ns", CACHE_LINE),
        "to CPU",
        "from CPU",
        ["2 pairs, median 96.6 ns", "lowest 31.2 ns from CPU 0 to 3", "highest 162 ns from CPU 3"],
    ),
    "large matrix": (
        lambda: curves.matrix(
            [[math.nan if i == j else 30.0 + i for i in range(64)] for j in range(64)],
            range(64),
            "ns",
            CACHE_LINE,
            note="recorded reference run",
        ),
        "to CPU",
        "from CPU",
        ["4032 pairs, median 61.5 ns"],
    ),
    "sweep": (
        _think_time,
        "think time (ns)",
        "operations/s",
        ["before: at 0 median 9.5 million (9 million to 10 million)", "at 55 median 7 million"],
    ),
    "logarithmic sweep": (
        _spin_bound,
        "spin bound (iterations)",
        "slow path (%)",
        ["at 1 thousand median 0.02", "at 5 no sample"],
    ),
}


@pytest.fixture(params=FIGURES, scope="module")
def drawn(request: pytest.FixtureRequest) -> tuple[str, canvas.Plot]:
    return request.param, FIGURES[request.param][0]()


def test_title_and_axis_labels_with_unit(drawn: tuple[str, canvas.Plot]) -> None:
    name, made = drawn
    _, x, y, _ = FIGURES[name]
    assert made.figure.get_suptitle()
    assert x in made.figure.axes[0].get_xlabel()
    assert y in made.figure.axes[0].get_ylabel()
    if "matrix" in name:
        assert made.figure.axes[1].get_ylabel() == "ns", "the colour bar names the unit"


def test_alt_text_says_the_medians(drawn: tuple[str, canvas.Plot]) -> None:
    name, made = drawn
    for words in FIGURES[name][3]:
        assert words in made.alt
    assert made.figure.get_suptitle().replace("\n", " ") in made.alt


def test_text_is_readable_and_inside_the_figure(drawn: tuple[str, canvas.Plot]) -> None:
    _, made = drawn
    made.figure.draw_without_rendering()
    frame = made.figure.bbox
    for text in made.figure.findobj(Text):
        assert isinstance(text, Text)
        if not text.get_text().strip() or not text.get_visible():
            continue
        assert float(text.get_fontsize()) >= canvas.TEXT, text
        box = text.get_window_extent()
        # layout keeps ticks that lie outside the view, unseen
        if text in _unseen(made.figure.axes):
            continue
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= frame.x1 + 1, text
        assert box.y1 <= frame.y1 + 1, text


def _unseen(axes: list[Axes]) -> list[Text]:
    return [
        label
        for one in axes
        for axis in (one.xaxis, one.yaxis)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    ]


def test_tick_labels_do_not_overlap(drawn: tuple[str, canvas.Plot]) -> None:
    _, made = drawn
    made.figure.draw_without_rendering()
    for axes in made.figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [t for t in axis.get_ticklabels() if t.get_text() and t not in _unseen([axes])]
            boxes = [label.get_window_extent() for label in labels]
            for i, a in enumerate(boxes):
                assert not any(a.overlaps(b) for b in boxes[i + 1 :]), labels


def test_colours_are_in_the_palette(drawn: tuple[str, canvas.Plot]) -> None:
    name, made = drawn
    if "matrix" in name:
        assert made.figure.axes[0].images[0].get_cmap().name == "cividis"
        return
    allowed = {colour.lower() for colour in canvas.PALETTE} | {"#333333"}
    axes = made.figure.axes[0]
    lines = [to_hex(line.get_color()) for line in axes.lines]
    fills = [to_hex(c[:3]) for b in axes.collections for c in _colours(b)]
    bars = [to_hex(patch.get_facecolor()) for patch in axes.patches]
    assert lines
    assert {*lines, *fills, *bars} <= allowed


def _colours(collection: Collection) -> list[Any]:
    return [*np.asarray(collection.get_facecolor()), *np.asarray(collection.get_edgecolor())]


def test_nothing_rests_on_colour_alone() -> None:
    axes = plot.throughput(measurement(variants=MANY)).figure.axes[0]
    medians = [line for line in axes.lines if line.get_linestyle() != "None"]
    assert [line.get_label() for line in medians] == list(MANY)
    assert len({line.get_marker() for line in medians}) == len(MANY)
    shares = plot.shares(measurement(variants=MANY), "slow", ["fast", "slow"], 2, "t", "y")
    bars = [p for p in shares.figure.axes[0].patches if isinstance(p, Rectangle)]
    assert len({bar.get_hatch() for bar in bars}) == len(MANY)


def _drawn_points(axes: Axes) -> int:
    repeats: list[Line2D] = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    return sum(len(np.asarray(line.get_xdata())) for line in repeats)


def test_every_repeat_is_a_point() -> None:
    made = measurement()
    two_by_two_by_three = 12
    assert _drawn_points(plot.throughput(made).figure.axes[0]) == two_by_two_by_three
    assert _drawn_points(plot.phases(made, 1).figure.axes[0]) == two_by_two_by_three
    shares = plot.shares(made, "slow", ["fast", "slow"], 1, "t", "y")
    assert _drawn_points(shares.figure.axes[0]) == two_by_two_by_three
    single = plot.throughput(measurement(threads=(2,)))
    assert _drawn_points(single.figure.axes[0]) == 6
    assert _drawn_points(_think_time().figure.axes[0]) == 8


def test_a_wide_range_gets_a_log_axis_and_a_narrow_one_starts_at_zero() -> None:
    wide = plot.phases(measurement(), 1).figure.axes[0]
    assert wide.get_yscale() == "log"
    assert "log scale" in wide.get_ylabel()
    narrow = plot.throughput(measurement(), "calm").figure.axes[0]
    assert narrow.get_yscale() == "linear"
    assert narrow.get_ylim()[0] == 0


def test_a_recorded_run_says_so() -> None:
    live = measurement()
    recorded = replace(live, recorded=True)
    for draw in (
        plot.throughput,
        plot.ratios,
        lambda m: plot.phases(m, 1),
        lambda m: plot.shares(m, "slow", ["fast", "slow"], 1, "t", "y"),
        lambda m: plot.throughput(replace(measurement(threads=(1,)), recorded=m.recorded)),
    ):
        for run, says in ((live, False), (recorded, True)):
            made = draw(run)
            assert ("recorded reference run" in made.figure.axes[0].get_title("left")) is says
            assert ("recorded reference run" in made.alt) is says


def test_a_variant_without_samples_is_named() -> None:
    made = measurement()
    empty = replace(made.variants["after"], samples=[])
    made = replace(made, variants={**made.variants, "after": empty})
    shown = plot.throughput(made)
    assert "after: at 1 thread no sample" in shown.alt
    assert "after" in [text.get_text() for text in shown.figure.legends[0].get_texts()]
    assert "after" in plot.phases(made, 1).alt
    assert "no sample" in plot.shares(made, "slow", ["fast", "slow"], 1, "t", "y").alt


def test_a_latency_is_not_called_throughput() -> None:
    made = plot.throughput(measurement(metric="latency_us", unit="us"))
    assert made.figure.get_suptitle() == "lockref-degrade: latency"
    assert made.figure.axes[0].get_ylabel().startswith("latency (us)")


def test_the_diagonal_of_a_matrix_is_blank() -> None:
    made = curves.matrix([[5.0, 1.0], [2.0, 5.0]], ["a", "b"], "ns", "t")
    grid = made.figure.axes[0].images[0].get_array()
    assert grid is not None
    assert math.isnan(np.ma.filled(grid, math.nan)[0, 0])
    assert {text.get_text() for text in made.figure.axes[0].texts} == {"1", "2"}
    assert "highest 2 ns from CPU b to a" in made.alt


def test_the_same_data_give_the_same_svg(drawn: tuple[str, canvas.Plot]) -> None:
    name, made = drawn
    again = FIGURES[name][0]()
    assert made.svg() == again.svg() == again.svg()
    assert b"<dc:date>" not in made.svg()
    ElementTree.fromstring(made.svg())


def test_the_readers_settings_do_not_leak_in_and_ours_do_not_leak_out() -> None:
    import matplotlib as mpl

    plain = _think_time().svg()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        assert _think_time().svg() == plain
        assert mpl.rcParams["font.size"] == 30
    assert mpl.rcParams["svg.hashsalt"] != "contended"


def test_import_and_use_leave_pyplot_and_backend_alone() -> None:
    code = (
        "import sys, contended.show.plot, contended.show.curves as p\n"
        "assert 'matplotlib' not in sys.modules, 'eager import'\n"
        "import matplotlib as m; before = m.rcParams._get('backend')\n"
        "p.sweep([1, 2], {'a': [[1], [2]]}, 'x', 'y', 't').svg()\n"
        "assert m.rcParams._get('backend') is before, 'backend changed'\n"
        "if 'matplotlib.pyplot' in sys.modules:\n"
        "    assert not sys.modules['matplotlib.pyplot'].get_fignums(), 'figure left open'\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_html_is_one_inline_picture_with_words() -> None:
    made = curves.sweep([1, 2], {'a"<b>': [[1], [2]]}, "x", "y", "t")
    html = made._repr_html_()
    root = ElementTree.fromstring(html)
    assert (root.tag, root.get("role"), root.get("aria-label")) == ("svg", "img", made.alt)
    assert "a&quot;&lt;b&gt;: at 1 median 1" in html
    assert "max-width" in str(root.get("style"))
    said = ["".join(text.itertext()) for text in root.iter("text")]
    assert {"t", "x", "y", 'a"<b>', "1", "2"} <= set(said), "text is text"
    sizes = [float(str(text.get("font-size")).removesuffix("px")) for text in root.iter("text")]
    width = float(str(root.get("viewBox")).split()[2])
    assert min(sizes) * PHONE / width >= 11
    # what would reach out of the picture, or is there for nothing
    assert not {"style", "metadata", "image"} & {element.tag for element in root.iter()}
    assert made._repr_mimebundle_() == {"text/html": html, "text/plain": made.alt}


def test_ids_are_of_one_figure_and_lead_somewhere(drawn: tuple[str, canvas.Plot]) -> None:
    name, made = drawn
    html = made._repr_html_()
    assert html == FIGURES[name][0]()._repr_html_() == made._repr_html_()
    ids = re.findall(r' id="(\w+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#(\w+)', html)) <= set(ids)
    other = replace(made, alt=f"{made.alt} Again.")._repr_html_()
    assert not set(ids) & set(re.findall(r' id="(\w+)"', other))
    assert len(html) < len(made.svg())


def test_opacity_stays_with_each_shape() -> None:
    shapes = b"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><g id="a">
      <path d="M 0 0.12345 L 1 1" style="fill: #f00; opacity: 0.5"/>
      <path d="M 0 0 L 2 2" style="fill: #f00; opacity: 0.5"/></g><g id="b">
      <path d="M 0 0 L 3 3" style="fill: #00f"/><path d="M 0 0 L 4 4" style="fill: #00f"/></g>
      <g id="empty"/></svg>"""
    assert inline(shapes, "shapes", "width:100%") == (
        '<svg viewBox="0 0 9 9" role="img" aria-label="shapes" style="width:100%">'
        '<g stroke-linejoin="round"><path d="M 0 0.12 L 1 1" fill="#f00" opacity="0.5"/>'
        '<path d="M 0 0 L 2 2" fill="#f00" opacity="0.5"/>'
        '<g fill="#00f"><path d="M 0 0 L 3 3"/><path d="M 0 0 L 4 4"/></g></g></svg>'
    )


def test_text_is_wrapped_to_its_room() -> None:
    text = canvas.wrapped("one two three four", canvas.text_width("one two three"))
    assert text == "one two three\nfour"
    assert canvas.wrapped("incompressible", 10) == "incompressible"
    assert canvas.text_width("wide", weight="bold") > canvas.text_width("wide")


def test_save_writes_what_the_suffix_says(tmp_path: Path) -> None:
    made = _think_time()
    for name, magic in (("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")):
        made.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(magic)
    with pytest.raises(UsageError, match=r"end it in \.svg, \.png or \.pdf"):
        made.save(tmp_path / "a.gif")
    with pytest.raises(ContendedError, match="cannot write"):
        made.save(tmp_path / "absent" / "a.svg")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plot.throughput(measurement(), "late"), "no phase late: choose from calm, after"),
        (lambda: plot.throughput(measurement(threads=())), "no samples of lockref-degrade"),
        (lambda: plot.phases(measurement(), 7), "no thread count 7: choose from 1, 2"),
        (
            lambda: plot.shares(measurement(), "slw", ["fast"], 1, "t", "y"),
            "no counter slw: choose from fast, ops, slow",
        ),
        (lambda: plot.ratios(measurement(variants=("before",))), "at least two variants"),
        (lambda: curves.matrix([[1.0, 2.0]], [0, 1], "ns", "t"), "2 rows of 2 values"),
        (lambda: curves.matrix([[None]], [0], "ns", "t"), "use two CPUs or more"),
        (lambda: curves.sweep([1, 2], {"a": [[1]]}, "x", "y", "t"), "'a' has 1 lists for 2 values"),
        (lambda: curves.sweep([1], {"a": [[]]}, "x", "y", "t"), "every series is empty"),
    ],
)
def test_bad_input_is_refused_in_one_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert says in str(error.value)
    assert "\n" not in str(error.value)
