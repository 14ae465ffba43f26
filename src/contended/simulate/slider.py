# SPDX-License-Identifier: MIT
"""A figure with knobs: in JupyterLab they simulate anew, in a page of the book they look it up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contended.errors import ContendedError
from contended.show.canvas import Plot
from contended.show.widget import with_widget
from contended.simulate import grid, machines
from contended.simulate.curves import LIVE_CPUS, Sweep
from contended.simulate.grid import Grid


@dataclass(frozen=True, slots=True)
class Slider:
    """A sweep that its knobs change; without them, for want of ipywidgets, a still figure."""

    sweep: Sweep
    title: str

    def figure(self, machine: str = "", amount: float | None = None) -> Plot:
        """What the knobs show, see `Sweep.now`."""
        return self.sweep.now(LIVE_CPUS, machine=machine, amount=amount).plot(self.title)

    def widget(self) -> Any:
        """The knobs above the figure, as an ipywidgets box."""
        import ipywidgets as widgets  # an extra, and of use in JupyterLab only

        knob = self.sweep.knob
        style = {"style": {"description_width": "12em"}}
        picture = widgets.HTML(self.figure()._repr_html_())
        if knob.factor:
            amount = widgets.FloatLogSlider(knob.start, base=2, min=-3, max=3, step=0.5, **style)
        else:
            amount = widgets.FloatSlider(knob.start, min=0.0, max=1.0, step=0.05, **style)
        amount.description, amount.continuous_update = knob.label, False
        machine = widgets.Dropdown(options=machines.names(), value=self.sweep.machine, **style)
        machine.description = "machine"

        def changed(_: object) -> None:
            picture.value = self.figure(machine.value, amount.value)._repr_html_()

        shown = [machine, amount] if knob.machine else [amount]
        for each in shown:
            each.observe(changed, names="value")
        return widgets.VBox([*shown, picture])

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return with_widget(dict(self.figure()._repr_mimebundle_()), self.widget)


@dataclass(frozen=True, slots=True)
class Page:
    """A still figure and all that its knobs can show; docs/_static/slider.js makes it move."""

    sweep: Sweep
    title: str
    grid: Grid
    still: Plot

    def _repr_html_(self) -> str:
        sweep, knob, found = self.sweep, self.sweep.knob, self.grid
        name, _, _ = knob.label.partition(",")  # what follows is its unit
        data = {
            "title": self.title,
            "knob": f"work in {name}" if knob.factor else name,
            "factor": knob.factor,
            "start": knob.amounts.index(knob.start),
            "machine": sweep.machine,
            "machines": {
                name: {"title": box.title, "cpus": box.cpus}
                for name, box in ((name, machines.get(name)) for name in found.values)
            },
            "unit": "/s" if sweep.throughput else " ms",
            "ylabel": sweep.ylabel,
            "shade": sweep.throughput,
            "marks": [mark._asdict() for mark in sweep.marks],
            **{name: getattr(found, name) for name in ("amounts", "lines", "cpus", "values")},
        }
        # no "</script>" within, whatever a title says
        text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        return (
            f'<div class="contended-slider"><div class="contended-still">'
            f"{self.still._repr_html_()}</div>"
            f'<script type="application/json">{text}</script></div>'
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {"text/html": self._repr_html_(), "text/plain": self.still.alt}


def page(sweep: Sweep, title: str, path: Path, remedy: str) -> Page:
    """What a page shows, from a recorded grid; raises ContendedError as `grid.load` does.

    That is an error, too, if the figure's own setting now comes out otherwise than recorded.
    """
    found, still = grid.load(path, sweep, remedy), sweep.now(LIVE_CPUS)
    if grid.values(still) != found.at(sweep.machine, sweep.knob.start):
        raise ContendedError(f"{path} is not what is simulated now: {remedy}")
    return Page(sweep, title, found, still.plot(title))
