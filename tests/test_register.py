# SPDX-License-Identifier: MIT
"""The register of cases: complete, cited, and refused when broken."""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

import pytest

from contended import register
from contended.errors import ContendedError, UsageError

ROOT = Path(__file__).parents[1]
SLUGS = register.slugs()

SMALL = """\
[seeds.doe2024thread]
author = "A. Author"
date = 2024-06-13
mailing_list = "linux-fsdevel"
subject = "[PATCH] a subject"
message_id = "1@example.org"
url = "https://example.org/1"

[[case]]
slug = "a-case"
title = "A case"
chapter = 2
bug = "Something is slow."
seed = "doe2024thread"

[[case.published]]
id = "a-figure"
what = "time to do it"
unit = "s"
workload = "doing it"
source = "doe2024thread"
values = [
  { name = "before", low = 50, high = 55 },
  { name = "after", value = 10.5, plus_minus = 1 },
]

[case.outcome]
status = "merged"
summary = "Merged."
sources = ["doe2024thread"]
steps = [{ what = "fix it", commit = "0123456789ab", version = "6.1" }]
"""


def parse(text: str) -> tuple[register.Case, ...]:
    """The cases of a register of that text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "register.toml"
        path.write_text(text)
        return register.read(path)


def bibliography() -> dict[str, str]:
    """The entries of docs/references.bib by key."""
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    entries = re.split(r"^@", text, flags=re.MULTILINE)[1:]
    return {re.match(r"\w+\{([^,\s]+),", e).group(1): e for e in entries}  # type: ignore[union-attr]


def test_cases_are_in_chapter_order() -> None:
    chapters = [case.chapter for case in register.all()]
    assert chapters == sorted(set(chapters))


def test_names_follow_from_the_slug() -> None:
    case = register.get("lockref-degrade")
    assert case.model == "lockref_degrade.c"
    assert case.notebook == "02-lockref-degrade"


@pytest.mark.parametrize("slug", SLUGS)
def test_case_is_complete_and_cited(slug: str) -> None:
    case = register.get(slug)
    keys = bibliography()
    assert case.bug.endswith(".")
    assert case.outcome.summary.endswith(".")
    assert set(case.sources) <= keys.keys()
    for figure in case.published:
        assert figure.unit
        assert figure.values
        assert figure.source in keys


def test_seed_agrees_with_the_bibliography() -> None:
    for case in register.all():
        entry = bibliography()[case.seed.key]
        assert f"author = {{{case.seed.author}}}" in entry
        assert f"url = {{{case.seed.url}}}" in entry
        assert case.seed.subject in re.sub(r"[{}\\]", "", entry)
        assert f"year = {{{case.seed.date[:4]}}}" in entry
        if case.seed.message_id is not None:
            assert case.seed.message_id in entry
            assert case.seed.message_id in case.seed.url


def test_summaries_name_only_commits_that_are_listed() -> None:
    for case in register.all():
        named = set(re.findall(r"\b[0-9a-f]{12,40}\b", case.outcome.summary))
        assert named <= {step.commit for step in case.outcome.steps}


def test_every_bibliography_entry_can_be_found() -> None:
    for key, entry in bibliography().items():
        assert re.search(r"^  (url|doi|publisher) = ", entry, re.MULTILINE), key


def test_what_no_source_confirms_is_marked() -> None:
    marked = {case.slug for case in register.all() if case.outcome.unverified}
    assert marked == {"mount-propagation", "proc-mounts-seek", "mount-hash"}


def test_published_ratios() -> None:
    stat = register.get("dentry-false-sharing").figure("stat-same-file")
    # the cover letter says +55%, cut off rather than rounded
    assert stat.ratio("after", "before") == pytest.approx((1.5567, 1.5567), abs=1e-4)
    opens = register.get("open-creat-unlazy").figure("open-close-64-mounts")
    assert opens.ratio("before", "after") == pytest.approx((50 / 15, 55 / 10))


def test_what_may_as_well_have_been_published() -> None:
    stat = register.get("dentry-false-sharing").figure("stat-same-file")
    assert stat.value("after").spread == (7.8e6, 9e6), "the source's own runs"
    assert stat.ratio("after", "before", spread=True) == pytest.approx((1.548, 1.786), abs=1e-3)
    lazy = register.get("umount-grace-period").figure("lazy-umount")
    assert lazy.value("before").spread == pytest.approx((39.01, 49.43)), "the stated one"
    assert stat.value("before").spread == (5038006, 5038006), "a point"
    reported = register.get("umount-grace-period").published
    assert all(f.runs == 10 for f in reported if f.id != "umounts-in-a-row")


def test_figures_that_contradict_their_source_say_how() -> None:
    named = {
        (case.slug, value.name): value.contradicted
        for case in register.all()
        for figure in case.published
        for value in figure.values
        if value.contradicted
    }
    assert named.keys() == {("open-creat-unlazy", "before"), ("mount-propagation", "before")}
    assert "7,998,000" in (named["mount-propagation", "before"] or "")
    assert 4000 * 3999 // 2 == 7_998_000


def test_fix_that_helps_few_hurts_many() -> None:
    case = register.get("lockref-degrade")
    assert case.figure("spin-24-workers").ratio("after", "before")[0] > 3
    assert case.figure("spin-192-workers").ratio("after", "before")[1] < 1 / 3


def test_values() -> None:
    (case,) = parse(SMALL)
    figure = case.figure("a-figure")
    before, after = figure.values
    assert (before.low, before.high, before.middle, before.plus_minus) == (50, 55, 52.5, None)
    assert (after.low, after.high, after.plus_minus) == (10.5, 10.5, 1)
    assert (figure.workers, figure.cpus, figure.kernel) == (None, None, None)
    assert case.seed.date == "2024-06-13"


def test_json() -> None:
    listed = json.loads(json.dumps([dataclasses.asdict(case) for case in register.all()]))
    assert tuple(case["slug"] for case in listed) == SLUGS
    assert listed[1]["published"][0]["values"][0]["low"] == 5038006
    assert listed[1]["seed"]["date"] == "2024-06-13"


@pytest.mark.parametrize("name", ["", "nonesuch", "lockref_degrade", "LOCKREF-DEGRADE"])
def test_unknown_case_lists_the_choices(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        register.get(name)
    message = str(caught.value)
    assert "\n" not in message
    assert all(slug in message for slug in SLUGS)


def test_unknown_figure_and_value_list_the_choices() -> None:
    case = register.get("dentry-false-sharing")
    with pytest.raises(UsageError, match=r"'x'; it has: stat-same-file, stat-profile, robot-full$"):
        case.figure("x")
    with pytest.raises(UsageError, match=r"'x'; it has: before, after$"):
        case.figure("stat-same-file").value("x")


def test_no_ratio_over_zero() -> None:
    (case,) = parse(SMALL.replace("low = 50", "low = 0"))
    with pytest.raises(UsageError, match="no ratio"):
        case.figure("a-figure").ratio("after", "before")


SECOND = SMALL[SMALL.index("[[case]]") :]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(
            'unit = "s"',
            'unit = "s"\nunits = "s"',
            "case a-case: published.0.units: Unexpected keyword",
            id="unknown key",
        ),
        pytest.param('title = "A case"\n', "", "case a-case: title: Field req", id="no title"),
        pytest.param('source = "doe2024thread"\n', "", "0.source: Field req", id="no source"),
        pytest.param('source = "doe', 'source = "Doe ', "source is malformed", id="no key"),
        pytest.param('unit = "s"', 'unit = ""', "unit must be one line", id="empty unit"),
        pytest.param('slug = "a-case"', 'slug = "A_case"', "slug is malformed", id="slug"),
        pytest.param("chapter = 2", "chapter = true", "valid integer", id="boolean"),
        pytest.param("chapter = 2", "chapter = 1", "chapter must be 2 or more", id="chapter"),
        pytest.param("date = 2024-06-13", 'date = "soon"', "Invalid isoformat", id="date"),
        pytest.param('seed = "doe', 'seed = "roe', "is not under [seeds]", id="unknown seed"),
        pytest.param("high = 55", "high = 45", "low 50 is above high 45", id="reversed range"),
        pytest.param("value = 10.5", "value = nan", "must be finite", id="nan"),
        pytest.param("value = 10.5", 'value = "10"', "valid number", id="text"),
        pytest.param("value = 10.5", "low = 10", "values.1.high: Field req", id="half a range"),
        pytest.param("plus_minus = 1", "plus_minus = -1", "not be negative", id="spread"),
        pytest.param("plus_minus = 1", "between = [11, 12]", "not between 11 and 12", id="runs"),
        pytest.param("plus_minus = 1", "between = [1]", "between", id="half of the runs"),
        pytest.param("plus_minus = 1", 'contradicted = ""', "must be one line", id="no reason"),
        pytest.param('name = "after"', 'name = "before"', "value 'before' stands", id="value"),
        pytest.param('status = "merged"', 'status = "m"', "'merged', 'superseded'", id="status"),
        pytest.param('sources = ["doe2024thread"]', "sources = []", "at least one", id="outcome"),
        pytest.param('commit = "0123456789ab"', 'commit = "012345"', "malformed", id="commit"),
        pytest.param('url = "https:', 'url = "ftp:', "url is malformed", id="url"),
        pytest.param("[[case]]", "[[cases]]", "register.toml: case", id="no case"),
        pytest.param("[seeds.doe2024thread]", "[seeds]", "seeds.author", id="seeds"),
        pytest.param("[[case]]", SECOND + "[[case]]", "slug 'a-case' stands there 2", id="twice"),
        pytest.param(
            "[[case]]",
            SECOND.replace("a-case", "b-case") + "[[case]]",
            "chapter 2 stands there 2",
            id="chapter twice",
        ),
        pytest.param(
            "[[case]]",
            SMALL[: SMALL.index("[[case]]")].replace("doe", "roe") + "[[case]]",
            "no case uses the seed 'roe2024thread'",
            id="unused seed",
        ),
        pytest.param("[[case]]", "[[case]", "register.toml: ", id="no TOML"),
        pytest.param("[[case.published]]", "[case.published]", "no table", id="no list"),
        pytest.param("workload", "workers = 0\nworkload", "must be at least 1", id="workers"),
    ],
)
def test_broken_register_is_refused(old: str, new: str, says: str) -> None:
    assert old in SMALL
    with pytest.raises(ContendedError) as caught:
        parse(SMALL.replace(old, new, 1))
    message = str(caught.value)
    assert says in message
    assert "\n" not in message
    assert "register.toml" in message


def test_message_says_where() -> None:
    with pytest.raises(ContendedError) as caught:
        parse(SMALL.replace("high = 55", "high = 45"))
    assert str(caught.value) == (
        "register.toml: case a-case: published.0.values.0: low 50 is above high 45"
    )


def test_import_reads_nothing_and_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys; from contended import register; "
        "assert register.all.cache_info().currsize == 0; "
        "print([m for m in ('numpy', 'matplotlib', 'pydantic', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_register_is_package_data() -> None:
    assert resources.files("contended").joinpath("register.toml").is_file()
