# SPDX-License-Identifier: MIT
"""The chapters where readers open them first: in a real JupyterLab, looked at through a browser."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, new_context, opened
from playwright.sync_api import Page, expect

CHAPTERS = sorted(path.name for path in Path(__file__).parents[2].glob("notebooks/*.ipynb"))
START_SECONDS, RUN_SECONDS = 120, 600

SETTINGS = {
    # All cells are in the page, not only those on the screen.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@pytest.fixture(scope="module")
def copies(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the chapters: JupyterLab saves what it shows."""
    place = tmp_path_factory.mktemp("jupyterlab") / "root"
    for name in ("notebooks", "docs"):
        shutil.copytree(root / name, place / name)
    return place / "notebooks"


@pytest.fixture(scope="module")
def lab(root: Path, copies: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves the copy; the chapters show recorded runs."""
    place = copies.parent.parent
    for name, values in SETTINGS.items():
        file = place / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    env = {
        **os.environ,
        "CONTENDED_HOME": str(root),
        "CONTENDED_RECORDED": "1",
        "IPYTHONDIR": str(place / "ipython"),
        "JUPYTER_CONFIG_DIR": str(place / "config"),
        "JUPYTER_RUNTIME_DIR": str(place / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(place / "settings"),
        "PYTHONPATH": str(root / "src"),
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"),
        *("--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=test"),
        f"--ServerApp.root_dir={place / 'root'}",
    ]
    with (place / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=place
        )
    try:
        about = place / "runtime" / f"jpserver-{server.pid}.json"
        deadline = time.monotonic() + START_SECONDS
        while not (about.exists() and about.read_text().endswith("}")):
            assert server.poll() is None, (place / "log").read_text()
            assert time.monotonic() < deadline, (place / "log").read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{json.loads(about.read_text())['port']}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(START_SECONDS)


def open_chapter(page: Page, lab: str, name: str) -> None:
    page.goto(f"{lab}/lab/tree/notebooks/{name}?reset&token=test")
    page.wait_for_selector(".jp-Notebook .jp-MarkdownCell h1", timeout=START_SECONDS * 1000)
    count = len(cells(name))
    page.wait_for_function(
        "n => document.querySelectorAll('.jp-Notebook .jp-Cell').length === n", arg=count
    )
    page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-Notebook .jp-MarkdownCell')]"
        ".every(c => c.classList.contains('jp-mod-rendered'))"
    )


def cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((Path(__file__).parents[2] / "notebooks" / name).read_text())
    found: list[dict[str, Any]] = notebook["cells"]
    return found


def saved(page: Page, path: Path) -> list[dict[str, Any]]:
    """A notebook's code cells as JupyterLab saves them: a folded cell shows no number."""
    before = path.stat().st_mtime_ns
    page.keyboard.press("Control+s")
    for _ in range(50):
        page.wait_for_timeout(200)
        if path.stat().st_mtime_ns != before and path.stat().st_size:
            break
    with suppress(ValueError):  # it is being written
        return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    return saved(page, path)


def hidden(cell: dict[str, Any]) -> bool:
    return bool(cell["metadata"].get("jupyter", {}).get("source_hidden"))


def look(page: Page, name: str, *, ran: bool = False) -> None:
    """What is collapsed is collapsed, and nothing stands raw.

    "Run All Cells" goes to the last cell, and JupyterLab opens the section in which that is.
    """
    shown = page.locator(".jp-Notebook .jp-Cell")
    inside = 0  # the level of the folded heading that this is below
    for index, cell in enumerate(cells(name)):
        source = "".join(cell["source"])
        here = shown.nth(index)
        level = len(source) - len(source.lstrip("#")) if cell["cell_type"] == "markdown" else 0
        if inside and not 0 < level <= inside:
            assert not here.is_visible(), f"what is folded stands open: {source[:80]}"
            continue
        folded = cell["metadata"].get("jp-MarkdownHeadingCollapsed")
        inside = level if folded and not (ran and source.strip() == "## Further in") else 0
        if cell["cell_type"] == "code":
            placeholder = here.locator(".jp-InputPlaceholder")
            assert placeholder.count() == hidden(cell), source
        else:
            text = here.inner_text()
            for raw in ("{term}", "{cite}", "{glue", "```", "](", ":label:", "**"):
                assert raw not in text, f"raw markup: {raw} in {text[:200]}"


@needs_browser
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n.startswith("00") else pytest.mark.check) for n in CHAPTERS],
)
def test_a_chapter_opens_as_it_is_to_be_read(lab: str, name: str) -> None:
    with opened() as browser:
        page = new_context(browser, viewport={"width": 1280, "height": 1000}).new_page()
        open_chapter(page, lab, name)
        look(page, name)


@needs_browser
@pytest.mark.parametrize(
    "name",
    [
        "00-your-machine.ipynb",
        pytest.param("10-mount-hash.ipynb", marks=pytest.mark.check),
    ],
)
def test_a_chapter_runs_to_its_end(lab: str, copies: Path, name: str) -> None:
    claims = [
        call
        for cell in cells(name)
        if cell["cell_type"] == "code"
        for call in ast.walk(ast.parse("".join(cell["source"])))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "claim"
    ]
    with opened() as browser:
        page = new_context(browser, viewport={"width": 1280, "height": 1000}).new_page()
        open_chapter(page, lab, name)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        deadline = time.monotonic() + RUN_SECONDS
        while not all(cell["execution_count"] for cell in saved(page, copies / name)):
            error = page.locator('[data-mime-type="application/vnd.jupyter.error"]')
            assert error.count() == 0, error.first.inner_text()
            assert time.monotonic() < deadline, "it does not come to its end"
        said = page.locator(".jp-CodeCell .jp-OutputArea .jp-RenderedMarkdown")
        expect(said).to_have_count(len(claims))
        assert page.locator(".jp-CodeCell .contended-claim:visible").count() == 0
        forms = page.locator(".jp-CodeCell .widget-text input")
        expect(forms.first, "a prediction is a form").to_be_visible()
        outputs = page.locator(".jp-CodeCell .jp-OutputArea-output")
        steppers = outputs.filter(has=page.get_by_role("button", name="Next", exact=True))
        expect(steppers).to_have_count(sum("\nsteps(" in "".join(c["source"]) for c in cells(name)))
        for stepper in steppers.all():
            stepper.get_by_role("button", name="Next").press("Enter")
            stepper.get_by_role("alert").filter(has_text="Step 2 of").wait_for()
        look(page, name, ran=True)
