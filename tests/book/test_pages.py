# SPDX-License-Identifier: MIT
"""The rendered book: nothing from the network, no dead link, and each page in a real browser."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import needs_browser, new_context, opened
from playwright.sync_api import ConsoleMessage, Error, Request, Response
from playwright.sync_api import Page as BrowserPage

# Element and attribute pairs that a browser fetches without being asked to.
LOADED = {
    ("audio", "src"),
    ("embed", "src"),
    ("iframe", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("input", "src"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("video", "src"),
}
NOT_FETCHED = {"canonical", "next", "prev", "author", "license", "search", "index", "help"}


@dataclass
class Page(HTMLParser):
    """What a page loads, where it links to, what can be linked to, and its images."""

    path: Path
    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    images: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "img":
            self.images.append((values.get("src", ""), values.get("alt", "")))
        fetched = tag != "link" or not NOT_FETCHED & set(values.get("rel", "").split())
        self.loads += [v for n, v in values.items() if (tag, n) in LOADED and v and fetched]


def foreign(url: str) -> bool:
    """Whether a URL leads to another host."""
    return bool(urlparse(url.strip()).netloc)


def bad_alt(src: str, alt: str) -> bool:
    """Whether an image has no alternative text, or only Sphinx's stand-in, the file's name."""
    return not alt.strip() or alt == src or Path(alt).name == Path(unquote(src)).name


def dead_links(page: Page, pages: dict[Path, Page]) -> list[str]:
    """The links within the book that lead nowhere."""
    dead = []
    top = min((path.parent for path in pages), key=lambda folder: len(folder.parts))
    for link in page.links:
        if urlparse(link).scheme or foreign(link):
            continue
        target, fragment = urldefrag(link)
        start = top if target.startswith("/") else page.path.parent
        path = (start / unquote(target).lstrip("/")).resolve() if target else page.path
        anchors = pages[path].anchors if path in pages else set()
        if not path.is_file() or (fragment and path in pages and unquote(fragment) not in anchors):
            dead.append(link)
    return dead


def weight(page: Page) -> int:
    """The bytes of a page with its figures, drawn in it or beside it."""
    beside = {page.path.parent / unquote(src) for src, _ in page.images}
    return sum(path.stat().st_size for path in {page.path, *beside} if path.is_file())


@pytest.fixture(scope="session")
def pages(book: Path) -> dict[Path, Page]:
    """Every page of the book; `_static` holds templates of the theme, not pages."""
    paths = sorted(p.resolve() for p in book.rglob("*.html") if "_static" not in p.parts)
    assert len(paths) > 5
    return {path: Page(path) for path in paths}


def test_nothing_is_loaded_from_another_host(book: Path, pages: dict[Path, Page]) -> None:
    loads = {f"{page.path.name}: {url}" for page in pages.values() for url in page.loads}
    assert loads
    assert not {load for load in loads if foreign(load.partition(": ")[2])}
    # A style sheet may load more: fonts, images, other style sheets.
    sheets = {path: path.read_text(encoding="utf-8") for path in book.rglob("*.css")}
    assert sheets
    fetching = ("url(http", 'url("http', "url('http", "url(//", '@import "http', "@import 'http")
    assert not [path.name for path, css in sheets.items() if any(f in css for f in fetching)]


def test_links_within_the_book_lead_somewhere(pages: dict[Path, Page]) -> None:
    dead = {page.path.name: dead_links(page, pages) for page in pages.values()}
    assert not {name: links for name, links in dead.items() if links}


def test_images_have_alternative_text(pages: dict[Path, Page]) -> None:
    bad = [
        f"{p.path.name}: {src}"
        for p in pages.values()
        for src, alt in p.images
        if bad_alt(src, alt)
    ]
    assert not bad


def test_no_page_is_heavy(pages: dict[Path, Page]) -> None:
    sizes = {path.name: weight(page) for path, page in pages.items()}
    assert max(sizes.values()) > MOST / 10
    assert not {name: size for name, size in sizes.items() if size > MOST}


def test_every_chapter_is_in_the_book(root: Path, pages: dict[Path, Page]) -> None:
    chapters = {path.stem for path in root.glob("notebooks/*.ipynb")}
    assert chapters <= {path.stem for path in pages}
    index = next(page for path, page in pages.items() if path.name == "index.html")
    assert not [c for c in chapters if not any(c in link for link in index.links)]


def test_faults_are_found(tmp_path: Path) -> None:
    """The checks above see what they are meant to see."""
    path = tmp_path / "page.html"
    path.write_text(
        '<link rel="stylesheet" href="https://elsewhere.invalid/a.css">'
        '<link rel="canonical" href="https://elsewhere.invalid/">'
        '<script src="//elsewhere.invalid/a.js"></script>'
        '<h1 id="top">T</h1><a href="#top">1</a><a href="#gone">2</a><a href="gone.html">3</a>'
        '<a href="/page.html">5</a><a href="/gone">6</a>'
        '<a href="https://elsewhere.invalid/">4</a>'
        '<img src="a/b.png" alt="x/b.png"><img src="c.png"><img src="d.png" alt="a curve">',
        encoding="utf-8",
    )
    page = Page(path)
    assert [url for url in page.loads if foreign(url)] == [
        "https://elsewhere.invalid/a.css",
        "//elsewhere.invalid/a.js",
    ]
    assert dead_links(page, {path: page}) == ["#gone", "gone.html", "/gone"]
    (tmp_path / "d.png").write_bytes(bytes(1000))
    assert weight(page) == path.stat().st_size + 1000
    assert [src for src, alt in page.images if bad_alt(src, alt)] == ["a/b.png", "c.png"]


LEAST = 11  # px, of text in figures, on a phone as well
MOST = 1_500_000  # bytes, of a page with its figures

# Runs in the page: shows what it hides.
UNFOLD = """
async () => {
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  document.querySelectorAll(".contended-guess [type=button]").forEach((each) => { each.click(); });
  // the theme waits, 0.3 s and on a busy machine longer, before it looks what can be scrolled now
  const waiting = () => [...document.querySelectorAll('pre[tabindex="-1"]')].some(
    (each) => each.scrollWidth > each.clientWidth && each.checkVisibility());
  await new Promise((done) => setTimeout(done, 500));
  for (let left = 100; left && waiting(); left--)
    await new Promise((done) => setTimeout(done, 100));
}
"""

# Runs in the page: what is wrong with it as it stands on the screen.
LOOK = """
async (least) => {
  const faults = [];
  const images = [...document.images];
  images.forEach((image) => { image.loading = "eager"; });
  await Promise.all(images.map((image) => image.decode().catch(() => null)));
  for (const image of images)
    if (image.naturalWidth === 0) faults.push(`image not loaded: ${image.src}`);
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > room + 1) {
    const wide = [...document.querySelectorAll("article *")]
      .filter((e) => e.getBoundingClientRect().right > room + 1)
      .slice(0, 3)
      .map((e) => `${e.tagName}.${e.className}`);
    faults.push(`wider than the screen: ${wide.join(", ")}`);
  }
  for (const svg of document.querySelectorAll("article svg")) {
    if (svg.closest("button, a") || svg.ariaHidden === "true") continue; // a sign, not a figure
    const frame = svg.getBoundingClientRect();
    const label =
      (svg.closest("[role=img]") ?? svg).ariaLabel ?? svg.querySelector("title")?.textContent;
    const name = `figure "${label?.slice(0, 40)}"`;
    if (!label) faults.push("a figure without words");
    if (frame.width === 0) faults.push(`${name} is not shown`);
    const texts = [...svg.querySelectorAll("text")]
      .filter((e) => e.textContent.trim() && e.checkVisibility({ visibilityProperty: true }));
    const boxes = texts.map((e) => e.getBoundingClientRect());
    texts.forEach((text, i) => {
      const { a, b, c, d } = text.getScreenCTM();
      const size = parseFloat(getComputedStyle(text).fontSize) * Math.sqrt(Math.abs(a * d - b * c));
      if (size < least) faults.push(`${name}: "${text.textContent}" has ${size.toFixed(1)} px`);
      const { left, right, top, bottom } = boxes[i];
      if (left < frame.left - 1 || right > frame.right + 1)
        faults.push(`${name}: "${text.textContent}" is cut at a side`);
      if (top < frame.top - 1 || bottom > frame.bottom + 1)
        faults.push(`${name}: "${text.textContent}" is cut above or below`);
      // a box is as high as the font's tallest letters: lines may touch by a part of it
      const [x, y] = [Math.min(3, (right - left) / 4), Math.min(3, (bottom - top) / 4)];
      boxes.slice(0, i).forEach((other, j) => {
        const across = Math.min(right, other.right) - Math.max(left, other.left);
        const down = Math.min(bottom, other.bottom) - Math.max(top, other.top);
        if (across > x && down > y)
          faults.push(`${name}: "${text.textContent}" lies on "${texts[j].textContent}"`);
      });
    });
  }
  // the index of names is laid out by a table without heads
  for (const table of document.querySelectorAll("article table:not(.indextable)")) {
    const name = `table "${table.textContent.trim().slice(0, 40)}"`;
    if (!table.querySelector("thead th[scope=col]")) faults.push(`${name} has no column heads`);
    if (!table.querySelector("tbody th[scope=row]")) faults.push(`${name} has no row heads`);
    if (table.querySelector("th:not([scope])")) faults.push(`${name} has a head of what?`);
  }
  // a figure that is shown again, to the letter, may have its ids again
  const pictures = [...document.querySelectorAll("article svg")];
  const drawn = pictures.map((e) => e.outerHTML);
  const again = pictures.filter((_, i) => drawn.indexOf(drawn[i]) < i);
  const ids = [...document.querySelectorAll("[id]")]
    .filter((e) => !again.some((picture) => picture.contains(e)))
    .map((e) => e.id);
  const twice = ids.filter((id, i) => ids.indexOf(id) !== i);
  if (twice.length) faults.push(`ids twice: ${twice.join(", ")}`);
  if (!document.querySelector("h1, #search-documentation")) faults.push("no title");
  return faults;
}
"""


def watch(page: BrowserPage, site: str) -> list[str]:
    """What goes wrong while the page is loaded; the list grows as it happens."""
    seen: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            seen.append(f"console: {message.text}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((site, "data:", "blob:")):
            seen.append(f"foreign: {request.url}")

    def on_error(error: Error) -> None:
        seen.append(f"script: {error}")

    def on_failed(request: Request) -> None:
        seen.append(f"failed: {request.url}")

    def on_response(response: Response) -> None:
        if response.status >= 400:
            seen.append(f"{response.status}: {response.url}")

    page.on("console", on_console)
    page.on("response", on_response)
    page.on("request", on_request)
    page.on("pageerror", on_error)
    page.on("requestfailed", on_failed)
    return seen


@needs_browser
@pytest.mark.parametrize(
    ("width", "height"),
    [
        pytest.param(1280, 900, id="desktop", marks=pytest.mark.check),
        pytest.param(390, 844, id="phone"),
    ],
)
def test_pages_in_a_browser(
    book: Path, pages: dict[Path, Page], site: str, width: int, height: int
) -> None:
    faults: list[str] = []
    # Of the live book the chapters are other pages; the rest is the same.
    live = "recorded" not in book.parts
    with opened() as browser:
        context = new_context(browser, viewport={"width": width, "height": height})
        for path in (each for each in pages if not live or each.parent.name == "notebooks"):
            name = path.relative_to(book.resolve()).as_posix()
            page = context.new_page()
            seen = watch(page, site)
            page.goto(f"{site}/{name}", wait_until="load")
            page.evaluate(UNFOLD)
            looked = page.evaluate(LOOK, LEAST)
            faults += [f"{name}: {fault}" for fault in [*seen, *looked]]
            page.close()
    assert not faults


SETTLED = """async () => {
    await document.fonts.ready;
    const changes = document.getAnimations().filter((a) => a instanceof CSSTransition);
    await Promise.allSettled(changes.map((a) => a.finished));
}"""
"""Colours in the middle of a change are nobody's."""


