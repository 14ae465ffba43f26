# SPDX-License-Identifier: MIT
"""Slides from the chapters: what is on them, how many, and how one moves among them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, new_context, opened
from test_notebooks import NOTEBOOKS, load

from contended.book import digest, execute, slides
from contended.book.slides import MOST, Deck, blocks, lead
from contended.show import lesson

FIRST = "02-lockref-degrade"


def markdown(source: str, kind: str = "slide") -> dict[str, Any]:
    metadata = {"slideshow": {"slide_type": kind}} if kind else {}
    return {"cell_type": "markdown", "metadata": metadata, "source": source}


def code(kind: str, **data: str) -> dict[str, Any]:
    outputs = [
        {"output_type": "display_data", "data": {k.replace("_", "/"): v for k, v in data.items()}}
    ]
    return {**markdown("import plumbing", kind), "cell_type": "code", "outputs": outputs}


def bodies(*cells: dict[str, Any]) -> list[str]:
    return ["".join(slide.body) for slide in Deck({"cells": list(cells)}, "00-x").slides]


def test_what_a_cell_says_of_itself_makes_slides() -> None:
    figure = "<svg><text>a figure</text></svg>"
    seen = bodies(
        markdown("# Title\n\nOne. Two.\n\n## Next\nThree."),
        code("subslide", text_html=figure, text_plain="alt"),
        code("-", text_markdown="It is **so**."),
        code("-", text_plain="42"),
        code("skip", text_html="<p>no</p>"),
        markdown("nothing", "skip"),
        markdown("nothing", ""),
    )
    assert len(seen) == 3
    assert "One." in seen[0]
    assert "Two" not in seen[0]
    assert seen[1].startswith("<h2>Next</h2>")
    assert seen[2] == (
        f'<h2 class="running">Next</h2><div class="shown">{figure}</div>'
        "<p>It is <strong>so</strong>.</p>\n"
    )


def test_what_closes_a_section_is_in_the_notes_of_its_slide() -> None:
    cells = [
        markdown("# T\n\nOne."),
        markdown("It closes. Really.\n\n## Next\n\nTwo.\n\n### Third\n\nThree."),
        markdown("Not here.\n\n### Fourth\n\nNor this.", "skip"),
        code("subslide", text_html="<svg></svg>"),
    ]
    deck = Deck({"cells": cells}, "x")
    assert ["".join(slide.body) for slide in deck.slides] == [
        "<h1>T</h1>\n<p>One.</p>\n",
        "<h2>Next</h2>\n<p>Two.</p>\n",
        "<h3>Third</h3>\n<p>Three.</p>\n",
        '<h2 class="running">Fourth</h2><div class="shown"><svg></svg></div>',
    ]
    assert [len(slide.notes) for slide in deck.slides] == [1, 0, 0, 0]
    assert deck.slides[0].notes == ["<p>It closes. Really.</p>\n"]


def test_the_rest_of_a_paragraph_is_in_the_notes() -> None:
    deck = Deck(
        {"cells": [markdown("# T\n\nOne. Two.\n\n- a. b"), markdown("Said.", "notes")]}, "x"
    )
    assert deck.title == "T"
    (slide,) = deck.slides
    assert "".join(slide.notes) == "<p>Two.</p>\n<p>Said.</p>\n"
    assert "a. b" in "".join(slide.body)


@pytest.mark.parametrize(
    ("block", "on"),
    [
        ("One. Two.", "One."),
        ("On 6.1 it is so. Then", "On 6.1 it is so."),
        ("See e.g. this one. That", "See e.g. this one."),
        ("**Time.** Half an hour. More", "**Time.** Half an hour."),
        ("No end", "No end"),
        ("- one. Two\n- three", "- one. Two\n- three"),
        ("| a. B |\n| - |", "| a. B |\n| - |"),
        ("## A title. Or two", "## A title. Or two"),
    ],
)
def test_of_a_paragraph_the_first_sentence(block: str, on: str) -> None:
    assert lead(block)[0] == on


def test_no_code_of_consoles_and_no_comments() -> None:
    text = "<!-- SPDX -->\n# T\ntext\n\n```console\n$ x\n\ny\n```\n- a\n- b"
    assert list(blocks(text)) == ["# T", "text", "- a\n- b"]


def test_links_lead_into_the_book_and_formulas_are_formulas() -> None:
    text = "[a](../docs/vfs.md#x) [b](01-measuring.ipynb) [c](#d) [e](https://f.org/g.md) $N^2$"
    (seen,) = bodies(markdown(text))
    assert re.findall('href="(.*?)"', seen) == [
        "../html/docs/vfs.html#x",
        "../html/notebooks/01-measuring.html",
        "../html/notebooks/00-x.html#d",
        "https://f.org/g.md",
    ]
    assert "<math" in seen


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_cell_of_a_chapter_says_what_becomes_of_it(path: Path) -> None:
    notebook = load(path)
    kinds = [cell["metadata"].get("slideshow", {}).get("slide_type") for cell in notebook["cells"]]
    assert None not in kinds, "set slideshow.slide_type: JupyterLab's property inspector does"
    deck = Deck(notebook, path.stem)
    assert 8 <= len(deck.slides) <= MOST
    assert deck.title in "".join(deck.slides[0].body)
    shown = [c for c in notebook["cells"] if c["metadata"]["slideshow"]["slide_type"] != "skip"]
    for cell in shown:
        assert not re.search(r"\bcheck\(|self_test\(|edited\(", "".join(cell["source"])), cell["id"]


def test_what_did_not_run_is_said_in_one_line(
    tmp_path: Path,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(lesson.RECORDED, raising=False)
    (tmp_path / "notebooks").mkdir()
    assert slides.main([str(tmp_path)]) == 1
    assert "no chapters in" in capsys.readouterr().err
    text = (root / "notebooks" / "00-your-machine.ipynb").read_text(encoding="utf-8")
    (tmp_path / "notebooks" / "00-x.ipynb").write_text(text, encoding="utf-8")
    assert slides.main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == "00-x.ipynb has not run: make book first, with the same ARGS\n"
    old = execute.ChapterRun("old", 0.0, 0.0, [], {})
    execute.save(tmp_path / "_build" / "chapters" / "00-x.json", old)
    assert slides.main([str(tmp_path)]) == 1
    assert "00-x.ipynb has changed since it ran" in capsys.readouterr().err
    assert not (tmp_path / "_build" / "slides").exists()


@pytest.fixture(scope="session")
def decks(root: Path, book: Path) -> Path:
    """The folder of the decks of the book that the other tests look at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(lesson.RECORDED, "1" if book.parent.name == "recorded" else "0")
        slides.make(root, book.parent)
    return book.parent / "slides"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_that_is_asked_for_is_on_a_slide(path: Path, root: Path, decks: Path) -> None:
    run = execute.load(decks.parent / "chapters" / f"{path.stem}.json")
    assert run
    page = (decks / path.name).with_suffix(".html").read_text(encoding="utf-8")
    assert 8 <= page.count('<section class="slide">') <= MOST
    notebook = execute.merge(digest.read(path.read_text(encoding="utf-8")), run)
    figures = 0
    for cell in notebook["cells"]:
        kind = cell["metadata"]["slideshow"]["slide_type"]
        for output in cell.get("outputs", []) if kind != "skip" else []:
            shown = "".join(output.get("data", {}).get("text/html", ""))
            figures += "<svg" in shown
            assert shown in page
    drawn = any(
        "<svg" in str(output) for cell in notebook["cells"] for output in cell.get("outputs", [])
    )
    assert figures >= 2 or not drawn, "a chapter that has figures shows some"
    assert "import " not in re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.S)
    assert not re.search(r'(?:src|href)="(?:https?:)?//[^"]+\.(?:js|css)"', page), "nothing to load"
    for link in re.findall(r'href="(\.\./html/[^"#]+)', page):
        assert (decks / link).exists(), link


