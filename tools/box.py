#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Print the steps of the Containerfile as a script, to try them where there is no container engine.

    sudo tools/fresh.py bookworm sh -c "$(tools/box.py KERNELS=0)"

runs all of them on a fresh Debian 12, in a clone that already lies where COPY would put it, and at
last starts the image's command without a network and asks it for its page.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "Containerfile"
SKIPPED = ("FROM", "COPY", "EXPOSE")
"""What the fresh system is by itself: a Debian, with the clone in it."""

_ASK = """\
import sys, time, urllib.request
for _ in range(120):
    try:
        sys.exit(urllib.request.urlopen("http://127.0.0.1:8888/api").status != 200)
    except OSError:
        time.sleep(1)
sys.exit("no answer within two minutes")
"""


class Unknown(Exception):
    """An instruction that this does not know; one line."""


def script(text: str, given: Sequence[str] = ()) -> str:
    """The steps as a shell script; `given` are build arguments, NAME=VALUE."""
    lines = ["set -eu"]
    before = ""
    for number, line in enumerate(_joined(text), 1):
        word, _, rest = line.partition(" ")
        if word == "ARG":
            name = rest.partition("=")[0]
            value = next((each for each in given if each.startswith(f"{name}=")), rest)
            lines.append(f"export {value}")
        elif word == "ENV":
            lines.append(f"export {rest}")
        elif word == "WORKDIR":
            lines.append(f"cd {shlex.quote(rest)}")
        elif word == "USER":
            user = shlex.quote(rest)
            # Here the home was there before its user: the clone is in it, and pip's settings.
            lines += [f"export HOME=/home/{rest}", f'chown -R {user}: "$HOME"']
            before = f"setpriv --reuid {user} --regid {user} --clear-groups "
        elif word == "RUN":
            lines.append(f"{before}sh -c {shlex.quote(rest)}")
        elif word == "CMD":
            lines.append(_offline(before + shlex.join(json.loads(rest))))
        elif word not in SKIPPED:
            raise Unknown(f"step {number} is {word}, which this script does not know: add it here")
    return "\n".join(lines) + "\n"


def _joined(text: str) -> list[str]:
    whole = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", text))
    return [line for line in whole.splitlines() if line.strip()]


def _offline(command: str) -> str:
    inner = f"busybox ip link set lo up; {command} & python3 -c {shlex.quote(_ASK)}"
    return f"unshare --net sh -c {shlex.quote(inner)}"


def main(given: Sequence[str]) -> int:
    """Print the script; returns the exit status."""
    if wrong := [each for each in given if not re.fullmatch(r"[A-Z]+=\S*", each)]:
        sys.stderr.write(f"box.py: {wrong[0]!r} is no build argument such as KERNELS=0\n")
        return 2
    try:
        sys.stdout.write(script(FILE.read_text(), given))
    except Unknown as unknown:
        sys.stderr.write(f"box.py: {unknown}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