THINNED = """() => {
    const seen = new Set();
    for (const token of document.querySelectorAll('pre span[class]:not([id]):not(:has(*))')) {
        const around = [];
        for (let at = token; at && around.length < 5; at = at.parentElement)
            around.push(at.className);
        const kind = around.join('|');
        if (seen.has(kind))
            token.replaceWith(token.textContent);
        seen.add(kind);
    }
}"""
"""Of the tokens of source code that look alike one is left: there are thousands on some pages, and
the contrast of each takes axe as long as that of a paragraph."""


COLOURS = ("color-contrast", "link-in-text-block")
"""What depends on colours, and so on the scheme. It takes most of axe's time."""


def violations(
    page: BrowserPage, only: tuple[str, ...] = (), but: tuple[str, ...] = ()
) -> list[str]:
    """What axe finds, by all of its rules and advice or by some of them, and where."""
    page.evaluate(SETTLED)
    page.evaluate(THINNED)
    options = {
        "resultTypes": ["violations"],
        "rules": {rule: {"enabled": False} for rule in but},
        **({"runOnly": only} if only else {}),
    }
    found = Axe().run(page, options=options).response["violations"]
    return [f"{v['id']}: {node['html'][:200]}" for v in found for node in v["nodes"]]


# The colours take seconds a page, so the fast tests look at one page's, below.
@needs_browser
@pytest.mark.parametrize("book", ["recorded"], indirect=True)  # the live one differs in numbers
@pytest.mark.parametrize(
    ("width", "dark", "every", "only", "but"),
    [
        pytest.param(1280, False, 1, (), COLOURS, id="all-but-colours"),
        pytest.param(1280, False, 1, COLOURS, (), id="light", marks=pytest.mark.check),
        pytest.param(1280, True, 3, COLOURS, (), id="dark", marks=pytest.mark.check),
        pytest.param(390, False, 6, (), (), id="phone", marks=pytest.mark.check),
    ],
)
def test_axe_finds_nothing(
    book: Path,
    pages: dict[Path, Page],
    site: str,
    width: int,
    dark: bool,
    every: int,
    only: tuple[str, ...],
    but: tuple[str, ...],
) -> None:
    found: list[str] = []
    with opened() as browser:
        context = new_context(
            browser,
            viewport={"width": width, "height": 844},
            color_scheme="dark" if dark else "light",
        )
        for path in list(pages)[::every]:
            name = path.relative_to(book.resolve()).as_posix()
            page = context.new_page()
            page.goto(f"{site}/{name}", wait_until="load")
            theme = page.locator("html").get_attribute("data-theme")
            # the 404 page has no script: it takes the browser's scheme by its own style sheet
            assert theme == (None if name == "404.html" else "dark" if dark else "light")
            page.evaluate(UNFOLD)
            found += [f"{name}: {fault}" for fault in violations(page, only, but)]
            page.close()
    assert not found


