# SPDX-License-Identifier: MIT
"""The looks of the book's figures: a canvas, and what is drawn on it.

Nothing here touches pyplot, the backend or the reader's own matplotlib settings, and the same data
always gives the same SVG, byte for byte. Colours are those of M. Okabe and K. Ito ("Color Universal
Design", 2008), which colour-blind readers can tell apart; marker, line style and hatch tell the
series apart without any. matplotlib takes half a second to import, so that waits for a drawing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contended import stats
from contended.errors import ContendedError, UsageError
from contended.show.inline import inline
from contended.show.words import Series, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Style = dict[str, Any]
#: Vermilion, blue, bluish green, reddish purple, orange, sky blue, black. Okabe and Ito's yellow
#: is left out: on white it is too faint.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
INK = "#333333"
# About as wide as a phone's column: there a point is more than a pixel
WIDTH = 4.6
#: The size of all text but titles, in points; none is smaller.
TEXT = 11.0
# Verdana, where DejaVu Sans is missing, is as wide
_ON_A_PAGE = (
    "width:100%;max-width:28rem;height:auto;background:#fff;"
    "white-space:pre;font-family:'DejaVu Sans',Verdana,sans-serif"
)
# A range beyond this needs a logarithmic axis, or its lower end is a flat line
_LOG_BEYOND = 20.0
_STYLE: Style = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "legend.fontsize"), TEXT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), TEXT),
    "figure.titlesize": 13.0,
    # the highest tick's label reaches up beside what stands above the axes
    "axes.titlepad": 9.0,
    "hatch.linewidth": 0.8,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "svg.hashsalt": "contended",
}


def format_of(path: Path) -> str:
    """The format that a file's suffix names; raises UsageError if a figure has none such."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("svg", "png", "pdf"):
        raise UsageError(f"cannot save a figure as {path.name}: end it in .svg, .png or .pdf")
    return kind


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure, its layout settled, and what it shows in words; a notebook has both."""

    figure: Figure = field(repr=False)
    alt: str

    def svg(self) -> bytes:
        """The figure as SVG, its glyphs as shapes: the same bytes for the same data."""
        return self._render("svg")

    def save(self, path: Path) -> None:
        """Write the figure; the suffix (.svg, .png or .pdf) chooses the format.

        Raises:
            UsageError: the suffix is none of these.
            ContendedError: the file cannot be written.
        """
        image = self._render(format_of(path))
        try:
            path.write_bytes(image)
        except OSError as error:
            raise ContendedError(f"cannot write {path}: {error.strerror}") from error

    def _render(self, kind: str, text: str = "path") -> bytes:
        undated = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
        out = BytesIO()
        with house_style(text):
            self.figure.savefig(out, format=kind, dpi=200, metadata=undated.get(kind))
        return out.getvalue()

    def _repr_html_(self) -> str:
        # no second form for viewers that strip inline SVG: chapters are kept without outputs,
        # and those viewers take the HTML first
        return inline(self._render("svg", "none"), self.alt, _ON_A_PAGE)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": self.alt}


@contextmanager
def house_style(text: str = "path") -> Iterator[None]:
    """Fonts and lines of the book, whatever the reader's own settings are.

    `text` is "path" where an SVG is to have shapes for glyphs, "none" where text.
    """
    from matplotlib import style

    with style.context(_STYLE | {"svg.fonttype": text}, after_reset=True):
        yield


def text_width(text: str, size: float = TEXT, weight: str = "normal") -> float:
    """How wide a line of text is, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=_STYLE["font.family"], size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def wrapped(text: str, room: float, size: float = TEXT, weight: str = "normal") -> str:
    """Text in lines of at most `room` points; a longer word has a line of its own."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            if line and text_width(f"{line} {word}", size, weight) > room:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return "\n".join(lines)


def canvas(title: str, subtitle: str, *, height: float = 3.2) -> tuple[Figure, Axes]:
    """An empty figure in the book's looks: draw on the axes, then call `finished`.

    Title and, smaller, subtitle are wrapped to the width. The height is in inches; what wrapped
    lines and a `legend` take is added to it.
    """
    from matplotlib.figure import Figure

    room = 72 * WIDTH * 0.98
    title = wrapped(title, room, _STYLE["figure.titlesize"], "bold")
    subtitle = wrapped(subtitle, room)
    height += 0.22 * title.count("\n") + 0.18 * subtitle.count("\n")
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(title, x=0.01, ha="left", weight="bold")
    axes.set_title(subtitle, loc="left", color=INK, gid="subtitle")
    return figure, axes


def finished(figure: Figure, alt: str) -> Plot:
    """Settle the layout, and pair the figure with the words for those who cannot see it.

    Labels of axes are wrapped to these; of ticks' labels, those that would touch the one before
    are left out.
    """
    from matplotlib.transforms import blended_transform_factory

    # a constrained layout creeps a little with every drawing: settle it once, so that showing
    # a figure twice gives the same bytes
    with house_style():
        figure.draw_without_rendering()
        for axes in figure.axes:
            room, page = axes.get_window_extent(), figure.bbox
            middle = (room.x0 + room.x1) / 2
            width = 2 * min(middle, page.width - middle)
            for axis, length in ((axes.xaxis, width), (axes.yaxis, room.height)):
                points = length * 72 / figure.dpi
                axis.set_label_text(wrapped(axis.get_label_text(), points - 4))
                _thin_ticks(axis)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        # from the figure's edge on: the labels at the left would take its room
        for text in figure.findobj(lambda part: part.get_gid() == "subtitle"):
            across = blended_transform_factory(figure.transFigure, text.get_transform())
            text.set(x=0.01, transform=across)
    return Plot(figure, alt)


def _thin_ticks(axis: Axis) -> None:
    last = None
    for tick in axis.get_major_ticks():
        low, high = sorted(axis.get_view_interval())
        box = tick.label1.get_window_extent()
        if tick.label1.get_text() and low <= tick.get_loc() <= high:
            if last is not None and last.overlaps(box.padded(2)):
                tick.label1.set_visible(False)
            else:
                last = box


def draw_series(
    axes: Axes, x: Sequence[float], series: Series, *, dodge: float = 0.0, band: bool = False
) -> None:
    """Named series over x: medians as lines, every repeat as a point; bands on demand.

    `dodge` is the part of the gap between neighbours over which the series of one x are spread.
    """
    gap = min((b - a for a, b in pairwise(x)), default=1.0)
    logarithmic = axes.get_xscale() == "log"
    for i, (name, rows) in enumerate(series.items()):
        side = dodge * (i - (len(series) - 1) / 2) / len(series)
        places = [at * 2**side if logarithmic else at + gap * side for at in x]
        seen = [(at, row) for at, row in zip(places, rows, strict=True) if row]
        places = [at for at, _ in seen]
        low, middle, high = ([f(row) for _, row in seen] for f in (min, stats.median, max))
        style: Style = {"linestyle": _LINES[i % len(_LINES)], "linewidth": 1.8, "markersize": 4}
        axes.plot(places, middle, label=name, **look(i), **style)
        if band:
            axes.fill_between(places, low, high, color=look(i)["color"], alpha=0.15, linewidth=0)
        for at, row in seen:
            draw_points(axes, [at] * len(row), row, i)


def draw_points(axes: Axes, x: Sequence[float], y: Sequence[float], i: int) -> None:
    """Points in the looks of the series number i."""
    style: Style = {"linestyle": "none", "markersize": 6.5, "markerfacecolor": "none"}
    axes.plot(x, y, **look(i), **style, alpha=0.8, zorder=3)


def value_axis(axis: Axis, label: str, series: Series, *, log: bool | None = None) -> None:
    """The axis of values: its label, grid and scale; `log` None: where the range asks for it."""
    values = [value for rows in series.values() for row in rows for value in row]
    positive = min(values) > 0
    if log is None:
        log = positive and max(values) / min(values) > _LOG_BEYOND
    axes, name = axis.axes, axis.axis_name  # type: ignore[attr-defined]
    if log and positive:
        axes.set(**{f"{name}scale": "log"})
        tidy_log(axis)
        label = f"{label}\nlog scale"
    else:
        if min(values) >= 0:
            axes.set(**{f"{name}lim": (0, max(values) * 1.08 or 1)})
        axis.set_major_formatter(_formatter())
    axis.set_label_text(label)
    axes.grid(axis=name, alpha=0.3)


def tidy_log(axis: Axis, most: int = 8) -> None:
    """Ticks of a logarithmic axis: the densest ladder with no more than `most` rungs in view."""
    if axis.get_scale() != "log":
        return
    low, high = sorted(axis.get_view_interval())
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.1, 1.2, 1.5, *range(2, 10)), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        ticks = [t for p in powers for step in steps if low <= (t := step * 10.0**p) <= high]
        if len(ticks) <= most:
            break
    ticks_at(axis, ticks)


def ticks_at(axis: Axis, values: Sequence[float]) -> None:
    """Ticks at these values, and nowhere else."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(_formatter())
    axis.set_minor_locator(NullLocator())


def _formatter() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: short(value))


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend below the axes, in as many columns as fit."""
    room = 72 * WIDTH - 8
    labels = [wrapped(label, room - 40) for label in labels]
    widest = max(text_width(line) for label in labels for line in label.split("\n"))
    columns = max(1, min(len(labels), int(room / (widest + 50))))
    lines = sum(label.count("\n") + 1 for label in labels)
    figure.set_figheight(figure.get_figheight() + 0.12 + 0.21 * -(-lines // columns))
    more: Style = {"ncols": columns, "columnspacing": 1.2, "frameon": False}
    figure.legend(handles, labels, loc="outside lower left", **more)


def look(i: int) -> Style:
    """Colour and marker of the series number i."""
    return {"color": PALETTE[i % len(PALETTE)], "marker": _MARKERS[i % len(_MARKERS)]}


def spaced(middle: float, width: float, n: int) -> list[float]:
    """Places for n points side by side."""
    return [middle - width / 2 + width * i / (n - 1) for i in range(n)] if n > 1 else [middle]
