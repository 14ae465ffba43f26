# SPDX-License-Identifier: MIT
"""A sweep's figure with something to slide, or the figure alone where nothing can."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from contended.show.canvas import Plot
from contended.simulate import machines
from contended.simulate.curves import Sweep

BOOK = "CONTENDED_BOOK"
"""Set while the book is built: its pages have no server behind them, so nothing to slide."""
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
        style = {"style": {"description_width": "12em"}}
        picture = widgets.HTML(self.figure()._repr_html_())
        if knob.factor:
            amount = widgets.FloatLogSlider(1.0, base=2, min=-3, max=3, step=0.5, **style)
        else:
            amount = widgets.FloatSlider(0.0, min=0.0, max=1.0, step=0.05, **style)
        amount.description, amount.continuous_update = knob.label, False
        machine = widgets.Dropdown(options=machines.names(), value=self.sweep.machine, **style)
        machine.description = "machine"

        def changed(_: object) -> None:
            picture.value = self.figure(machine.value, amount.value)._repr_html_()

        shown = [machine, amount] if knob.machine else [amount]
        for each in shown:
            each.observe(changed, names="value")
        return widgets.VBox([*shown, picture])

    def _repr_mimebundle_(
        self,
        include: object = None,  # noqa: ARG002 - the signature that IPython calls
        exclude: object = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        still = dict(self.figure()._repr_mimebundle_())
        if os.environ.get(BOOK):
            return still
        try:
            bundle: dict[str, Any] = dict(self.widget()._repr_mimebundle_())
        except ImportError:
            return still
        # whoever cannot show the widget shows the figure
        return {**still, **{k: v for k, v in bundle.items() if "widget" in k}}