FIRST = "notebooks/00-your-machine.html"


EMPTY_HEADER = """() => {
    const row = document.querySelector('article').appendChild(document.createElement('table'));
    row.innerHTML = '<thead><tr><th scope="col"></th><th scope="col">b</th></tr></thead>'
        + '<tbody><tr><td>1</td><td>2</td></tr></tbody>';
}"""


@needs_browser
def test_axe_sees_what_is_wrong_and_what_is_covered(site: str) -> None:
    with opened() as browser:
        for scheme in ("light", "dark"):
            page = new_context(browser, color_scheme=scheme).new_page()
            page.goto(f"{site}/{FIRST}", wait_until="load")
            assert page.locator(".contended-covered").count() == 1
            assert not violations(page)
            page.locator(".contended-guess input").fill("1")
            page.locator(".contended-guess input").press("Enter")
            assert not violations(page)
            page.evaluate("document.querySelector('article svg').removeAttribute('aria-label')")
            page.evaluate(EMPTY_HEADER)
            found = violations(page, but=COLOURS)
            assert {"svg-img-alt", "empty-table-header"} == {v.partition(":")[0] for v in found}
            page.goto(f"{site}/{FIRST}", wait_until="load")
            page.evaluate(UNFOLD)
            page.add_style_tag(content=".highlight .kn { color: #808080 !important }")
            page.evaluate(EMPTY_HEADER)
            found = violations(page, only=COLOURS)
            assert found
            assert all(re.match('color-contrast: .*class="kn"', v) for v in found)


