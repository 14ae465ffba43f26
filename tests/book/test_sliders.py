# SPDX-License-Identifier: MIT
"""The sliders in the rendered book: by keyboard, on a phone, by ear, and without a script."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, new_context, opened
from playwright.sync_api import Locator, expect
from playwright.sync_api import Page as BrowserPage
from test_pages import watch

from contended.simulate import machines

CHAPTERS = tuple(
    path.stem
    for path in sorted(Path(__file__).parents[2].glob("notebooks/*.ipynb"))
    if "beyond.slider(" in path.read_text(encoding="utf-8")
)
CREDS = "05-overlay-creds"
UMOUNT = "06-umount-grace-period"
# Of each line, the places of its points; of each point, what it says.
POINTS = """
(box) => [...box.querySelectorAll(".contended-legend .contended-point")].map((_, k) => {
  const points = box.querySelectorAll(`.contended-chart .contended-line-${k}.contended-point`);
  return [...points].map((point) => [
    ...point.getAttribute("transform").match(/[-.0-9]+/g).map(Number), point.textContent]);
})
"""
# What is written on the screen in fewer than eleven pixels, or beside it.
SMALL = """
(box) => [...box.querySelectorAll("text, p, li, label, select, span")]
  .filter((each) => {
    const { left, right } = each.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(each).fontSize);
    const scale = each.ownerSVGElement ? each.getScreenCTM().a : 1;
    return size * scale < 11 || left < 0 || right > document.documentElement.clientWidth;
  })
  .map((each) => each.textContent)
