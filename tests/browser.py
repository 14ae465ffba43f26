# SPDX-License-Identifier: MIT
"""A real browser for tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

PATIENCE_MS = 120_000
"""What a page may take on a machine that is busy with other things; a test waits for no longer."""

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
            ],
        )
        expect.set_options(timeout=PATIENCE_MS)
        yield browser
        browser.close()


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """Pages of one kind, to which a busy machine gives its time."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    return context
