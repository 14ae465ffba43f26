# SPDX-License-Identifier: MIT
"""What publishes the book: workflows, forms, citation; the site's own pages; chapters on paper."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml  # type: ignore[import-untyped]

from contended import __version__
from contended.book import site as published

STEPS = {"name", "id", "if", "uses", "with", "run", "env", "shell", "working-directory"}
JOB = {
    *("name", "needs", "if", "runs-on", "timeout-minutes", "permissions", "environment", "steps"),
    *("strategy", "container", "env", "concurrency", "continue-on-error"),
}
CONTEXTS = {"github", "steps", "matrix", "needs", "env", "secrets", "runner", "job", "startsWith"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def workflows(root: Path) -> dict[str, dict[str, Any]]:
    files = sorted((root / ".github" / "workflows").iterdir())
    # YAML 1.1 reads the key "on" as true; GitHub does not
    return {f.name: yaml.safe_load(re.sub("(?m)^on:", "'on':", f.read_text())) for f in files}


def test_workflows_have_the_published_form(root: Path) -> None:
    """As actionlint has it: known keys, needs that exist, pinned actions, scripts that parse."""
    found = workflows(root)
    assert set(found) == {"nightly.yml", "pages.yml", "test.yml"}
    for name, flow in found.items():
        assert set(flow) <= {"name", "on", "permissions", "concurrency", "jobs", "env"}, name
        assert flow["permissions"] == {"contents": "read"}, "the least, unless a job asks for more"
        for job in flow["jobs"].values():
            assert set(job) <= JOB, name
            assert {job["needs"]} <= set(flow["jobs"]) if "needs" in job else True
            ids = {step["id"] for step in job["steps"] if "id" in step}
            for step in job["steps"]:
                assert set(step) <= STEPS, name
                assert ("uses" in step) != ("run" in step), name
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1")), name
                script = re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", ""))
                subprocess.run(["bash", "-n"], input=script, text=True, check=True)
                for said in re.findall(r"(?m)^make ([a-z]+)", script):
                    assert re.search(rf"(?m)^{said}:", (root / "Makefile").read_text()), said
            for used in re.findall(r"steps\.(\w+)\.", str(job)):
                assert used in ids, f"{name} has no step {used}"
        for inside in re.findall(
            r"\$\{\{\s*(\w+)", (root / ".github/workflows" / name).read_text()
        ):
            assert inside in CONTEXTS, f"{name}: {inside}"


def test_both_ends_of_python_are_tested(root: Path) -> None:
    matrix = workflows(root)["test.yml"]["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.14"]


def test_issue_forms_have_unique_ids_and_known_types(root: Path) -> None:
    forms = sorted(p for p in (root / ".github" / "ISSUE_TEMPLATE").iterdir())
    names = [f.stem for f in forms if f.stem != "config"]
    assert names == ["case", "machine", "mistake"]
    for file in forms:
        form = yaml.safe_load(file.read_text())
        if file.stem == "config":
            continue
        assert {"name", "description", "body"} <= set(form)
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids)) > 0
        for part in form["body"]:
            assert part["type"] in {"markdown", "textarea", "input"}
            assert ("value" if part["type"] == "markdown" else "label") in part["attributes"]


def test_the_citation_is_of_this_version(root: Path) -> None:
    said = yaml.safe_load((root / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(said)
    assert said["version"] == __version__


def test_the_site_says_what_is_lost_and_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links of the 404 page hold at any depth; the sitemap has every page, if the site is known."""

    class Builder:
        def get_target_uri(self, name: str) -> str:
            return f"{name}.html"

    class App:
        outdir, builder = tmp_path, Builder()
        env = type("Env", (), {"found_docs": {"index", "docs/a&b"}})()

    app: Any = App()
    published._sitemap(app, None)
    assert not list(tmp_path.iterdir())
    assert list(published._lost(app)) == [("404", {"site": "/"}, "404.html")]
    monkeypatch.setenv("CONTENDED_SITE", "https://example.org/book")
    published._sitemap(app, None)
    tree = ElementTree.parse(tmp_path / "sitemap.xml")
    assert [e.text for e in tree.iter() if e.tag.endswith("loc")] == [
        "https://example.org/book/docs/a&b.html",
        "https://example.org/book/index.html",
    ]
    ((_, values, _),) = published._lost(app)
    assert values == {"site": "https://example.org/book/"}


def test_the_built_book_has_its_404_page_and_finds_functions(book: Path) -> None:
    lost = (book / "404.html").read_text()
    assert all(href.startswith("/") for href in re.findall(r'<a href="([^"]*)"', lost))
    index = (book / "searchindex.js").read_text()
    for word in ("try_to_unlazi", "synchronize_rcu_expedit", "pcpu_alloc_area"):  # as it stems them
        assert f'"{word}"' in index or f"{word}:" in index


def pdf(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / "pdf.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: make doctor names its package")
def test_a_chapter_on_paper(root: Path, book: Path, tmp_path: Path) -> None:
    """So many pages as a chapter has, no navigation, and all its figures."""
    done = pdf(root, str(book), str(tmp_path), "notebooks/09-proc-mounts-seek")
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "09-proc-mounts-seek.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type /Page\b", data))
    assert 5 <= pages <= 60, pages


def test_pdf_says_what_is_missing(root: Path, tmp_path: Path) -> None:
    done = pdf(root, str(tmp_path), str(tmp_path / "out"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "make book first" in line or "no Chromium" in line
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.iterdir())
