# SPDX-License-Identifier: MIT
"""What submissions do that do not want to be graded by their merits: definitions of `total`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip() + "\n"


ATTACKS: Mapping[str, str] = {
    "reads-the-hidden-tests": """
        import gc, json, os, sys
        def total(numbers):
            for top in ("/", os.getcwd()):
                for folder, folders, files in os.walk(top):
                    folders[:] = [f for f in folders if f not in ("proc", "usr", "sys", ".venv")]
                    if "secret.json" in files or "sums.ipynb" in files:
                        return sum(numbers)
            if any("secret_answer" in repr(o) for o in gc.get_objects() if isinstance(o, str)
                   and o is not total.__code__.co_consts):
                pass
            with open("/proc/self/environ") as environ:
                if "JOB" in environ.read():
                    return sum(numbers)
            return 3
    """,
    "forks-for-ever": """
        import os
        def total(numbers):
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
    """,
    "allocates-100-gigabytes": """
        def total(numbers):
            return len(bytearray(100 << 30))
    """,
    "loops-for-ever": """
        def total(numbers):
            while True:
                pass
    """,
    "prints-a-fake-grade": """
        import json, os, sys
        def total(numbers):
            for line in ('{"ok": 3}', '{"earned": 5, "points": 5}', '{"ok": true}'):
                print(line, flush=True)
                for descriptor in range(1, 64):
                    try:
                        os.write(descriptor, line.encode() + b"\\n")
                    except OSError:
                        pass
            return 3
    """,
    "patches-the-tests": """
        import builtins, sys
        import contended.course as course
        course.call = lambda *args, **kwargs: 3
        course.session = None
        builtins.AssertionError = Warning
        for name in list(sys.modules):
            if name.startswith(("nbgrader", "IPython", "contended")):
                sys.modules[name] = course
        sys.excepthook = lambda *_: None
        def total(numbers):
            return 3
    """,
    "is-equal-to-everything": """
        class Any(int):
            def __eq__(self, other):
                return True
            def __hash__(self):
                return 0
        def total(numbers):
            return Any(3)
    """,
    "traces-the-grader": """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def total(numbers):
            for pid in (os.getppid(), 1, *range(2, 400)):
                if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0:
                    return sum(numbers)
            return 3
    """,
    "raises-system-exit": """
        import sys
        def total(numbers):
            sys.exit(0)
    """,
    "answers-without-end": """
        def total(numbers):
            return "x" * (64 << 20)
    """,
    "answers-nested-nonsense": """
        import os
        def total(numbers):
            for descriptor in range(3, 16):
                try:
                    os.write(descriptor, b"[" * 100000 + b"\\n")
                except OSError:
                    pass
            return 3
    """,
}
"""Each gets nothing for its total, and the points for doubling, which it does honestly."""

HARMLESS: Mapping[str, str] = {
    "opens-a-socket": """
        import socket
        def total(numbers):
            try:
                socket.create_connection(("127.0.0.1", PORT), 2)
                return 0
            except OSError:
                return sum(numbers)
    """,
    "writes-outside": """
        from pathlib import Path
        def total(numbers):
            for place in ("OUT", "HOME/labs", "/usr/lib", "/etc", "/dev/shm", "/var/tmp", "/"):
                try:
                    (Path(place) / "was-here").write_text("1")
                except OSError:
                    pass
            return sum(numbers)
    """,
    "leaves-processes-behind": """
        import os, time
        def total(numbers):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
            return sum(numbers)
    """,
}
"""What they try does not come to pass, and their answers are right: they get all points."""