@needs_browser
def test_keys_move_and_figures_live(decks: Path) -> None:
    with opened() as browser:
        page = new_context(browser, viewport={"width": 390, "height": 844}).new_page()
        said: list[str] = []
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request", lambda request: said.append(request.url) if "http" in request.url else None
        )
        page.goto((decks / f"{FIRST}.html").as_uri())
        last = page.locator("section.slide").count()
        place = page.locator("nav output")

        def at(key: str) -> str:
            page.keyboard.press(key)
            assert page.locator("section.slide:visible").count() == 1
            return place.inner_text()

        assert place.inner_text() == f"1 / {last}"
        assert [at(key) for key in ("ArrowLeft", "ArrowRight", "PageDown", " ", "ArrowUp")] == [
            f"{n} / {last}" for n in (1, 2, 3, 4, 3)
        ]
        assert at("End") == f"{last} / {last}"
        assert at("Home") == f"1 / {last}"
        page.get_by_title("Next slide").click(click_count=2)
        assert page.url.endswith("#3")
        # the answer is covered until there is a guess, and the stepper has its own keys
        field = page.locator(".contended-guess input").first
        assert field.is_visible()
        field.press("ArrowRight")
        assert place.inner_text() == f"3 / {last}"
        covered = page.locator(".contended-cover").count()
        assert covered >= 1
        field.fill("12")
        field.press("Enter")
        assert page.locator(".contended-cover").count() == covered - 1
        page.goto((decks / f"{FIRST}.html").as_uri() + "#5")
        page.reload()
        assert place.inner_text() == f"5 / {last}"
        for nth in range(last):
            page.evaluate(f"location.hash = '#{nth + 1}'")
            page.wait_for_function(
                f"document.querySelector('nav output').textContent[0] === '{nth + 1}'[0]"
            )
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), nth + 1
        assert said == []
