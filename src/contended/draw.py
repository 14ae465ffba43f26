# SPDX-License-Identifier: MIT
"""Drawn figures: who touches what, and when. They explain; they are not to scale and say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contended import plot
from contended.errors import UsageError
from contended.plot import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PALE = ("#F6D5C3", "#C7DDEE", "#C3E6DA", "#F1DCE8", "#F9E5BE", "#DDF0FA", "#E3E3E3")
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++", "oo")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasts, on a lane of a timeline.

    Attributes:
        start: Where it begins, in steps.
        end: Where it ends.
        text: What stands in it; keep it to a few characters per step.
        kind: What it is; spans of one kind look alike and are named in the legend.
    """

    start: float
    end: float
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """Something that goes from one lane to another at one time: a line handed over, a wake-up."""

    at: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a struct: `size` bytes from `offset` on; `kind` as for `Span`."""

    name: str
    offset: int
    size: int
    kind: str


def timeline(
    title: str,
    lanes: Mapping[str, Sequence[Span]],
    *,
    arrows: Sequence[Arrow] = (),
    note: str = "time runs to the right, not to scale",
    alt: str,
) -> Plot:
    """Lanes with spans on them, one lane for each thread or CPU, and arrows between lanes.

    Args:
        title: What happens.
        lanes: By name, from top to bottom.
        arrows: Drawn from lane to lane.
        note: Stands under the title.
        alt: The story in words.

    Raises:
        UsageError: an arrow names a lane that is not there.
    """
    names = list(lanes)
    if lost := {n for a in arrows for n in (a.source, a.target)} - set(names):
        raise UsageError(f"no lane {sorted(lost)[0]!r}; there are: {', '.join(names)}")
    kinds = list(dict.fromkeys(span.kind for spans in lanes.values() for span in spans))
    with plot.house_style():
        figure, axes = plot.canvas(title, note, height=1.5 + 0.5 * len(names))
        for y, spans in enumerate(lanes.values()):
            for span in spans:
                look = kinds.index(span.kind)
                axes.barh(
                    y,
                    span.end - span.start,
                    left=span.start,
                    height=0.66,
                    color=_PALE[look % len(_PALE)],
                    edgecolor="#555555",
                    linewidth=0.8,
                    hatch=_HATCHES[look % len(_HATCHES)],
                    label=span.kind,
                )
                _inside(axes, (span.start + span.end) / 2, y, span.text)
        for arrow in arrows:
            ends = names.index(arrow.source), names.index(arrow.target)
            down = 1 if ends[1] > ends[0] else -1
            axes.annotate(
                "",
                xy=(arrow.at, ends[1] - 0.33 * down),
                xytext=(arrow.at, ends[0] + 0.33 * down),
                arrowprops={"arrowstyle": "-|>", "color": "#D55E00", "linewidth": 1.6},
            )
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("time →")
        _kinds_legend(figure, axes)
    return plot.finished(figure, _alt(title, note, alt))


def layout(
    title: str,
    structs: Mapping[str, Sequence[Field]],
    *,
    line: int = 64,
    note: str = "",
    alt: str,
) -> Plot:
    """Structs as bytes in a row of cache lines: what shares a line with what.

    Args:
        title: What is laid out.
        structs: Members by struct name, from top to bottom.
        line: Bytes of a cache line; its borders are drawn.
        note: Stands under the title.
        alt: The point in words; the offsets are added.
    """
    kinds = list(dict.fromkeys(f.kind for fields in structs.values() for f in fields))
    end = max(f.offset + f.size for fields in structs.values() for f in fields)
    end = -(-end // line) * line
    with plot.house_style():
        figure, axes = plot.canvas(title, note, height=1.6 + 0.8 * len(structs))
        for y, fields in enumerate(structs.values()):
            for f in fields:
                look = kinds.index(f.kind)
                axes.barh(
                    y,
                    f.size,
                    left=f.offset,
                    height=0.6,
                    color=_PALE[look % len(_PALE)],
                    edgecolor="#555555",
                    linewidth=0.8,
                    hatch=_HATCHES[look % len(_HATCHES)],
                    label=f.kind,
                )
                _inside(axes, f.offset + f.size / 2, y, f.name, narrow=f.size / end < 0.09)
        for border in range(0, end + 1, line):
            axes.axvline(border, color="#D55E00", linewidth=1.6)
        axes.set_yticks(range(len(structs)), list(structs))
        axes.set_ylim(len(structs) - 0.5, -0.5)
        axes.set_xlim(-1, end + 1)
        axes.set_xticks(range(0, end + 1, max(8, line // 4)))
        axes.set_xlabel(f"offset (bytes); a line of {line} bytes ends at each upright")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        _kinds_legend(figure, axes)
    rows = "; ".join(
        f"{name}: "
        + ", ".join(f"{f.name} at {f.offset} to {f.offset + f.size - 1}" for f in fields)
        for name, fields in structs.items()
    )
    return plot.finished(figure, _alt(title, note, f"{alt} Offsets: {rows}."))


def cache_lines(
    title: str,
    structs: Mapping[str, Sequence[Field]],
    *,
    line: int = 64,
    note: str = "",
    alt: str,
) -> Plot:
    """Structs as they lie in cache lines, one row for each line: what shares a line with what.

    Args:
        title: What is laid out.
        structs: Members by struct name, from top to bottom; each struct starts on a line.
        line: Bytes of a cache line.
        note: Stands under the title.
        alt: The point in words; what stands on each line is added.
    """
    kinds = list(dict.fromkeys(f.kind for fields in structs.values() for f in fields))
    rows: list[tuple[float, str]] = []
    said = []
    y = 0.0
    pieces: list[tuple[float, int, int, Field]] = []
    for name, fields in structs.items():
        for at in range(0, max(f.offset + f.size for f in fields), line):
            here = [f for f in fields if f.offset < at + line and f.offset + f.size > at]
            rows.append((y, f"{name}, {at}" if len(structs) > 1 else str(at)))
            said.append(f"{name} from byte {at}: {', '.join(f.name for f in here)}")
            for f in here:
                start = max(f.offset - at, 0)
                pieces.append((y, start, min(f.offset + f.size - at, line) - start, f))
            y += 1
        y += 0.45
    with plot.house_style():
        figure, axes = plot.canvas(title, note, height=1.55 + 0.4 * y)
        for top, start, size, f in pieces:
            look = kinds.index(f.kind)
            axes.barh(
                top,
                size,
                left=start,
                height=0.78,
                color=_PALE[look % len(_PALE)],
                edgecolor="#555555",
                linewidth=0.8,
                hatch=_HATCHES[look % len(_HATCHES)],
                label=f.kind,
            )
            axes.text(
                start + size / 2,
                top,
                f.name,
                ha="center",
                va="center",
                fontsize=9 if size >= 8 else 7.5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
            )
        axes.set_yticks([at for at, _ in rows], [label for _, label in rows])
        axes.set_ylim(y - 0.9, -0.55)
        axes.set_xlim(0, line)
        axes.set_xticks(range(0, line + 1, 8))
        axes.set_xlabel(f"byte in the line; each row is a cache line of {line} bytes")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        _kinds_legend(figure, axes)
    return plot.finished(figure, _alt(title, note, f"{alt} {'; '.join(said)}."))


def strips(
    title: str,
    rows: Mapping[str, Sequence[tuple[str, str]]],
    *,
    xlabel: str,
    note: str = "",
    alt: str,
) -> Plot:
    """Rows of equal cells, e.g. a list or an array as one call after the other walks over it.

    Args:
        title: What happens.
        rows: Cells by row name, from top to bottom; a cell is its text and its kind, and cells
            of one kind look alike and are named in the legend.
        xlabel: What a cell is.
        note: Stands under the title.
        alt: The story in words.
    """
    kinds = list(dict.fromkeys(kind for cells in rows.values() for _, kind in cells))
    with plot.house_style():
        figure, axes = plot.canvas(title, note, height=1.7 + 0.42 * len(rows))
        for y, cells in enumerate(rows.values()):
            for x, (text, kind) in enumerate(cells):
                look = kinds.index(kind)
                axes.barh(
                    y,
                    1,
                    left=x - 0.5,
                    height=0.74,
                    color=_PALE[look % len(_PALE)],
                    edgecolor="#555555",
                    linewidth=0.8,
                    hatch=_HATCHES[look % len(_HATCHES)],
                    label=kind,
                )
                if text:
                    _inside(axes, x, y, text)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(-0.6, max(len(cells) for cells in rows.values()) - 0.4)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(xlabel)
        _kinds_legend(figure, axes)
    return plot.finished(figure, _alt(title, note, alt))


def _inside(axes: Axes, x: float, y: float, text: str, *, narrow: bool = False) -> None:
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=10,
        rotation=90 if narrow else 0,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
    )


def _kinds_legend(figure: Figure, axes: Axes) -> None:
    # one entry a kind, although each bar carries its label
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower left", ncols=3, frameon=False
    )


def _alt(title: str, note: str, text: str) -> str:
    return ". ".join(part.rstrip(".") for part in (title, note, text) if part) + "."
