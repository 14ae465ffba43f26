# SPDX-License-Identifier: MIT
"""What the chapters need beyond measuring: predictions, reference runs, notes, excerpts.

Everything here shows itself in JupyterLab and in the rendered book alike, and degrades to text.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Self, TypeVar

from contended import register, tree
from contended.errors import ContendedError, UsageError
from contended.measure import TooFewCpus, native, results
from contended.measure.results import Measurement
from contended.measure.runner import RunFailed
from contended.measure.today import NotAllowed
from contended.show import claims
from contended.show.claims import RECORD, Claim
from contended.show.table import Table
from contended.show.widget import with_widget
from contended.state import Check

RECORDED = "CONTENDED_RECORDED"
"""Set to 1 to show the reference runs, which are the same on any machine, and measure nothing."""

FRESH = "CONTENDED_RUNS"
"""Names the folder where the book's build keeps what it measures, for the scoreboard."""
_T = TypeVar("_T", int, str)


@dataclass(frozen=True, slots=True)
class Note:
    """A titled note; `kind` is a class of the book's theme: "note", "tip" or "warning".

    `data` is for the page's scripts: attributes `data-NAME` of the note's element.
    """

    title: str
    text: str
    kind: str = "note"
    data: Mapping[str, str] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        data = "".join(f' data-{name}="{escape(value)}"' for name, value in self.data.items())
        return (
            f'<div class="admonition {escape(self.kind)}"{data} '
            'style="border-left: 0.25em solid #0072b2; padding: 0.5em 1em">'
            f'<p class="admonition-title"><strong>{escape(self.title)}</strong></p>'
            f"<p>{escape(self.text)}</p></div>"
        )

    def __repr__(self) -> str:
        return f"{self.title}: {self.text}"


@dataclass(slots=True)
class Prediction:
    """A question with a number to commit to before the result is shown.

    In JupyterLab it is a small form; `guess`, in `unit`, is None as long as there is none.
    """

    question: str
    unit: str
    guess: float | None

    def reveal(self, answer: float) -> Note:
        """The guess beside what was measured."""
        found = f"Measured here: {results.number(answer, 3)} {self.unit}."
        data = {"reveals": self.question, "answer": repr(float(answer)), "unit": self.unit}
        if self.guess is None:
            return Note("No guess was made", f"{self.question} {found}", "tip", data)
        verdict = ""
        if self.guess * answer > 0:  # else no factor leads from the one to the other
            off = max(self.guess / answer, answer / self.guess)
            verdict = f" Off by a factor of {results.number(off, 2)}."
            verdict = " Well predicted." if off < 1.5 else verdict
        guess = f"{results.number(self.guess, 3)} {self.unit}."
        return Note("Your guess", f"{guess} {found}{verdict}", "tip", data)

    def form(self) -> Any:
        """A field for the guess, as an ipywidgets box."""
        import ipywidgets as widgets  # an extra, and of use in JupyterLab only

        question = widgets.HTML(f"<strong>Predict.</strong> {escape(self.question)}")
        said = widgets.HTML(self._said())
        field = widgets.Text(
            "" if self.guess is None else f"{self.guess:g}",
            placeholder="your number",
            description="your guess",
            continuous_update=False,
        )

        def committed(_: object) -> None:
            try:
                guess = float(field.value.replace(",", "."))
            except ValueError:
                guess = math.nan
            if math.isfinite(guess):
                self.guess = guess
                said.value = self._said()
            else:
                said.value = f"{escape(field.value[:40])} is no number: write it as 2.5 or 1e3."

        field.observe(committed, names="value")
        return widgets.VBox([question, widgets.HBox([field, widgets.Label(self.unit)]), said])

    def _said(self) -> str:
        return f"Noted: {results.number(self.guess, 3)}. Read on." if self.guess is not None else ""

    def __repr__(self) -> str:
        guess = self.guess
        said = "no guess yet" if guess is None else f"{results.number(guess, 3)} {self.unit}"
        return f"{self.question} ({said})"

    def _repr_html_(self) -> str:
        data = {"predict": self.question, "unit": self.unit}
        return Note("Predict", repr(self), "tip", data)._repr_html_()

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        still = {"text/plain": repr(self), "text/html": self._repr_html_()}
        return with_widget(still, self.form)


def predict(question: str, *, unit: str, guess: float | None = None) -> Prediction:
    """Ask for a number before the result is shown: in a form, or as `guess` where there is none."""
    return Prediction(question, unit, guess)


def reference(name: str) -> Path:
    """Where the reference run "slug/label" is kept: `results/slug/label.json`."""
    return tree.home() / "results" / f"{name}.json"


def from_records() -> bool:
    """Whether the chapters are to show their reference runs, and to measure nothing."""
    return os.environ.get(RECORDED) == "1"


def recorded(name: str) -> Measurement:
    """The reference run "slug/label", measured on another occasion; its provenance says where."""
    return results.load(reference(name))


_ONCE: dict[type[ContendedError], str] = {
    TooFewCpus: "On a machine with two CPUs or more",
    NotAllowed: "Where private mount namespaces are allowed",
    native.MissingPackage: "Once the package is installed",
}