@needs_browser
def test_a_result_is_covered_until_there_is_a_guess(site: str) -> None:
    with opened() as browser:
        page = new_context(browser).new_page()
        seen = watch(page, site)
        page.goto(f"{site}/{FIRST}", wait_until="load")
        result, covered = page.locator("[data-reveals]"), page.locator(".contended-covered")
        field, said = (
            page.locator(".contended-guess input"),
            page.locator("[data-predict] [role=status]"),
        )
        assert covered.count() == 1
        assert not result.is_visible()
        page.goto(f"{site}/{FIRST}#it-is-not-one-number")
        assert page.locator(".contended-cover").is_visible(), "covered, and said why"
        for wrong in ("", "many", "1e999"):
            field.fill(wrong)
            field.press("Enter")
            assert "no number" in said.inner_text()
            assert not result.is_visible()
        answer = float(result.get_attribute("data-answer") or "nan")
        field.fill(str(10 * answer))
        field.press("Enter")
        assert covered.count() == 0
        assert "Off by a factor of 10." in result.inner_text()
        page.reload()
        assert "Off by a factor of 10." in result.inner_text(), "the browser remembers"
        field.fill(f"{1.1 * answer:.3f}".replace(".", ","))
        field.press("Enter")
        assert "Well predicted." in result.inner_text()
        assert not seen


