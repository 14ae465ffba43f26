# SPDX-License-Identifier: MIT
"""A sweep's figure with something to slide, or the figure alone where nothing can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contended.show.canvas import Plot
from contended.show.widget import with_widget
from contended.simulate import machines
from contended.simulate.curves import Sweep

CPUS = (1, 4, 8, 16, 32, 80, 192, 512)


@dataclass(frozen=True, slots=True)
class Slider:
    """In JupyterLab the knobs simulate anew with each change.

    In a page of the book, and where ipywidgets is missing, the figure stands still.
    """

    sweep: Sweep
    title: str

    def figure(self, machine: str = "", amount: float | None = None) -> Plot:
        """What the knobs show, see `Sweep.now`."""
        return self.sweep.now(CPUS, machine=machine, amount=amount).plot(self.title)

    def widget(self) -> Any:
        """The knobs above the figure, as an ipywidgets box."""
        import ipywidgets as widgets  # an extra, and of use in JupyterLab only

        knob = self.sweep.knob
        shared = {"description": knob.label, "style": {"description_width": "12em"}}
        picture = widgets.HTML(self.figure()._repr_html_())
        if knob.factor:
            amount = widgets.FloatLogSlider(1.0, base=2, min=-3, max=3, step=0.5, **shared)
        else:
            amount = widgets.FloatSlider(0.0, min=0.0, max=1.0, step=0.05, **shared)
        machine = widgets.Dropdown(
            options=machines.names(),
            value=self.sweep.machine,
            **{**shared, "description": "machine"},
        )

        def changed(_: object) -> None:
            chosen = machine.value if knob.machine else ""
            picture.value = self.figure(chosen, amount.value)._repr_html_()

        shown = [machine, amount] if knob.machine else [amount]
        for each in shown:
            each.continuous_update = False
            each.observe(changed, names="value")
        return widgets.VBox([*shown, picture])

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return with_widget(dict(self.figure()._repr_mimebundle_()), self.widget)
