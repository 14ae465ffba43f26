# SPDX-License-Identifier: MIT
"""What all tests share: the tree's root, the built book, and no silent skips in CI."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parent.parent


# Examples are the same in each run, and no busy machine is too slow for them.
hypothesis.settings.register_profile(
    "contended",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("contended")


def pytest_configure() -> None:
    """Take Ctrl-C, and let the processes under test take it.

    A shell that runs a job in the background without job control has it ignore SIGINT, and a
    process hands that down to all that it starts.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _skip_is_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Under CI=true everything is installed, so a skip means that something was not tested."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"CI=true allows no skipped test. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _skip_is_failure(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _skip_is_failure(report)
    return report


LONG = {"batch", "built", "kernel", "origin"}
"""Fixtures that take minutes: kernels of the lab, all attacks on the grader."""

KERNELS = (
    *("kernel/test_real_kernels.py", "kernel/test_observe.py"),
    *("course/test_patches.py", "course/test_labs.py"),
)
"""What builds many kernels, or looks at which there are: one after the other, and in this order."""
LIVE = "the book, run here"
BEGUN_FIRST = (
    *(*KERNELS, LIVE, "book/test_pages.py", "course/test_attacks.py", "kernel/test_boot.py"),
    *("course/test_grade.py", "cases/test_tenth_case.py", "book/test_rebuild.py"),
)
"""What takes longest, so that of two workers neither is left with it at the end."""
BOTH = {"test_pages", "test_site", "test_quizzes"}
"""Modules whose tests are of the live book as well; what moves on a page moves in any book."""


def _unit(nodeid: str) -> str:
    """What a test is run together with, by one worker."""
    file, _, test = nodeid.partition("::")
    if "live" in test.partition("[")[2].rstrip("]").split("-"):
        return LIVE
    return file.removeprefix("tests/")


def _turn(item: pytest.Item) -> int:
    unit = _unit(item.nodeid)
    return BEGUN_FIRST.index(unit) if unit in BEGUN_FIRST else len(BEGUN_FIRST)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make check` what takes minutes, and begin with the longest."""
    for item in items:
        if LONG & set(getattr(item, "fixturenames", ())):
            item.add_marker("check")
    items.sort(key=_turn)


def _together(nodeid: str) -> str:
    unit = _unit(nodeid)
    return KERNELS[0] if unit in KERNELS else unit


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Any:
    """As `--dist loadfile`, but the live book's tests are one unit, and so are the kernels'."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = _together
    return scheduler


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = metafunc.definition.iter_markers("parametrize")
    if "book" in metafunc.fixturenames and not any("book" in mark.args[0] for mark in marks):
        live = pytest.param("live", marks=pytest.mark.check)
        both = metafunc.module.__name__.rpartition(".")[2] in BOTH
        metafunc.parametrize(
            "book", ["recorded", live] if both else ["recorded"], indirect=True, scope="session"
        )


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the tree."""
    return ROOT


@pytest.fixture(scope="session")
def misses() -> str:
    """The page on what is missed, and behind it the one on the experiments that say why."""
    pages = ("misses", "experiments")
    return "\n".join((ROOT / "docs" / f"{name}.md").read_text() for name in pages)


@pytest.fixture(scope="session")
def book(
    root: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The directory of the rendered book, built now by the Makefile's own command.

    As for a reader who has built no kernels: where there are some, chapters boot them for minutes.
    """
    recorded = request.param == "recorded"
    lock = root / "_build" / "tests.lock"
    lock.parent.mkdir(exist_ok=True)
    # Tests run two at a time. Who comes second takes what is built: building anew, even if nothing
    # has changed, would write the style sheets anew under the first one's browser.
    run, stamp = os.environ.get("PYTEST_XDIST_TESTRUNUID"), lock.with_name(f"tests.{request.param}")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not run or not stamp.exists() or stamp.read_text() != run:
            _build(root, tmp_path_factory.mktemp("cache"), "--recorded" if recorded else "")
            stamp.write_text(run or "")
    html = root / "_build" / ("recorded/html" if recorded else "html")
    if recorded:
        # A model that a chapter has edited is measured here, too, on a machine that may be busy.
        pages = [page.read_text() for page in html.glob("notebooks/*.html")]
        boxes = [box for page in pages for box in CLAIM.findall(page)]
        assert len(boxes) > 50
        missed = [box for box in boxes if 'holds="false"' in box and 'live="false"' in box]
        assert not missed, "a recorded run misses a claim"
    return html


def _build(root: Path, cache: Path, options: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "html", f"PY={sys.executable}", f"ARGS={options}"],
        cwd=root,
        env={**os.environ, "CONTENDED_CACHE": str(cache)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    # One failure that shows the build's own words, rather than one traceback for each test.
    assert done.returncode == 0, f"the book does not build:\n{done.stdout[-6000:]}"


CLAIM = re.compile(r'<div class="[^"]*contended-claim"[^>]*>')


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without writing a line for each."""

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def site(book: Path) -> Iterator[str]:
    """The book on a local web server: its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(book))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
