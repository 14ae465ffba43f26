# SPDX-License-Identifier: MIT
"""Drawn figures: what lies where, and who is linked to whom. They explain and measure nothing.

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
    axis = {
        "xlim": (-0.01 * end, 1.01 * end),
        "xticks": range(0, end + 1, max(8, line // 4)),
        "xlabel": xlabel,
    }
    offsets = "; ".join(
        f"{name}: " + ", ".join(f"{f.name} at {f.offset} to {f.end - 1}" for f in fields)
        for name, fields in structs.items()
    )
    words = (title, note, f"{alt} Offsets: {offsets}.")
    return _in_rows(words, rows, axis, uprights=range(0, end + 1, line))


def cache_lines(
    title: str, structs: _Structs, *, kinds: Sequence[str] = (), note: str = "", alt: str
) -> Plot:
    """Structs, each from a new cache line on, one row for each line: what shares it with what.

    `kinds` come first in the order of their looks, so that several figures agree. What stands on
    each line is added to `alt`.
    """
    line = 64
    rows: dict[str, list[_Block]] = {}
    said = []
    for name, fields in structs.items():
        for at in range(0, max(field.end for field in fields), line):
            here = [f for f in fields if f.offset < at + line and f.end > at]
            said.append(f"{name} from byte {at}: {', '.join(f.name for f in here)}")
            rows[f"{name}, {at}" if len(structs) > 1 else str(at)] = [
                (start := max(f.offset - at, 0), min(f.end - at, line) - start, f.name, f.kind)
                for f in here
            ]
    xlabel = f"byte in the line; each row is a cache line of {line} bytes"
    axis = {"xlim": (0, line), "xticks": range(0, line + 1, 8), "xlabel": xlabel}
    words = (title, note, f"{alt} {'; '.join(said)}.")
    kinds = [*kinds, *(field.kind for fields in structs.values() for field in fields)]
    return _in_rows(words, rows, axis, kinds=kinds)


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
    axis = {"xlim": (-0.55, width - 0.45), "xticks": [], "xlabel": xlabel}
    return _in_rows((title, note, alt), blocks, axis)


def _in_rows(
    words: tuple[str, str, str],
    rows: Mapping[str, Sequence[_Block]],
    axis: Mapping[str, Any],
    *,
    kinds: Sequence[str] = (),
    uprights: Sequence[int] = (),
) -> Plot:
    """Rows from top to bottom, each below its name; text wider than its block is upright.

    Heights are in points: a row is as high as its longest upright text.
    """
    kinds = list(dict.fromkeys([*kinds, *(kind for row in rows.values() for *_, kind in row)]))
    left, right = axis["xlim"]
    point = 72 * canvas.WIDTH * 0.96 / (right - left)
    at, tall, bottom = {}, {}, 0.0
    for name, row in rows.items():
        wide = [canvas.text_width(text) for _, width, text, _ in row]
        high = [w for w, block in zip(wide, row, strict=True) if w + 3 > point * block[1]]
        tall[name] = max([22.0, *(w + 8 for w in high)])
        at[name] = bottom + 17 + tall[name] / 2
        bottom += 17 + tall[name] + 7
    with canvas.house_style():
        height = bottom / 72 + 0.75 + 0.25 * bool(axis["xticks"])
        figure, axes = canvas.canvas(*words[:2], height=height)
        for name, row in rows.items():
            axes.text(left, at[name] - tall[name] / 2 - 3, name, va="bottom")
            for start, width, text, kind in row:
                look = _look(kinds.index(kind))
                axes.barh(at[name], width, tall[name], start, linewidth=0.8, label=kind, **look)
                turned = canvas.text_width(text) + 3 > point * width
                _text(axes, start + width / 2, at[name], text, rotation=90 if turned else 0)
        for name, y in at.items() if uprights else ():
            ends = y - tall[name] / 2 - 3, y + tall[name] / 2 + 3
            axes.vlines(uprights, *ends, color=_SIGNAL, linewidth=1.6)
        axes.set(**{"ylim": (bottom, 0), "yticks": [], **axis})
        axes.spines["left"].set_visible(False)
        axes.spines["bottom"].set_visible(len(axis["xticks"]) > 0)
        # one entry a kind, although each bar carries its label
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        canvas.legend(figure, list(handles.values()), list(handles))
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
    if lost := {name for edge in edges for name in (edge.source, edge.target)} - set(boxes):
        raise UsageError(f"no box {min(lost)!r}; there are: {', '.join(boxes)}")
    kinds = list(dict.fromkeys(box.kind for box in boxes.values()))
    columns, rows = [b.column for b in boxes.values()], [b.row for b in boxes.values()]
    height = 0.9 + 0.85 * (max(rows) - min(rows) + 1)
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
            style: Style = {"pad": 0.5, "color": ink, "zorder": 4}
            if level:
                _text(axes, x, y - 0.06, edge.text, va="bottom", **style)
            elif x > min(columns):
                _text(axes, x - 0.06, y, edge.text, ha="right", **style)
            else:
                _text(axes, x + 0.06, y, edge.text, ha="left", **style)
        axes.set_xlim(min(columns) - 0.46, max(columns) + 0.46)
        axes.set_ylim(max(rows) + 0.5, min(rows) - 0.5)
        axes.set_axis_off()
        patches = [Patch(**_look(nth)) for nth in range(len(kinds))]
        canvas.legend(figure, patches, kinds)
    return _finished(figure, title, note, alt)


def _look(nth: int) -> Style:
    """What the nth kind looks like, in a bar and in the legend."""
    face, hatch = _LOOKS[nth % len(_LOOKS)]
    return {"facecolor": face, "edgecolor": "#555555", "hatch": hatch}


def _text(axes: Axes, x: float, y: float, text: str, *, pad: float = 0.8, **more: Any) -> None:
    """Text that stays legible on hatching."""
    if not text:
        return
    style = {"ha": "center", "va": "center", **more}
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": pad}
    axes.text(x, y, text, bbox=box, **style)


def _finished(figure: Figure, title: str, note: str, text: str) -> Plot:
    words = ". ".join(part.rstrip(".") for part in (title, note, text) if part)
    return canvas.finished(figure, f"{words}.")
