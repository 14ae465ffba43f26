# SPDX-License-Identifier: MIT
"""Print the chapters of a built book as PDF, one file each, by Chromium: `make pdf`."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def printed(command: list[str]) -> str:
    """Print a page; what went wrong, or nothing."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return "the browser was not done after 600 s"
    return run.stderr[-300:] or f"exit status {run.returncode}" if run.returncode else ""


def main(argv: list[str] | None = None) -> int:
    """Print them; 1, with a line that says why, if it cannot be done."""
    about = (__doc__ or "").partition(":")[0]
    parser = argparse.ArgumentParser(prog="pdf.py", description=about)
    parser.add_argument("html", type=Path, help="the built book, such as _build/html")
    parser.add_argument("out", type=Path, help="a folder, made if need be")
    parser.add_argument("pages", nargs="*", help="default: all chapters")
    options = parser.parse_args(argv)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    pages = sorted(options.html.glob("notebooks/*.html"))
    if options.pages:
        pages = [options.html / f"{page}.html" for page in options.pages]
    missing = next((page for page in pages if not page.is_file()), None)
    problem = (
        "no Chromium: make doctor names its package"
        if browser is None
        else f"no chapters in {options.html}: make book first"
        if not pages
        else f"there is no {missing}"
        if missing
        else ""
    )
    if problem or browser is None:
        sys.stderr.write(f"pdf.py: {problem}\n")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    for page in pages:
        made = (options.out / f"{page.stem}.pdf").resolve()
        with tempfile.TemporaryDirectory(prefix="contended-pdf-") as profile:
            command = [
                *(browser, "--headless", "--no-sandbox", "--no-pdf-header-footer"),
                f"--user-data-dir={profile}",
                f"--print-to-pdf={made}",
                page.resolve().as_uri(),
            ]
            said = printed(command)
        if said or not made.is_file():
            sys.stderr.write(f"pdf.py: {page.name} could not be printed: {said}\n")
            return 1
        sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
