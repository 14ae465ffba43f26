# SPDX-License-Identifier: MIT
"""The figure of profiles: who takes lines from whom, per operation, before and after."""

from __future__ import annotations

from contended.errors import UsageError
from contended.measure.results import number
from contended.profile.saved import Profiles
from contended.profile.tables import by, meaning
from contended.show.canvas import PALETTE, Plot, canvas, finished, house_style, legend

_HATCHES = ("", "//", "..", "xx", "\\\\", "++")
_REST = "the rest"
_UNKNOWN = (meaning(None), "?")
_SEEN = 0.02  # what is less than this of the largest part cannot be seen in a bar


def stacked(
    profiles: Profiles,
    what: str = "symbol",
    *,
    label: str | None = None,
    top: int = 5,
    title: str | None = None,
) -> Plot:
    """HITM per operation of each variant, a bar stacked by "symbol" or by "meaning" of the bytes.

    It is of the region `label`, or of each variant's first. `top` parts are told apart (at most 6);
    the others are one part, together with what has no name and what is too little to be seen.
    """
    if not profiles.profiles:
        raise UsageError("no profiles to plot")
    shown = [profiles.of(variant, label) for variant in profiles.variants]
    parts = [by(profile, what) for profile in shown]
    largest = {key: max(part.get(key, 0.0) for part in parts) for part in parts for key in part}
    least = _SEEN * max(largest.values(), default=0.0)
    named = [key for key in largest if key not in _UNKNOWN and largest[key] >= least]
    keys = sorted(named, key=lambda key: (-largest[key], key))[: min(top, len(_HATCHES))]
    rows = {key: [part.get(key, 0.0) for part in parts] for key in keys}
    # what the listed sites do not cover is in the totals only
    wholes = [p.per_op(p.counts.hitm) for p in shown]
    rows[_REST] = [
        max(0.0, whole - sum(row[i] for row in rows.values())) for i, whole in enumerate(wholes)
    ]
    names = "function" if what == "symbol" else "what the bytes are"
    title = title or f"{profiles.case}: lines taken from another CPU, by {names}"
    subtitle = f"{profiles.cpus}, idealised caches"
    subtitle = f"recorded reference run, {subtitle}" if profiles.recorded else subtitle
    with house_style():
        figure, axes = canvas(title, subtitle, height=1.4 + 0.5 * len(shown))
        left = [0.0] * len(shown)
        for i, (key, row) in enumerate(rows.items()):
            rest = key == _REST
            axes.barh(
                range(len(shown)),
                row,
                0.62,
                left=left,
                # matplotlib leaves what begins with an underscore out of the legend
                label=f" {key}" if key.startswith("_") else key,
                color="#BBBBBB" if rest else PALETTE[i % len(PALETTE)],
                hatch="" if rest else _HATCHES[i % len(_HATCHES)],
                edgecolor="white",
                linewidth=0.6,
            )
            left = [a + b for a, b in zip(left, row, strict=True)]
        for place, whole in enumerate(wholes):
            axes.annotate(
                number(whole, 3), (whole, place), (4, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(range(len(shown)), [profile.variant for profile in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlim(0, (max(wholes) or 1) * 1.15)
        axes.set_xlabel("HITM per operation")
        axes.grid(axis="x", alpha=0.3)
        legend(figure, *axes.get_legend_handles_labels())
    said = []
    for i, (profile, whole) in enumerate(zip(shown, wholes, strict=True)):
        amounts = [f"{key} {number(row[i], 3)}" for key, row in rows.items() if row[i] > 0]
        of_it = f", of it {', '.join(amounts)}" if amounts else ""
        said.append(f"{profile.variant}: {number(whole, 3)} in all{of_it}")
    return finished(figure, f"{title}, {subtitle}. HITM per operation. {'. '.join(said)}.")