"""


@contextmanager
def slider(
    site: str, chapter: str = CREDS, **context: Any
) -> Iterator[tuple[BrowserPage, Locator, dict[str, Any]]]:
    """A page with a slider, its place there, and what it looks up; nothing may go wrong."""
    with opened() as browser:
        page = new_context(browser, **context).new_page()
        seen = watch(page, site)
        page.goto(f"{site}/notebooks/{chapter}.html", wait_until="load")
        box = page.locator(".contended-slider")
        data = json.loads(box.locator("script").text_content() or "")
        yield page, box, data
        scripts = context.get("java_script_enabled", True)  # without them none is loaded, either
        assert [fault for fault in seen if scripts or ".js?" not in fault] == []


def shown(box: Locator, data: dict[str, Any]) -> list[tuple[float, ...]]:
    """Which values are drawn, by the places of the points; what these say has to agree."""
    drawn = box.evaluate(POINTS)
    values = rows(box, data)
    assert [len(line) for line in drawn] == [len(data["cpus"])] * len(data["lines"])
    # a logarithmic axis: the height is a straight line over the logarithm of the value
    flat = [(y, math.log(v)) for line, row in zip(drawn, values, strict=True)
            for (_, y, _), v in zip(line, row, strict=True)]  # fmt: skip
    (y0, v0), (y1, v1) = min(flat, key=lambda p: p[1]), max(flat, key=lambda p: p[1])
    for y, v in flat:
        assert y == pytest.approx(y0 + (y1 - y0) * (v - v0) / (v1 - v0), abs=0.05)
    assert y1 < y0
    for line, row in zip(drawn, values, strict=True):
        for (x, _, said), n, v in zip(line, data["cpus"], row, strict=True):
            part = math.log(n) / math.log(data["cpus"][-1])
            assert x == pytest.approx(line[0][0] + part * (line[-1][0] - line[0][0]), abs=0.05)
            assert f", {n} CPUs: " in said
            assert spoken(said) == pytest.approx(v, rel=1e-9)
    return [tuple(y for _, y, _ in line) for line in drawn]


def spoken(text: str) -> float:
    """The number at the end of some words: "after, 80 CPUs: 9.4M/s"."""
    found = re.search(r"([\d.]+) ?([kMG]?)(?:/s| ms)$", text)
    assert found, text
    return float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]]


def rows(box: Locator, data: dict[str, Any]) -> list[list[float]]:
    """What the grid has for the knobs as they are."""
    choice = box.locator("select")
    machine = choice.input_value() if choice.count() else data["machine"]
    found: list[list[float]] = data["values"][machine][int(box.get_by_role("slider").input_value())]
    return found


def test_every_chapter_with_a_slider_has_its_grid_in_little_room(book: Path) -> None:
    assert len(CHAPTERS) >= 5
    for chapter in CHAPTERS:
        page = (book / "notebooks" / f"{chapter}.html").read_text(encoding="utf-8")
        (text,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
        assert len(text.encode()) <= 100_000, chapter
        data = json.loads(text)
        assert len(data["values"]) == (1 if chapter == UMOUNT else len(machines.names()) - 1), (
            chapter
        )


@needs_browser
def test_the_keyboard_moves_the_curves(site: str) -> None:
    with slider(site) as (_, box, data):
        assert not box.locator(".contended-still").count()
        knob = box.get_by_role("slider", name=data["knob"])
        first = shown(box, data)
        assert knob.get_attribute("aria-valuetext") == "1 times the usual"
        knob.focus()
        knob.press("ArrowRight")
        second = shown(box, data)
        assert first != second
        assert knob.get_attribute("aria-valuetext") == "1.4 times the usual"
        assert box.locator(".contended-amount").inner_text() == "1.4 times"
        knob.press("End")
        assert shown(box, data) not in (first, second)
        assert knob.get_attribute("aria-valuetext") == "8 times the usual"
        knob.press("Home")
        assert knob.get_attribute("aria-valuetext") == "0.13 times the usual"
        for _ in range(data["start"]):
            knob.press("ArrowRight")
        assert shown(box, data) == first


@needs_browser
def test_another_machine_is_another_chart_and_is_said(site: str) -> None:
    with slider(site) as (_, box, data):
        first, now = shown(box, data), box.locator(".contended-now")
        assert (now.get_attribute("aria-live"), now.inner_text()[:12]) == ("polite", "At 80 CPUs: ")
        box.get_by_label("machine").select_option("2x48-smt")
        assert box.get_by_label("machine").input_value() == "2x48-smt"
        assert shown(box, data) != first
        assert data["machines"]["2x48-smt"]["title"] in box.locator(".contended-note").inner_text()
        expect(now).to_have_text(re.compile("^At 192 CPUs: "))
        before, at_once = box.get_by_role("slider").evaluate(
            """async (knob) => {
              const now = document.querySelector(".contended-now");
              const before = now.textContent;
              knob.value = 0;
              knob.dispatchEvent(new Event("input"));
              await null;
              return [before, now.textContent];
            }"""
        )
        assert at_once == before, "it is not said at once"
        expect(now).not_to_have_text(before)
        at = data["cpus"].index(192)
        said = re.findall(r"(?:: |; )(\S+) ([\d.]+ ?\w?/s)(?=[;.])", now.inner_text())
        assert [name for name, _ in said] == data["lines"]
        values = [row[at] for row in rows(box, data)]
        assert [spoken(value) for _, value in said] == pytest.approx(values, rel=1e-9)
        alt = box.get_by_role("img").get_attribute("aria-label") or ""
        assert data["machines"]["2x48-smt"]["title"] in alt
        assert all(f"{line}: " in alt for line in data["lines"])


@needs_browser
def test_a_part_is_said_in_percent_and_has_one_machine(site: str) -> None:
    with slider(site, UMOUNT) as (_, box, data):
        knob = box.get_by_role("slider", name="busy CPUs")
        assert not box.locator("select").count()
        assert knob.get_attribute("aria-valuetext") == "20 %"
        first = shown(box, data)
        knob.press("End")
        assert knob.get_attribute("aria-valuetext") == "100 %"
        assert shown(box, data) != first
        words = box.locator(".contended-where").all_text_contents()
        assert sorted(words) == sorted(mark["label"] for mark in data["marks"])


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone_light_and_dark(site: str, scheme: Any) -> None:
    phone: Any = {"width": 390, "height": 844}
    with slider(site, "02-lockref-degrade", viewport=phone, color_scheme=scheme) as (page, box, d):
        chart = box.locator(".contended-chart svg")
        assert box.evaluate(SMALL) == []
        wide = chart.bounding_box()
        assert wide
        assert 250 < wide["width"] <= 390
        shown(box, d)
        # lines are told apart by dashes and by the shapes of their points, too
        strokes = box.locator(".contended-chart .contended-stroke")
        dashes = [line.get_attribute("stroke-dasharray") for line in strokes.all()]
        assert len(set(dashes)) == len(d["lines"])
        points = box.locator(".contended-legend .contended-point").all()
        assert len({point.get_attribute("d") for point in points}) == len(d["lines"])
        ink, ground = page.evaluate(
            """(chart) => [getComputedStyle(chart.querySelector("text")).fill,
              getComputedStyle(document.body).backgroundColor]""",
            chart.element_handle(),
        )
        bright, dark = sorted((brightness(ink), brightness(ground)), reverse=True)
        assert bright - dark > 100
        assert (brightness(ground) < 60) is (scheme == "dark")
        page.set_viewport_size({"width": 844, "height": 390})
        page.wait_for_function(
            "([chart, width]) => chart.getBoundingClientRect().width > width",
            arg=[chart.element_handle(), 1.5 * wide["width"]],
        )


def brightness(colour: str) -> float:
    """The mean of a colour's red, green and blue."""
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


@needs_browser
def test_without_a_script_the_still_picture_is_seen(site: str) -> None:
    with slider(site, java_script_enabled=False) as (_, box, _data):
        picture = box.locator(".contended-still").locator("img, svg").first
        assert picture.is_visible()
        seen = picture.bounding_box()
        assert seen
        assert seen["height"] > 200
        assert not box.get_by_role("slider").count()
