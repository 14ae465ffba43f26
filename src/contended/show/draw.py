# SPDX-License-Identifier: MIT
"""Drawn figures: who touches what, and when. They explain; they are not to scale and say so.

In each, `note` stands under the title, and `alt` is the story or the point in words. What is of one
`kind` looks alike and is named in the legend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contended.errors import UsageError
from contended.show import canvas
from contended.show.canvas import INK, Plot, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PALE = ("#F6D5C3", "#C7DDEE", "#C3E6DA", "#F1DCE8", "#F9E5BE", "#DDF0FA", "#E3E3E3")
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++", "oo")
_LOOKS = tuple(zip(_PALE, _HATCHES, strict=True))
_SIGNAL = canvas.PALETTE[0]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasts, on a lane of a timeline, from step `start` to step `end`.

    Keep `text`, which stands in it, to a few characters per step.
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
    """A member of a struct: `size` bytes from `offset` on."""

    name: str
    offset: int
    size: int
    kind: str

    @property
    def end(self) -> int:
        """The offset of the first byte after it."""
        return self.offset + self.size


_Cell = tuple[str, str]
#: Where a piece of a row begins, how wide it is, what stands in it, and its kind.
_Block = tuple[float, float, str, str]
_Structs = Mapping[str, Sequence[Field]]


def timeline(
    title: str,
    lanes: Mapping[str, Sequence[Span]],
    *,
    arrows: Sequence[Arrow] = (),
    note: str = "time runs to the right, not to scale",
    alt: str,
) -> Plot:
    """Lanes with spans on them, one lane for each thread or CPU, and arrows between lanes.

    Raises UsageError if an arrow names a lane that is not there.
    """
    _check_ends("lane", arrows, lanes)
    rows = {
        name: [(span.start, span.end - span.start, span.text, span.kind) for span in spans]
        for name, spans in lanes.items()
    }
    height, axis = 1.5 + 0.5 * len(rows), {"xticks": [], "xlabel": "time →"}
    return _in_rows((title, note, alt), rows, height, 0.66, axis, arrows=arrows)


def layout(title: str, structs: _Structs, *, line: int = 64, note: str = "", alt: str) -> Plot:
    """Structs as bytes in a row of cache lines: what shares a line with what.

    `line` is the size of one in bytes; their borders are drawn. The offsets are added to `alt`.
    """
    end = -(-max(field.end for fields in structs.values() for field in fields) // line) * line
    rows = {
        name: [(f.offset, f.size, f.name, f.kind) for f in fields]
        for name, fields in structs.items()
    }
    xlabel = f"offset (bytes); a line of {line} bytes ends at each upright"
    axis = {"xlim": (-1, end + 1), "xticks": range(0, end + 1, max(8, line // 4)), "xlabel": xlabel}
    offsets = "; ".join(
        f"{name}: " + ", ".join(f"{f.name} at {f.offset} to {f.end - 1}" for f in fields)
        for name, fields in structs.items()
    )
    words = (title, note, f"{alt} Offsets: {offsets}.")
    height, borders = 1.6 + 0.8 * len(rows), range(0, end + 1, line)
    styles = (0.09 * end, {"rotation": 90}, {"rotation": 0})
    return _in_rows(words, rows, height, 0.6, axis, styles=styles, uprights=borders)


def cache_lines(
    title: str, structs: _Structs, *, kinds: Sequence[str] = (), note: str = "", alt: str
) -> Plot:
    """Structs, each from a new cache line on, one row for each line: what shares it with what.

    `kinds` come first in the order of their looks, so that several figures agree. What stands on
    each line is added to `alt`.
    """
    line = 64
    rows: dict[str, list[_Block]] = {}
    places, said = [], []
    for name, fields in structs.items():
        for at in range(0, max(field.end for field in fields), line):
            here = [f for f in fields if f.offset < at + line and f.end > at]
            said.append(f"{name} from byte {at}: {', '.join(f.name for f in here)}")
            places.append(len(rows) + 0.45 * list(structs).index(name))
            rows[f"{name}, {at}" if len(structs) > 1 else str(at)] = [
                (start := max(f.offset - at, 0), min(f.end - at, line) - start, f.name, f.kind)
                for f in here
            ]
    bottom = len(rows) + 0.45 * len(structs)
    xlabel = f"byte in the line; each row is a cache line of {line} bytes"
    axis = {"xlim": (0, line), "xticks": range(0, line + 1, 8), "xlabel": xlabel}
    axis["ylim"] = (bottom - 0.9, -0.55)
    words = (title, note, f"{alt} {'; '.join(said)}.")
    kinds = [*kinds, *(field.kind for fields in structs.values() for field in fields)]
    styles = (8, {"pad": 0.6, "fontsize": 7.5}, {"pad": 0.6, "fontsize": 9})
    height = 1.55 + 0.4 * bottom
    return _in_rows(words, rows, height, 0.78, axis, places=places, kinds=kinds, styles=styles)


def strips(
    title: str, rows: Mapping[str, Sequence[_Cell]], *, xlabel: str, note: str = "", alt: str
) -> Plot:
    """Rows of equal cells, e.g. a list or an array as one call after the other walks over it.

    A cell is its text and its kind; `xlabel` says what cells are.
    """
    blocks = {
        name: [(x - 0.5, 1, text, kind) for x, (text, kind) in enumerate(cells)]
        for name, cells in rows.items()
    }
    width = max(map(len, rows.values()))
    axis = {"xlim": (-0.6, width - 0.4), "xticks": [], "xlabel": xlabel}
    return _in_rows((title, note, alt), blocks, 1.7 + 0.42 * len(rows), 0.74, axis)


def _in_rows(
    words: tuple[str, str, str],
    rows: Mapping[str, Sequence[_Block]],
    height: float,
    thickness: float,
    axis: Mapping[str, Any],
    *,
    places: Sequence[float] = (),
    kinds: Sequence[str] = (),
    styles: tuple[float, Style, Style] = (0, {}, {}),
    arrows: Sequence[Arrow] = (),
    uprights: Sequence[int] = (),
) -> Plot:
    """Rows from top to bottom; text in a block narrower than `styles[0]` is styled by the next."""
    kinds = list(dict.fromkeys([*kinds, *(kind for row in rows.values() for *_, kind in row)]))
    at = dict(zip(rows, places or range(len(rows)), strict=True))
    with canvas.house_style():
        figure, axes = canvas.canvas(*words[:2], height=height)
        for name, row in rows.items():
            for left, width, text, kind in row:
                look = _look(kinds.index(kind))
                axes.barh(at[name], width, thickness, left, linewidth=0.8, label=kind, **look)
                style = styles[1] if width < styles[0] else styles[2]
                _text(axes, left + width / 2, at[name], text, **style)
        for arrow in arrows:
            start, end = at[arrow.source], at[arrow.target]
            down = math.copysign(0.33, end - start)
            drawn = {"arrowstyle": "-|>", "color": _SIGNAL, "linewidth": 1.6}
            axes.annotate("", (arrow.at, end - down), (arrow.at, start + down), arrowprops=drawn)
        for x in uprights:
            axes.axvline(x, color=_SIGNAL, linewidth=1.6)
        axes.set_yticks(list(at.values()), list(at))
        axes.set(**{"ylim": (len(rows) - 0.5, -0.5), **axis})
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.spines["bottom"].set_visible(len(axis["xticks"]) > 0)
        # one entry a kind, although each bar carries its label
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        look = {"loc": "outside lower left", "ncols": 3, "frameon": False}
        figure.legend(handles.values(), handles.keys(), **look)
    return _finished(figure, *words)


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
    title: str, boxes: Mapping[str, Box], edges: Sequence[Edge], *, note: str = "", alt: str
) -> Plot:
    """Boxes and arrows between their borders: who is linked to whom.

    Raises UsageError if an edge names a box that is not there.
    """
    _check_ends("box", edges, boxes)
    kinds = list(dict.fromkeys(box.kind for box in boxes.values()))
    columns, rows = [b.column for b in boxes.values()], [b.row for b in boxes.values()]
    height = 1.6 + 0.95 * (max(rows) - min(rows) + 1)
    with canvas.house_style():
        from matplotlib.patches import FancyArrowPatch, Patch

        figure, axes = canvas.canvas(title, note, height=height)
        for box in boxes.values():
            look, left = _look(kinds.index(box.kind)), box.column - 0.42
            axes.barh(box.row, 0.84, 0.46, left, linewidth=0.8, zorder=2, **look)
            _text(axes, box.column, box.row, box.text, zorder=4)
        for edge in edges:
            a, b = boxes[edge.source], boxes[edge.target]
            # between rows from edge to edge; in one row from side to side
            level = a.row == b.row
            dx = math.copysign(0.42, b.column - a.column) if level else 0.0
            dy = 0.0 if level else math.copysign(0.23, b.row - a.row)
            ink = _SIGNAL if edge.dashed else INK
            start, end = (a.column + dx, a.row + dy), (b.column - dx, b.row - dy)
            line: Style = {
                "linestyle": "--" if edge.dashed else "-",
                "linewidth": 1.5,
                "color": ink,
            }
            shape: Style = {"mutation_scale": 14, "shrinkA": 0, "shrinkB": 0, "zorder": 3}
            head = "-|>" if edge.head else "-"
            axes.add_patch(FancyArrowPatch(start, end, arrowstyle=head, **shape, **line))
            x, y = (a.column + b.column) / 2, (a.row + b.row) / 2
            style: Style = {"pad": 0.5, "fontsize": 9, "color": ink, "zorder": 4}
            if level:
                _text(axes, x, y - 0.06, edge.text, va="bottom", **style)
            else:
                _text(axes, x + 0.06, y, edge.text, ha="left", **style)
        axes.set_xlim(min(columns) - 0.6, max(columns) + 0.6)
        axes.set_ylim(max(rows) + 0.5, min(rows) - 0.5)
        axes.set_axis_off()
        patches = [Patch(**_look(nth)) for nth in range(len(kinds))]
        ncols = 2 if len(kinds) > 3 or max(map(len, kinds)) > 24 else 3
        figure.legend(patches, kinds, loc="outside lower left", ncols=ncols, frameon=False)
    return _finished(figure, title, note, alt)


def _check_ends(what: str, arrows: Sequence[Arrow | Edge], known: Mapping[str, object]) -> None:
    if lost := {name for a in arrows for name in (a.source, a.target)} - set(known):
        raise UsageError(f"no {what} {min(lost)!r}; there are: {', '.join(known)}")


def _look(nth: int) -> Style:
    """What the nth kind looks like, in a bar and in the legend."""
    face, hatch = _LOOKS[nth % len(_LOOKS)]
    return {"facecolor": face, "edgecolor": "#555555", "hatch": hatch}


def _text(axes: Axes, x: float, y: float, text: str, *, pad: float = 0.8, **more: Any) -> None:
    """Text that stays legible on hatching."""
    if not text:
        return
    style = {"ha": "center", "va": "center", "fontsize": 10, **more}
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": pad}
    axes.text(x, y, text, bbox=box, **style)


def _finished(figure: Figure, title: str, note: str, text: str) -> Plot:
    words = ". ".join(part.rstrip(".") for part in (title, note, text) if part)
    return canvas.finished(figure, f"{words}.")
