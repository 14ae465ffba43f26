# SPDX-License-Identifier: MIT
"""The process that runs a student's cells: `python -m contended.course.student`, in a sandbox.

It reads one JSON request a line and answers each with one JSON line. What it says is data and no
more: who wrote the cells can make it answer anything, but not reach who judges the answer.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> int:
    """Serve requests until standard input closes."""
    # What a cell prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # The cells' own __main__, so that what they define can be pickled, and this module stays out.
    module = sys.modules["__main__"] = type(sys)("__main__")
    # The lab's given modules; last, so that nothing here is taken for the package's own.
    sys.path.append(str(Path.cwd()))
    broken: dict[str, str] = {}
    for line in sys.stdin:
        answers.write(_answer(json.loads(line), module.__dict__, broken) + "\n")
        answers.flush()
    return 0


def _answer(request: dict[str, Any], names: dict[str, Any], broken: dict[str, str]) -> str:
    name = request["name"]
    found: Any = None
    try:
        if request["op"] == "cell":
            source, place = request["source"], f"<cell {name}>"
            linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
            exec(compile(source, place, "exec"), names)
        elif name in names:
            found = names[name]
        else:
            why = "".join(f"; the cell {cell!r} ended with {what}" for cell, what in broken.items())
            raise LookupError(f"nothing is called {name}{why}")
        if request["op"] == "call":
            found = found(*request["args"], **request["kwargs"])
        return json.dumps({"ok": found}, default=plain)
    except BaseException as error:
        # SystemExit and KeyboardInterrupt as well: leaving early is no way to pass.
        said = _describe(error)
        if request["op"] == "cell":
            broken[name] = said["message"]
        return json.dumps(said)


def plain(value: Any) -> Any:
    """What JSON has no word for, as something that it has."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return value.tolist()
    if hasattr(value, "_asdict"):
        return value._asdict()
    raise TypeError(f"a {type(value).__name__} is no plain data: return numbers, texts, lists")


def _describe(error: BaseException) -> dict[str, str]:
    kind = type(error).__name__
    try:
        words = " ".join(str(error).split())
    except Exception:
        words = "(it cannot say what)"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith("<cell")]
    where = f" (line {own[-1].lineno} of {own[-1].filename[1:-1]})" if own else ""
    message = f"{kind}: {words}"[:1000] if words else kind
    return {"raised": kind, "message": message + where}


if __name__ == "__main__":
    sys.exit(main())
