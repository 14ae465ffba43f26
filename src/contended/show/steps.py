# SPDX-License-Identifier: MIT
"""Interleavings to step through: who does what, one sentence and one row of a picture a step.

Time runs down, so that a phone shows all columns at a legible size. In the book Previous and Next
come from `docs/_static/steps.js`, in JupyterLab from ipywidgets; where neither runs, all rows and
all sentences are there. The picture has the colour of the text around it, light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import Any, NamedTuple

from contended.errors import UsageError
from contended.show.canvas import text_width, wrapped
from contended.show.widget import with_widget

WRONG = "✗ Here it goes wrong"
_LONGEST = 240  # characters of a sentence
# Units of the picture: pixels on a phone that is 390 wide, where the page leaves 358 of them.
_WIDTH, _GUTTER, _MARGIN, _FONT, _LINE, _GAP, _EXTRA = 356, 17, 3, 12, 15, 5, 17
_INK = 'stroke="currentcolor"'


#: By column its text, whether that is new, and whether it is the last step at which it stands.
_Row = dict[str, tuple[str, bool, bool]]


class _Place(NamedTuple):
    """Where a row stands in the picture: from `top` to `end`, its boxes from `box` on."""

    top: int
    box: int
    size: int
    end: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a sentence, and by column what is done there or how it stands now.

    `moves` is an arrow from column to column: a line that travels, a reference handed over. `wrong`
    marks the step at which things go wrong. In `say`, backticks enclose code.
    """

    say: str
    does: Mapping[str, str]
    moves: tuple[str, str] | None = None
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Stepper:
    """Steps beneath their columns; made by `steps`."""

    title: str
    columns: tuple[str, ...]
    steps: tuple[Step, ...]
    state: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= len(self.columns) <= 4 or len(set(self.columns)) < len(self.columns):
            raise UsageError(f"columns {', '.join(self.columns)}: give 2 to 4 different ones")
        if not self.steps:
            raise UsageError(f"no steps in {self.title!r}: give at least one")
        named = chain(self.state, *((*s.does, *(s.moves or ())) for s in self.steps))
        if lost := sorted(set(named) - set(self.columns)):
            raise UsageError(f"no column {lost[0]!r}; there are: {', '.join(self.columns)}")
        for step in self.steps:
            if not 0 < len(step.say) <= _LONGEST:
                raise UsageError(
                    f"a sentence of {len(step.say)} characters: give 1 to {_LONGEST}: {step.say!r}"
                )
            if step.moves and step.moves[0] == step.moves[1]:
                raise UsageError(f"an arrow from {step.moves[0]!r} to itself: {step.say!r}")
        for text in chain(self.columns, *(step.does.values() for step in self.steps)):
            self._lines(text)

    def svg(self, now: int | None = None) -> str:
        """The picture: all of it, or as it stands at step `now`, counted from 0."""
        top = _LINE * max(len(self._lines(name)) for name in self.columns) + 4
        heads = "".join(self._text(name, top / 2, name) for name in self.columns)
        y, drawn = top, []
        for at, (step, row) in enumerate(zip(self.steps, self._rows(), strict=True)):
            place = self._place(step, row, y)
            look = "" if now is None or at <= now else ' visibility="hidden"'
            parts = self._row(at, step, row, place)
            parts = parts.replace('stroke="none"', _INK) if at == now else parts
            drawn.append(f'<g class="step"{look}>{parts}</g>')
            y = place.end
        return (
            f'<svg viewBox="0 0 {_WIDTH} {y + 1}" role="img" aria-label="{escape(self.title)}" '
            f'font-size="{_FONT}" fill="currentcolor" text-anchor="middle" '
            'style="display: block; width: 100%; max-width: 30rem">'
            f"<desc>{escape(self._described())}</desc>"
            f'<g font-weight="bold">{heads}</g>{"".join(drawn)}</svg>'
        )

    def _described(self) -> str:
        columns = ", ".join(self.columns)
        return f"One row a step, from top to bottom; columns: {columns}. The sentences tell them."

    def _rows(self) -> Iterator[_Row]:
        """What stands in each column of each step."""
        kept: dict[str, str] = {}
        following = [*(step.does for step in self.steps[1:]), dict.fromkeys(self.columns)]
        for step, after in zip(self.steps, following, strict=True):
            row: _Row = {}
            for name in self.columns:
                text = step.does.get(name) or kept.get(name)
                if text:
                    row[name] = (text, kept.get(name) != text, after.get(name, text) != text)
                if text and name in self.state:
                    kept[name] = text
            yield row

    def _place(self, step: Step, row: _Row, top: int) -> _Place:
        """Where the parts of a step's row stand that begins at `top`."""
        lines = max((len(self._lines(text)) for text, _, _ in row.values()), default=1)
        box, size = top + _GAP + _EXTRA * step.wrong, _LINE * lines + 6
        return _Place(top, box, size, box + size + (_EXTRA if step.moves else _GAP))

    def _row(self, at: int, step: Step, row: _Row, place: _Place) -> str:
        """A step's part of the picture."""
        top, box, size, end = place
        # dotted from one box to the next
        lives = "".join(
            f"M{self._middle(name):g} {start}V{stop}"
            for name in self.columns
            if name not in self.state
            for start, stop in ([(top, box), (box + size, end)] if name in row else [(top, end)])
        )
        # first of all the frame of the step that is looked at, which svg() and steps.js stroke
        parts = [
            f'<rect x="1" y="{top + 1}" width="{_WIDTH - 2}" height="{end - top - 2}" rx="4" '
            'fill="none" stroke="none" stroke-width="2"/>',
            f'<path d="{lives}" {_INK} stroke-opacity=".3" stroke-dasharray="2 3"/>',
            f'<text x="{_GUTTER / 2:g}" y="{box + size / 2 + 4:g}">{at + 1}</text>',
        ]
        if step.wrong:
            parts.append(
                f'<text x="{_GUTTER}" y="{top + _EXTRA}" text-anchor="start" font-weight="bold">'
                f"{WRONG}</text>"
            )
        for name, (text, new, last) in row.items():
            y, height = box, size
            look = f'fill="none" {_INK} rx="4"' + ' stroke-width="2.5"' * step.wrong
            if name in self.state:
                y, height = top + 3 * new, end - 3 * last - (top + 3 * new)
                look = 'fill-opacity=".12"'
            width = self._column - _GAP
            parts.append(
                f'<rect x="{self._middle(name) - width / 2:g}" y="{y}" width="{width:g}" '
                f'height="{height}" {look}/>{self._text(name, box + size / 2, text)}'
            )
        if step.moves:
            start, stop = map(self._middle, step.moves)
            back = 6 if start > stop else -6
            parts.append(
                f'<path d="M{start:g} {end - 8}H{stop:g}m{back} -4l{-back} 4l{back} 4" '
                f'fill="none" {_INK} stroke-width="2"/>'
            )
        return "".join(parts)

    @property
    def _column(self) -> float:
        return (_WIDTH - _GUTTER - _MARGIN) / len(self.columns)

    def _middle(self, name: str) -> float:
        return _GUTTER + (self.columns.index(name) + 0.5) * self._column

    def _text(self, name: str, y: float, text: str) -> str:
        """A text in the middle of a column, and around `y`."""
        lines = self._lines(text)
        first = y - _LINE * (len(lines) - 1) / 2 + 4
        return "".join(
            f'<text x="{self._middle(name):g}" y="{first + _LINE * i:g}">{escape(line)}</text>'
            for i, line in enumerate(lines)
        )

    def _lines(self, text: str) -> list[str]:
        """A text in one line or two that fit into a column.

        Raises UsageError if they do not.
        """
        room = self._column - _GAP - 2
        lines = wrapped(" ".join(text.split()), room, _FONT).split("\n")
        if len(lines) > 2 or any(text_width(line, _FONT) > room for line in lines):
            raise UsageError(f"too long for one of {len(self.columns)} columns: {text!r}")
        return lines

    def _sentence(self, step: Step) -> str:
        said = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(step.say))
        return f"<strong>{WRONG}:</strong> {said}" if step.wrong else said

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{self._sentence(step)}</li>" for step in self.steps)
        return (
            f'<div class="contended-steps" role="group" aria-label="{escape(self.title)}">'
            f"<p><strong>{escape(self.title)}</strong></p>{self.svg()}<ol>{items}</ol></div>"
        )

    def __repr__(self) -> str:
        said = (
            f"{n}. {f'{WRONG}: ' if step.wrong else ''}{step.say} "
            f"({'; '.join(f'{name}: {text}' for name, text in step.does.items())})"
            for n, step in enumerate(self.steps, 1)
        )
        return "\n".join([self.title, *said])

    def _at(self, now: int, role: str = "") -> str:
        """A step's number and sentence, in a box as high as the highest of them needs."""
        said = []
        for at, step in enumerate(self.steps):
            look = "grid-area: 1 / 1" + ("; visibility: hidden" if at != now else "")
            text = f"<strong>Step {at + 1} of {len(self.steps)}.</strong> {self._sentence(step)}"
            said.append(f'<div style="{look}"{role if at == now else ""}>{text}</div>')
        look = "display: grid; max-width: 44rem; font-size: 14px; line-height: 1.5"
        return f'<div style="{look}">{"".join(said)}</div>'

    def widget(self) -> Any:
        """Previous and Next above the sentence and the picture, as an ipywidgets box."""
        import ipywidgets as widgets  # an extra, and of use in JupyterLab only

        said, picture = widgets.HTML(self._at(0)), widgets.HTML(self.svg(0))
        buttons = [widgets.Button(description=name) for name in ("Previous", "Next")]
        now = 0

        def go(by: int) -> None:
            nonlocal now
            now = min(max(now + by, 0), len(self.steps) - 1)
            # put in anew each time: screen readers read out such an element only as an alert
            said.value, picture.value = self._at(now, ' role="alert"'), self.svg(now)

        for button, by in zip(buttons, (-1, 1), strict=True):
            button.on_click(lambda _, by=by: go(by))
        title = widgets.HTML(f"<strong>{escape(self.title)}</strong>")
        return widgets.VBox([title, widgets.HBox(buttons), said, picture])

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        still = {"text/plain": repr(self), "text/html": self._repr_html_()}
        return with_widget(still, self.widget)


def steps(
    title: str, columns: Sequence[str], steps: Sequence[Step], *, state: Sequence[str] = ()
) -> Stepper:
    """An interleaving to step through.

    Args:
        title: What happens, in a few words.
        columns: 2 to 4, who acts and what is acted on.
        steps: In the order in which they happen. A text in a column may take two lines; they hold
            about ten characters each in four columns, and thirteen in three.
        state: Columns whose text stays until it changes; they are drawn as bands, not as boxes.

    Raises:
        UsageError: there are no steps, a column is not known, or a text is too long.
    """
    return Stepper(title, tuple(columns), tuple(steps), tuple(state))
