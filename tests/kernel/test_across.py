# SPDX-License-Identifier: MIT
"""What chapter 12 shows of the recorded releases."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contended import register, tree
from contended.book import digest
from contended.errors import ContendedError, UsageError
from contended.kernel import across, history, releases
from contended.kernel.across import Across

WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}


@pytest.fixture(scope="module")
def seen() -> Across:
    return across.recorded()


def test_all_cases_on_all_recorded_releases(seen: Across, root: Path) -> None:
    files = [path.stem for path in (root / "results" / "history").glob("*.json")]
    assert set(seen.releases) == {*files, "6.1"}
    assert seen.releases == [name for name in releases.names() if name in seen.releases]
    assert [(o.case, o.release) for o in seen.seen] == [
        (slug, name) for slug in register.slugs() for name in seen.releases
    ]
    watched = history.watched()
    assert all(one.verdict == watched[one.case].seen[one.release] for one in seen.seen)
    with pytest.raises(UsageError, match=r"no record of 'mount-hash on 5\.9'"):
        seen.of("mount-hash", "5.9")


def test_the_books_release_is_its_reference_runs(seen: Across) -> None:
    """By what the kernel records say of the unpatched kernel."""
    one = seen.of("open-creat-unlazy", "6.1")
    assert (one.verdict, one.counts[0].value, one.splats) == ("has it", 2.0, [])
    assert one.version == releases.BOOK.tested
    assert seen.of("percpu-area-map", "6.1").verdict == "does not"
    assert "mount-hash" not in seen.having("6.1")


def test_what_has_no_count_is_no_number(seen: Across) -> None:
    whole = seen.of("overlay-creds", "6.12")
    gone = replace(whole.counts[0], value=None, why="Linux 6.14 has no function override_creds")
    less = replace(whole, counts=[gone, *whole.counts[1:]])
    changed = Across(tuple(less if one == whole else one for one in seen.seen))
    with pytest.raises(ContendedError, match=r"overlay-creds: Linux 6\.14 has no function"):
        changed.value("overlay-creds", "6.12", 0)
    table = changed.counts(["overlay-creds"])
    at = 2 + seen.releases.index("6.12")
    assert (table.rows[0][at], table.notes[0]) == ("none", gone.why)
    assert table.rows[1][at] == "1.18"


def test_a_disagreement_is_shown(seen: Across) -> None:
    assert "DISAGREE" not in repr(seen.endings())
    one = replace(seen.of("mount-hash", "6.12"), verdict="has it")
    wrong = Across(
        tuple(one if (o.case, o.release) == (one.case, "6.12") else o for o in seen.seen)
    )
    rows = {row[0]: row[-1] for row in wrong.endings().rows}
    assert rows[register.get("mount-hash").chapter] == "DISAGREE"
    assert list(rows.values()).count("agree") == len(rows) - 1
    since = {row[0]: row[4] for row in seen.endings().rows}
    chapters = {case.slug: case.chapter for case in register.all()}
    assert since[chapters["overlay-creds"]] == "6.14"
    assert since[chapters["mount-propagation"]] == "3.15, unverified"
    assert since[chapters["umount-grace-period"]] == ""


def test_whether_patches_apply_is_told_of_what_is_left(seen: Across) -> None:
    rows = {row[1]: row[2] for row in seen.patches().rows}
    assert rows["spin"] == "applies"
    assert rows["call-rcu"].startswith("does not apply: hunk 1 ")
    assert "after" not in rows, "of a bug that is gone"
    # A reason in other words is a reason, too, and not a patch that applies.
    one = seen.of("lockref-degrade", seen.newest)
    refused = replace(one, patches={"spin": "it is cut short"})
    other = Across(tuple(refused if o is one else o for o in seen.seen))
    assert ("spin", "it is cut short") in [row[1:] for row in other.patches().rows]


def test_the_chapter_runs_again_when_a_record_changes(root: Path) -> None:
    notebook = json.loads((root / "notebooks" / "12-nine-bugs.ipynb").read_text())
    rests = {str(path.relative_to(root)) for path in digest.dependencies(root, notebook)}
    assert {f"results/{slug}/kernel.json" for slug in register.slugs()} <= rests
    assert {
        "results/history/7.2.json",
        "patches/history.toml",
        "patches/mount-hash/variants.toml",
    } <= rests


def test_a_release_that_lacks_a_case_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: Across, root: Path
) -> None:
    kept = json.loads((root / "results" / "history" / "6.12.json").read_text())
    kept["seen"] = [one for one in kept["seen"] if one["case"] != "mount-hash"]
    (tmp_path / "results" / "history").mkdir(parents=True)
    (tmp_path / "results" / "history" / "6.12.json").write_text(json.dumps(kept))
    books = {one.case: one for one in seen.seen if one.release == "6.1"}
    monkeypatch.setattr(across, "on_the_book", books.__getitem__)
    monkeypatch.setattr(tree, "home", lambda: tmp_path)
    with pytest.raises(ContendedError, match=r"has no mount-hash on 6\.12: record it again"):
        across.recorded()


def test_the_chapter_counts_its_kernels(seen: Across, root: Path) -> None:
    """Its title, and the map's link to it, name as many as there are records of."""
    title = f"Nine bugs, {WORDS[len(seen.releases)]} kernels"
    notebook = json.loads((root / "notebooks" / "12-nine-bugs.ipynb").read_text())
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
    assert f"# {title}\n" in text
    assert title.lower() in (root / "index.md").read_text().lower()
    told = re.findall(r"Linux (\d\.\d+)\b", text)
    assert set(told) & set(releases.names()) <= set(seen.releases), "none that was not measured"
