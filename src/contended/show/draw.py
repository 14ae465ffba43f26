# SPDX-License-Identifier: MIT
"""Drawn figures: who touches what, and when. They explain; they are not to scale and say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contended.errors import UsageError
from contended.show import canvas
from contended.show.canvas import Plot

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
    with canvas.house_style():
        figure, axes = canvas.canvas(title, note, height=1.5 + 0.5 * len(names))
        for y, spans in enumerate(lanes.values()):
            for span in spans:
                _bar(
                    axes,
                    y,
                    span.start,
                    span.end - span.start,
                    0.66,
                    kinds.index(span.kind),
                    label=span.kind,
                )
                _text(axes, (span.start + span.end) / 2, y, span.text)
        for arrow in arrows:
            ends = names.index(arrow.source), names.index(arrow.target)
            down = 1 if ends[1] > ends[0] else -1
            axes.annotate(
                "",
                xy=(arrow.at, ends[1] - 0.33 * down),
                xytext=(arrow.at, ends[0] + 0.33 * down),
                arrowprops={"arrowstyle": "-|>", "color": "#D55E00", "linewidth": 1.6},
            )
        _name_rows(axes, names)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.set_xlabel("time →")
        _kinds_legend(figure, axes)
    return canvas.finished(figure, _alt(title, note, alt))


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
    with canvas.house_style():
        figure, axes = canvas.canvas(title, note, height=1.6 + 0.8 * len(structs))
        for y, fields in enumerate(structs.values()):
            for f in fields:
                _bar(axes, y, f.offset, f.size, 0.6, kinds.index(f.kind), label=f.kind)
                rotation = 90 if f.size / end < 0.09 else 0
                _text(axes, f.offset + f.size / 2, y, f.name, rotation=rotation)
        for border in range(0, end + 1, line):
            axes.axvline(border, color="#D55E00", linewidth=1.6)
        _name_rows(axes, list(structs))
        axes.set_xlim(-1, end + 1)
        axes.set_xticks(range(0, end + 1, max(8, line // 4)))
        axes.set_xlabel(f"offset (bytes); a line of {line} bytes ends at each upright")
        _kinds_legend(figure, axes)
    rows = "; ".join(
        f"{name}: "
        + ", ".join(f"{f.name} at {f.offset} to {f.offset + f.size - 1}" for f in fields)
        for name, fields in structs.items()
    )
    return canvas.finished(figure, _alt(title, note, f"{alt} Offsets: {rows}."))


def cache_lines(
    title: str,
    structs: Mapping[str, Sequence[Field]],
    *,
    line: int = 64,
    kinds: Sequence[str] = (),
    note: str = "",
    alt: str,
) -> Plot:
    """Structs as they lie in cache lines, one row for each line: what shares a line with what.

    Args:
        title: What is laid out.
        structs: Members by struct name, from top to bottom; each struct starts on a line.
        line: Bytes of a cache line.
        kinds: Kinds in the order of their looks, so that several figures agree.
        note: Stands under the title.
        alt: The point in words; what stands on each line is added.
    """
    kinds = list(dict.fromkeys([*kinds, *(f.kind for fs in structs.values() for f in fs)]))
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
    with canvas.house_style():
        figure, axes = canvas.canvas(title, note, height=1.55 + 0.4 * y)
        for top, start, size, f in pieces:
            _bar(axes, top, start, size, 0.78, kinds.index(f.kind), label=f.kind)
            fontsize = 9 if size >= 8 else 7.5
            _text(axes, start + size / 2, top, f.name, pad=0.6, fontsize=fontsize)
        axes.set_yticks([at for at, _ in rows], [label for _, label in rows])
        axes.set_ylim(y - 0.9, -0.55)
        axes.set_xlim(0, line)
        axes.set_xticks(range(0, line + 1, 8))
        axes.set_xlabel(f"byte in the line; each row is a cache line of {line} bytes")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        _kinds_legend(figure, axes)
    return canvas.finished(figure, _alt(title, note, f"{alt} {'; '.join(said)}."))


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
    with canvas.house_style():
        figure, axes = canvas.canvas(title, note, height=1.7 + 0.42 * len(rows))
        for y, cells in enumerate(rows.values()):
            for x, (text, kind) in enumerate(cells):
                _bar(axes, y, x - 0.5, 1, 0.74, kinds.index(kind), label=kind)
                if text:
                    _text(axes, x, y, text)
        _name_rows(axes, list(rows))
        axes.set_xlim(-0.6, max(len(cells) for cells in rows.values()) - 0.4)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.set_xlabel(xlabel)
        _kinds_legend(figure, axes)
    return canvas.finished(figure, _alt(title, note, alt))


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a `graph`: its middle, in columns to the right and rows down, and what it is."""

    column: float
    row: float
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow of a `graph` from box to box; those without a head are mere bonds."""

    source: str
    target: str
    head: bool = True
    dashed: bool = False
    text: str = ""


def graph(
    title: str,
    boxes: Mapping[str, Box],
    edges: Sequence[Edge],
    *,
    note: str = "",
    alt: str,
) -> Plot:
    """Boxes and arrows: who is linked to whom.

    Args:
        title: What is shown.
        boxes: By name; boxes of one kind look alike and are named in the legend.
        edges: Drawn between the boxes' borders.
        note: Stands under the title.
        alt: The story in words.

    Raises:
        UsageError: an edge names a box that is not there.
    """
    if lost := {n for e in edges for n in (e.source, e.target)} - set(boxes):
        raise UsageError(f"no box {sorted(lost)[0]!r}; there are: {', '.join(boxes)}")
    kinds = list(dict.fromkeys(box.kind for box in boxes.values()))
    columns, rows = [b.column for b in boxes.values()], [b.row for b in boxes.values()]
    with canvas.house_style():
        from matplotlib.patches import FancyArrowPatch, Patch

        height = 1.6 + 0.95 * (max(rows) - min(rows) + 1)
        figure, axes = canvas.canvas(title, note, height=height)
        for box in boxes.values():
            nth = kinds.index(box.kind)
            _bar(axes, box.row, box.column - 0.42, 0.84, 0.46, nth, zorder=2)
            _text(axes, box.column, box.row, box.text, zorder=4)
        for edge in edges:
            a, b = boxes[edge.source], boxes[edge.target]
            # between rows from edge to edge; in one row from side to side
            dx = 0.0 if a.row != b.row else (0.42 if b.column > a.column else -0.42)
            dy = 0.0 if a.row == b.row else (0.23 if b.row > a.row else -0.23)
            axes.add_patch(
                FancyArrowPatch(
                    (a.column + dx, a.row + dy),
                    (b.column - dx, b.row - dy),
                    arrowstyle="-|>" if edge.head else "-",
                    mutation_scale=14,
                    shrinkA=0,
                    shrinkB=0,
                    color="#D55E00" if edge.dashed else "#333333",
                    linestyle="--" if edge.dashed else "-",
                    linewidth=1.5,
                    zorder=3,
                )
            )
            if edge.text:
                _text(
                    axes,
                    (a.column + b.column) / 2 + (0.06 if a.row != b.row else 0),
                    (a.row + b.row) / 2 - (0.06 if a.row == b.row else 0),
                    edge.text,
                    pad=0.5,
                    ha="left" if a.row != b.row else "center",
                    va="center" if a.row != b.row else "bottom",
                    fontsize=9,
                    color="#D55E00" if edge.dashed else "#333333",
                    zorder=4,
                )
        axes.set_xlim(min(columns) - 0.6, max(columns) + 0.6)
        axes.set_ylim(max(rows) + 0.5, min(rows) - 0.5)
        axes.set_axis_off()
        figure.legend(
            [Patch(**_look(nth)) for nth in range(len(kinds))],
            kinds,
            loc="outside lower left",
            ncols=2 if len(kinds) > 3 or max(map(len, kinds)) > 24 else 3,
            frameon=False,
        )
    return canvas.finished(figure, _alt(title, note, alt))


def _look(nth: int) -> dict[str, Any]:
    """What the nth kind looks like, in a bar and in the legend."""
    return {
        "facecolor": _PALE[nth % len(_PALE)],
        "edgecolor": "#555555",
        "hatch": _HATCHES[nth % len(_HATCHES)],
    }


def _bar(
    axes: Axes, y: float, left: float, width: float, height: float, nth: int, **more: Any
) -> None:
    axes.barh(y, width, left=left, height=height, linewidth=0.8, **_look(nth), **more)


def _text(axes: Axes, x: float, y: float, text: str, *, pad: float = 0.8, **more: Any) -> None:
    """Text that stays legible on hatching."""
    style = {"ha": "center", "va": "center", "fontsize": 10, **more}
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": pad}
    axes.text(x, y, text, bbox=box, **style)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """One row for each, from top to bottom, without an axis line."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _kinds_legend(figure: Figure, axes: Axes) -> None:
    # one entry a kind, although each bar carries its label
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower left", ncols=3, frameon=False
    )


def _alt(title: str, note: str, text: str) -> str:
    return ". ".join(part.rstrip(".") for part in (title, note, text) if part) + "."
