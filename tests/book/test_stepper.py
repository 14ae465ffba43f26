# SPDX-License-Identifier: MIT
"""Interleavings to step through, in the rendered book: by mouse, by keyboard, and by ear."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, new_context, opened
from playwright.sync_api import Locator
from playwright.sync_api import Page as BrowserPage
from test_pages import FIRST, watch

WITH_STEPS = sorted(
    f"notebooks/{path.stem}.html"
    for path in Path(__file__).parents[2].glob("notebooks/*.ipynb")
    if "show.steps import" in path.read_text(encoding="utf-8")
)
PHONE: Any = {"width": 390, "height": 844}


@contextmanager
def first_stepper(site: str, **context: Any) -> Iterator[tuple[BrowserPage, Locator]]:
    with opened() as browser:
        page = new_context(browser, **context).new_page()
        seen = watch(page, site)
        page.goto(f"{site}/{FIRST}", wait_until="load")
        yield page, page.locator(".contended-steps").first
        # without scripts a browser drops those that the page would preload
        assert not seen or not context.get("java_script_enabled", True)


# Runs on a stepper: what is said, and of each row whether it is visible and how it is framed.
SHOWN = """
(box) => [
  box.querySelector("[role=status]").innerText,
  [...box.querySelectorAll("g.step")].map((row) => [
    getComputedStyle(row.querySelector("text")).visibility,
    getComputedStyle(row.querySelector("rect")).stroke !== "none",
  ]),
]
"""


def step(box: Locator) -> tuple[int, int, str]:
    """Which step is shown, of how many, and what is said; the picture has to agree."""
    said, rows = box.evaluate(SHOWN)
    found = re.fullmatch(r"Step (\d+) of (\d+)\. (.*)", said)
    assert found
    now, last = int(found[1]), int(found[2])
    assert rows == [
        ["visible" if at <= now else "hidden", at == now] for at in range(1, last + 1)
    ], "rows up to this one are visible, and it is framed"
    return now, last, found[3]


@needs_browser
def test_previous_and_next_go_through_the_steps(site: str) -> None:
    with first_stepper(site) as (_, box):
        sentences = [text.replace("\n", " ") for text in box.locator("li").all_text_contents()]
        assert len(sentences) == box.locator("g.step").count() > 4
        back, on = (box.get_by_role("button", name=name) for name in ("Previous", "Next"))
        live = box.get_by_role("status").element_handle()
        height = box.evaluate("e => e.offsetHeight")
        for at, sentence in enumerate(sentences):
            assert step(box) == (at + 1, len(sentences), sentence)
            assert back.get_attribute("aria-disabled") == ("true" if at == 0 else "false")
            assert box.evaluate("e => e.offsetHeight") == height, "nothing below it moves"
            on.click(force=True)  # at the end as well
        assert step(box)[0] == len(sentences), "after the last there is none"
        assert on.get_attribute("aria-disabled") == "true"
        back.click()
        assert step(box)[0] == len(sentences) - 1
        # what is read out are changes within an element that stays
        assert live
        assert live.evaluate("e => e.isConnected && e.ariaLive === 'polite'")


@needs_browser
def test_keys_step_and_the_focus_stays(site: str) -> None:
    with first_stepper(site) as (page, box):
        back, on = (box.get_by_role("button", name=name) for name in ("Previous", "Next"))
        back.focus()
        page.keyboard.press("Tab")
        assert on.evaluate("e => e === document.activeElement")
        assert on.evaluate("e => getComputedStyle(e).outlineStyle + e.matches(':focus-visible')")
        last = step(box)[1]
        for key, to in (("Enter", 2), ("Space", 3), ("ArrowRight", 4), ("ArrowLeft", 3)):
            page.keyboard.press(key)
            assert step(box)[0] == to
        for _ in range(last):
            page.keyboard.press("ArrowRight")
        assert step(box)[0] == last
        assert on.evaluate("e => e === document.activeElement"), "not lost at the end"
        for _ in range(last):
            page.keyboard.press("ArrowLeft")
        assert step(box)[0] == 1
        page.keyboard.press("Alt+ArrowRight")  # the browser's own
        assert step(box)[0] == 1
        assert page.url == f"{site}/{FIRST}", "the theme turns no page"


@needs_browser
def test_what_is_heard_is_the_step_and_no_more(site: str) -> None:
    with first_stepper(site) as (_, box):
        box.get_by_role("button", name="Next").click()
        _, last, sentence = step(box)
        heard = box.aria_snapshot()
        assert heard.startswith('- group "A line goes through M, S and I":')
        assert 'button "Previous"' in heard
        assert 'img "A line goes through M, S and I"' in heard
        assert f"Step 2 of {last}." in heard
        assert heard.count(sentence) == 1
        for other in set(box.locator("li").all_text_contents()) - {sentence}:
            assert other not in heard


# Runs on a stepper: of its rows, sentences and buttons whether they are seen, and sentences' tops.
ALL = """
(box) => {
  const seen = (name) => [...box.querySelectorAll(name)].map((e) =>
    e.getClientRects().length > 0 && getComputedStyle(e).visibility === "visible");
  const tops = [...box.querySelectorAll("li")].map((e) => e.getBoundingClientRect().top);
  return [seen("g.step"), seen("li"), seen("button, [role=status]"), tops];
}
"""


def all_visible(box: Locator) -> None:
    rows, sentences, live, tops = box.evaluate(ALL)
    assert rows == sentences == [True] * len(tops)
    assert len(tops) > 4
    assert tops == sorted(set(tops)), "one beneath the other"
    assert not any(live)


@needs_browser
def test_without_scripts_and_on_paper_all_is_visible(site: str) -> None:
    with first_stepper(site, java_script_enabled=False) as (_, box):
        all_visible(box)
    with first_stepper(site) as (page, box):
        page.emulate_media(media="print")
        all_visible(box)


# Runs on a stepper: texts that are small, or that leave the picture, their column or their box.
MEASURE = """
(box, least) => {
  const faults = [];
  const frame = box.querySelector("svg").getBoundingClientRect();
  if (frame.width < 300 || frame.right > document.documentElement.clientWidth) faults.push("width");
  const rects = [...box.querySelectorAll("g.step rect")].map((e) => e.getBoundingClientRect());
  for (const text of box.querySelectorAll("svg text")) {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
    if (size < least) faults.push(`${text.textContent}: ${size} px`);
    if (left < frame.left || right > frame.right) faults.push(`${text.textContent}: cut`);
    const middle = [(left + right) / 2, (top + bottom) / 2];
    if (text.getAttribute("text-anchor") === "start") continue;
    for (const rect of rects)
      if (rect.left < middle[0] && middle[0] < rect.right && rect.top < middle[1])
        if (middle[1] < rect.bottom && (left < rect.left || right > rect.right))
          faults.push(`${text.textContent}: leaves its box`);
  }
  for (const text of box.querySelectorAll("p, li, button"))
    if (parseFloat(getComputedStyle(text).fontSize) < least) faults.push(text.textContent);
  return faults;
}
"""


@needs_browser
@pytest.mark.parametrize("name", WITH_STEPS)
def test_on_a_phone_it_is_legible_and_small(book: Path, site: str, name: str) -> None:
    with opened() as browser:
        page = new_context(browser, viewport=PHONE).new_page()
        page.goto(f"{site}/{name}", wait_until="load")
        page.evaluate(
            "document.querySelectorAll('.contended-cover button').forEach(e => e.click())"
        )
        assert page.locator(".contended-steps").count()
        for box in page.locator(".contended-steps").all():
            assert box.evaluate(MEASURE, 11) == []
            assert box.evaluate(MEASURE, 17) != [], "it does measure"
    source = (book / name).read_text(encoding="utf-8")
    for part in source.split('<div class="contended-steps"')[1:]:
        assert len(part.split("</ol></div>")[0].encode()) < 15_000


# The contrast of a text on what lies behind it, as WCAG 2 defines it; of a band 12 % is its ink.
CONTRAST = """
(box) => [...box.querySelectorAll("svg text")].map((text) => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const ink = numbers(getComputedStyle(text).fill);
  let behind = text;
  while (behind && (numbers(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0)
    behind = behind.parentElement;
  const ground = behind ? numbers(getComputedStyle(behind).backgroundColor) : [255, 255, 255];
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const band = [0, 1, 2].map((i) => 0.12 * ink[i] + 0.88 * ground[i]);
  const [one, other] = [light(ink), light(band)].sort((a, b) => a - b);
  return [(other + 0.05) / (one + 0.05), light(ground)];
})
"""


@needs_browser
@pytest.mark.parametrize(("scheme", "fits"), [("light", (0.5).__lt__), ("dark", (0.1).__gt__)])
def test_it_takes_the_colours_of_the_page(
    site: str, scheme: Any, fits: Callable[[float], bool]
) -> None:
    with first_stepper(site, color_scheme=scheme) as (_, box):
        for contrast, ground in box.evaluate(CONTRAST):
            assert contrast >= 4.5
            assert fits(ground), "it lies on the page itself"