def live(name: str, run: Callable[[], Measurement], *, may_fail: bool = False) -> Measurement:
    """Measure now or, where this machine does not allow it, show the reference run and say so.

    That is where there are too few CPUs, no private mount namespace (`contended.measure.today`),
    not the library that the model needs, or so little of the machine left that runs miss their
    deadlines.

    Args:
        name: The reference run, "slug/label".
        run: Makes the measurement.
        may_fail: Failed runs are what is to be shown: they are kept in `failures`, no error.

    With `CONTENDED_RECORD=1` in the environment a live measurement becomes the reference run; with
    `CONTENDED_RECORDED=1` nothing is measured.
    """
    if from_records():
        _keep(name, None)
        return recorded(name)
    try:
        measurement = run()
    except (TooFewCpus, NotAllowed, native.MissingPackage) as lacking:
        if not reference(name).exists():
            raise
        _keep(name, None)
        claims.display(
            Note(
                "Not measured on this machine",
                f"{lacking}. What follows is the reference run results/{name}.json. "
                f"{_ONCE[type(lacking)]}, run the notebook again.",
                "warning",
            )
        )
        return recorded(name)
    except RunFailed as failed:
        if not failed.late:
            raise
        return _instead(name, str(failed), failed)
    if measurement.failures and not may_fail:
        first = measurement.failures[0]
        reason = f"{measurement.case}, variant {first.variant}: {first.reason}"
        error = ContendedError(reason)
        if not all(failure.late for failure in measurement.failures):
            raise error
        return _instead(name, reason, error)
    if os.environ.get(RECORD) == "1":
        reference(name).parent.mkdir(parents=True, exist_ok=True)
        measurement.save(reference(name))
    _warn(measurement.provenance.state)
    _keep(name, measurement)
    claims.remember(measurement, partial(recorded, name))
    return measurement


_warned: set[str] = set()


def _warn(state: Iterable[Check]) -> None:
    """Say of each thing that spoils measurements so once, not under every figure."""
    fresh = [check for check in state if not check.ok and check.name not in _warned]
    if fresh:
        _warned.update(check.name for check in fresh)
        said = "; ".join(map(str, fresh))
        claims.display(Note("The machine, as it was measured", f"{said}.", "warning"))


def _instead(name: str, why: str, error: ContendedError) -> Measurement:
    """The reference run in place of one that a busy machine did not let finish.

    Raises:
        ContendedError: `error`, if there is no reference run, or this was to become it.
    """
    if not reference(name).exists() or os.environ.get(RECORD) == "1":
        raise error
    _keep(name, None)
    claims.show(
        Claim(
            expected="the measurement comes to its end, with all its threads at work",
            holds=False,
            seen=f"{why}; what follows is the reference run results/{name}.json",
        )
    )
    return recorded(name)


def _keep(name: str, measurement: Measurement | None) -> None:
    """Leave a live measurement to the book's build; None takes away that of an earlier build."""
    folder = os.environ.get(FRESH)
    if not folder:
        return
    path = Path(folder) / f"{name}.json"
    if measurement is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    measurement.save(path)


def sweep(
    name: str, values: Iterable[_T], run: Callable[[_T], Measurement]
) -> dict[_T, Measurement]:
    """`live` for each of several values; the reference runs are called "name-value"."""
    return {value: live(f"{name}-{value}", partial(run, value)) for value in values}


def published(slug: str) -> Table:
    """What the reports say of a case: figures with unit, circumstances and source."""
    rows = []
    for figure in register.get(slug).published:
        for place, value in enumerate(figure.values):
            number = f"{value.low:,.10g}"
            if value.high != value.low:
                number += f" to {value.high:,.10g}"
            if value.plus_minus is not None:
                number += f" ± {value.plus_minus:,.10g}"
            about = (figure.what, figure.workload) if place == 0 else ("", "")
            rows.append((about[0], value.name, f"{number} {figure.unit}", about[1]))
    return Table(
        "Published figures; the sources are in src/contended/register.toml",
        ("what", "which", "value", "workload"),
        rows,
    )


def excerpt(slug: str, *names: str) -> Any:
    """Functions out of a model's C file as it is now, for display with syntax colours.

    Args:
        slug: The model.
        names: Functions in the file; each is shown from its return type to its closing brace.

    Raises:
        UsageError: there is no such function in the file.
    """
    # A notebook has it; whoever imports this elsewhere need not wait for it.
    from IPython.display import Code

    text = native.source(slug).read_text()
    parts = []
    for name in names:
        found = re.search(
            rf"^[a-z][^;{{}}]*?\b{re.escape(name)}\([^;{{}}]*\)\n{{.*?^}}", text, re.M | re.S
        )
        if not found:
            raise UsageError(f"no function {name!r} in {native.source(slug).name}")
        parts.append(found[0])
    return Code("\n\n".join(parts), language="c")  # type: ignore[no-untyped-call]


class Neighbour:
    """A process that keeps one CPU busy, to show what company does to a measurement.

    A context manager: the process does not outlive the block.
    """

    def __init__(self, cpu: int) -> None:
        self._cpu = cpu
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def from_halfway(self, done: int, planned: int) -> None:
        """For `measure(progress=...)`: move in when half of the runs are made."""
        if self._process is None and 2 * done >= planned:
            code = f"import os\nos.sched_setaffinity(0, {{{self._cpu}}})\nwhile True: pass"
            self._process = subprocess.Popen([sys.executable, "-c", code])

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
