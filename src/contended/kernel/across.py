# SPDX-License-Identifier: MIT
"""The cases across the releases of Linux: what was counted of each, and what the register says.

The book's own release is in the reference runs of the kernel lab, which have Linux as it is among
their variants; the others are in `results/history`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contended import register, tree
from contended.errors import ContendedError, pick
from contended.kernel import chapter, history, releases
from contended.kernel.history import ReleaseSeen, Seen
from contended.measure.results import number
from contended.show.table import Table


@dataclass(frozen=True, slots=True)
class Across:
    """Each case on each release that there is a record of, oldest release first."""

    seen: tuple[ReleaseSeen, ...]

    @property
    def releases(self) -> list[str]:
        """The releases that were counted on."""
        there = {one.release for one in self.seen}
        return [name for name in releases.names() if name in there]

    @property
    def newest(self) -> str:
        """The last of them."""
        return self.releases[-1]

    def of(self, slug: str, release: str) -> ReleaseSeen:
        """A case on a release; raises UsageError if that was not counted."""
        known = {f"{one.case} on {one.release}": one for one in self.seen}
        return pick(known, f"{slug} on {release}", "there is no record of")

    def value(self, slug: str, release: str, at: int = -1) -> float:
        """A count, by default the case's last; ContendedError if the release has none to count."""
        count = self.of(slug, release).counts[at]
        if count.value is None:
            raise ContendedError(f"{slug}: {count.why}")
        return count.value

    def having(self, release: str) -> list[str]:
        """The cases that a release has."""
        return [s for s in register.slugs() if self.of(s, release).verdict == "has it"]

    def verdicts(self) -> Table:
        """Which release has which bug."""
        rows = [
            (case.chapter, case.title, *(self.of(case.slug, r).verdict for r in self.releases))
            for case in register.all()
        ]
        versions = [self.of(register.slugs()[0], r).version for r in self.releases]
        return Table("Which unpatched kernel has it", ("chapter", "bug", *versions), rows)

    def counts(self, slugs: Sequence[str] = ()) -> Table:
        """What the verdicts rest on; of what a release has no function for, the reason."""
        rows, notes = [], []
        for slug in slugs or register.slugs():
            each = [self.of(slug, release) for release in self.releases]
            for counts in zip(*(one.counts for one in each), strict=True):
                rows.append((register.get(slug).chapter, counts[0].what, *map(_told, counts)))
                notes += [count.why for count in counts if count.value is None]
        return Table("What was counted", ("chapter", "what", *self.releases), rows, notes)

    def endings(self) -> Table:
        """What ended each bug, as the register has it, and whether the kernels agree."""
        rows = []
        for case in register.all():
            end = next((step for step in case.outcome.steps if step.ends), None)
            agree = all(self.of(case.slug, r).agrees for r in self.releases)
            what = (
                [end.what, end.commit or "", end.version or ""]
                if end
                else ["nothing so far", "", ""]
            )
            if end and end.unverified:
                what[2] += ", unverified"
            rows.append(
                (case.chapter, case.outcome.status, *what, "agree" if agree else "DISAGREE")
            )
        head = ("chapter", "the posted fix", "what ended it", "commit", "since", "the kernels")
        return Table("What became of each", head, rows)

    def patches(self) -> Table:
        """Whether the lab's patches for what the newest release still has apply there."""
        rows = [
            (register.get(slug).chapter, name, (why.partition(".patch ")[2] or why) or "applies")
            for slug in self.having(self.newest)
            for name, why in self.of(slug, self.newest).patches.items()
        ]
        version = self.of(register.slugs()[0], self.newest).version
        return Table(
            f"The lab's patches on Linux {version}", ("chapter", "variant", "as it is"), rows
        )


def costs() -> Table:
    """What each report began with: its first figure, as published."""
    rows = []
    for case in register.all():
        figure = case.published[0]
        values = [
            f"{value.name} {number(value.low)}"
            + (f" to {number(value.high)}" if value.high > value.low else "")
            for value in figure.values
        ]
        rows.append((case.chapter, figure.what, f"{'; '.join(values)} ({figure.unit})"))
    head = ("chapter", "what was measured", "published")
    return Table("What each cost those who reported it", head, rows)


def recorded() -> Across:
    """All that is recorded; raises ContendedError if a release lacks a case."""
    found = {(one.case, one.release): one for one in map(on_the_book, register.slugs())}
    for file in sorted((tree.home() / "results" / "history").glob("*.json")):
        found |= {(one.case, one.release): one for one in history.load(file).seen}
    names = [name for name in releases.names() if any(name == r for _, r in found)]
    for key in ((slug, name) for slug in register.slugs() for name in names):
        if key not in found:
            raise ContendedError(f"results/history has no {key[0]} on {key[1]}: record it again")
    return Across(tuple(found[slug, name] for slug in register.slugs() for name in names))


def on_the_book(slug: str) -> ReleaseSeen:
    """A case on the release that its patches are for, by the reference run of its kernels."""
    kept, variant = chapter.recorded(slug), history.unpatched(slug).name
    seen = {(o.run, o.metric): o.seen for o in kept.outcomes if o.variant == variant}
    counts = history.watched()[slug].counts
    values = [seen.get((count.run, count.metric)) for count in counts]
    numbers = [float(value) for value in values if isinstance(value, float | int)]
    if len(numbers) < len(counts):
        raise ContendedError(f"results/{slug}/kernel.json lacks a count: contended kernel run it")
    kernel = next(k for k in kept.kernels if (k.variant, k.config) == (variant, "base"))
    expected, commit = history.registered(slug, releases.BOOK.name)
    return ReleaseSeen(
        case=slug,
        release=releases.BOOK.name,
        version=kernel.version,
        build_id=kernel.build_id,
        counts=[
            Seen(run=c.run, metric=c.metric, what=c.what, value=value)
            for c, value in zip(counts, numbers, strict=True)
        ],
        splats=[s for boot in kept.boots if boot.variant == variant for s in boot.splats],
        verdict=history.verdict(counts, numbers),
        registered=expected,
        commit=commit,
    )


def _told(count: Seen) -> str:
    return "none" if count.value is None else number(count.value, 3)
