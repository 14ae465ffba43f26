# SPDX-License-Identifier: MIT
"""The book's first page: the moving picture, and the scoreboard's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from browser import needs_browser, new_context, opened
from playwright.sync_api import Page as BrowserPage
from test_pages import watch

from contended.book import moving
from contended.measure.results import number

# How far the line is, what both sides have counted, and how many animations run.
NOW = """
() => [
  getComputedStyle(document.querySelector(".moving .line")).transform,
  ...[...document.querySelectorAll(".moving b")].map(
    (each) => Number(getComputedStyle(each).getPropertyValue("--ops"))),
  document.getAnimations().filter((each) => each.playState === "running" || each.pending).length,
]
"""
# Text in the two figures that is too small to read, or beside the screen.
SMALL = """
() => [...document.querySelectorAll(":is(.moving, .published) :is(text, strong, b, span, label)")]
  .filter((each) => {
    const { left, right } = each.getBoundingClientRect();
    const scale = each.getScreenCTM?.() ?? { a: 1, b: 0 };
    const size = parseFloat(getComputedStyle(each).fontSize) * Math.hypot(scale.a, scale.b);
    return size < 11 || left < 0 || right > document.documentElement.clientWidth;
  })
  .map((each) => each.textContent)
"""


def test_the_moving_picture_is_the_record(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    seen = moving.recorded()
    frame = pd.read_parquet(root / "results" / moving.SLUG / "simulate.parquet")
    rows = frame[(frame.cpus == seen.cpus) & (frame.phase == "run")]
    medians = rows.groupby("variant").median(numeric_only=True)
    ratio = medians.ops_per_s["files-after"] / medians.ops_per_s["files-before"]
    assert medians.transfers_per_op["files-after"] == 0, "all transfers are those of the line"
    text = moving.html(seen, "chapter.html#there")
    before, after = map(int, re.findall(r"--ops:(\d+)", text))
    assert before == round(seen.cpus / medians.transfers_per_op["files-before"])
    each = medians.transfers_per_op["files-before"]
    assert after == pytest.approx(seen.cpus / each * ratio, abs=0.6)
    assert f"{number(ratio, 3)} times as many" in text
    widths = [float(each) for each in re.findall(r'class="bar"[^>]* width="([\d.]+)"', text)]
    assert widths[1] / widths[0] == pytest.approx(ratio, rel=1e-3)
    # those that do not wait are filled: of all CPUs' time, what is not spent in queues
    simulated = medians.ops["files-before"] / medians.ops_per_s["files-before"] * 1e9 * seen.cpus
    working = seen.cpus * (1 - medians.wait_ns["files-before"] / simulated)
    assert text.count('class="on"') == pytest.approx(working, abs=0.6)
    assert text.count("M") > 2 * seen.cpus
    # an operation of one CPU after the fix, at the pace of the round
    one = float(re.findall(r"animation-duration:([\d.]+)s", text)[0])
    slowed = float(re.findall(r"--round:([\d.]+)s", text)[0]) / (seen.cpus / each / seen.before)
    assert one == pytest.approx(slowed * seen.cpus / seen.after, rel=0.02)


@contextmanager
def front(site: str, **context: Any) -> Iterator[BrowserPage]:
    with opened() as browser:
        page = new_context(browser, **context).new_page()
        seen = watch(page, site)
        page.goto(f"{site}/index.html", wait_until="load")
        yield page
        # without scripts the browser gives up those that it has begun to fetch
        assert not seen or not context.get("java_script_enabled", True)


@needs_browser
@pytest.mark.parametrize("scripts", [True, False])
def test_the_picture_moves_until_it_is_paused(site: str, scripts: bool) -> None:
    with front(site, java_script_enabled=scripts) as page:
        pause = page.get_by_label("Pause")
        page.wait_for_timeout(300)
        place, *counted, running = page.evaluate(NOW)
        assert running > 80 / 10

        def goes_on(now: list[Any]) -> bool:
            return bool(now[0] != place and now[1] > counted[0] and now[2] > now[1])

        when(page, goes_on)
        pause.press("Space")
        assert page.locator(".moving label").is_visible()
        still = when(page, lambda now: now[-1] == 0)
        page.wait_for_timeout(1200)
        assert page.evaluate(NOW) == still
        pause.press("Space")
        when(page, lambda now: now[0] != still[0])


def when(page: BrowserPage, there: Callable[[list[Any]], bool]) -> list[Any]:
    """What is seen as soon as it is so: a busy host draws a picture in its own time."""
    deadline = time.monotonic() + 30
    while not there(now := page.evaluate(NOW)):
        assert time.monotonic() < deadline, now
        page.wait_for_timeout(100)
    return list(now)


@needs_browser
def test_who_prefers_it_sees_a_still_picture_that_says_the_same(site: str) -> None:
    with front(site, reduced_motion="reduce") as page:
        place, before, after, running = page.evaluate(NOW)
        assert running == 0
        ends = re.findall(r"--ops:(\d+)", page.locator(".moving").inner_html())
        assert [str(before), str(after)] == ends
        assert not page.locator(".moving label").is_visible(), "nothing to pause"
        page.wait_for_timeout(1200)
        assert page.evaluate(NOW)[0] == place
        told = page.locator(".moving [role=img]").get_attribute("aria-label") or ""
        assert "wait for it" in told
        assert "checks a second" in told


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_pictures_on_a_phone(site: str, scheme: str) -> None:
    phone: Any = {"width": 390, "height": 844}
    with front(site, viewport=phone, color_scheme=scheme) as page:
        assert page.evaluate(SMALL) == []
        page.add_style_tag(content=".published text { font-size: 8px !important }")
        assert page.evaluate(SMALL) != [], "small text is seen"


@needs_browser
def test_points_lead_to_their_sections_by_keyboard(site: str) -> None:
    with front(site) as page:
        points = page.locator(".published a")
        assert points.count() > 20
        assert points.first.locator("title").text_content()
        points.first.focus()
        target = points.first.get_attribute("href") or ""
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/{target}")
        assert page.locator(f"[id='{target.partition('#')[2]}']").count() == 1