@needs_browser
def test_who_only_reads_is_shown_the_result(site: str) -> None:
    with opened() as browser:
        page = new_context(browser).new_page()
        page.goto(f"{site}/{FIRST}", wait_until="load")
        page.locator(".contended-cover button").click()
        assert page.locator("[data-reveals]").is_visible()
        page.reload()
        assert page.locator(".contended-covered").count() == 0
        plain = new_context(browser, java_script_enabled=False).new_page()
        plain.goto(f"{site}/{FIRST}", wait_until="load")
        assert plain.locator("[data-reveals]").is_visible(), "without scripts all is visible"


@needs_browser
def test_solutions_are_folded_and_open_with_the_keyboard(site: str) -> None:
    with opened() as browser:
        page = new_context(browser).new_page()
        page.goto(f"{site}/{FIRST}", wait_until="load")
        solution = page.locator("details.solution").first
        assert not solution.locator("p").first.is_visible()
        solution.locator("summary").press("Enter")
        assert solution.locator("p").first.is_visible()


def test_links_are_completed(book: Path) -> None:
    page = (book / FIRST).read_text(encoding="utf-8")
    term = re.search(r'<a [^>]*glossary\.html#cache-line"[^>]*title="([^"]+)"', page)
    assert term
    assert term[1].startswith("The unit in which caches hold")
    assert re.search(r'cpumemory\.pdf">[^<]*</a>\W*<a [^>]*references\.html#\w+">\[\d+\]</a>', page)
