# SPDX-License-Identifier: MIT
"""The child process that loads and runs models: `python -m contended.measure.host`.

It answers JSON requests of `contended.measure.runner`, one a line, each in a fork of its own: a
model that crashes, spins for ever or scribbles over memory takes down that fork only.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from contended import child
from contended.measure import native

PR_SET_CHILD_SUBREAPER = 36
# A real-time thread that computes for so long without a pause has run away: a run plans for at
# most 0.9 s (CT_FIFO_BUDGET_NS in csrc/harness.h).
RT_LIMIT_US = 1_900_000
_CAUSES = {
    "SIGXCPU": "a real-time thread ran away",
    "SIGKILL": "a real-time thread ran away, or memory ran out",
}


def main() -> int:
    """Serve requests until standard input closes."""
    # Not SIGKILL: what a model has started must be ended as well, and only we know of it.
    child.end_in_order(0)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
    # What a model prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        ffi = native.interface()
        for line in sys.stdin:
            answers.write(json.dumps(_in_fork(ffi, json.loads(line))) + "\n")
            answers.flush()
    finally:
        _end_descendants()
    return 0


def _in_fork(ffi: Any, request: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + request["deadline_s"]
    pid, reading = child.fork(partial(_answer, ffi, request))
    if (text := _read_until(reading, deadline)) is None:
        os.kill(pid, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    _end_descendants()
    if text is None:
        reason = f"did not finish within {request['deadline_s']:.3g} s and was stopped"
        return {"failed": reason, "late": True}
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        late = number in (signal.SIGXCPU, signal.SIGKILL)
        return {"failed": child.death(number, **_CAUSES), "late": late}
    if not text:
        return {"failed": f"ended early with exit status {os.waitstatus_to_exitcode(status)}"}
    said = json.loads(text)
    answer: dict[str, Any] = said.get("done", said)
    return answer


def _read_until(fd: int, deadline: float) -> bytes | None:
    """A line, or less if `fd` is closed (what a model has forked keeps it open), or None: late."""
    text = b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            part = os.read(fd, 1 << 16)
            text += part
            if not part or text.endswith(b"\n"):
                return text
    return None


def _end_descendants() -> None:
    """Kill and reap the request's fork and all that it has started.

    We are a subreaper: who loses its parent below becomes our own child, even after a setsid().
    """
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            for pid, (_, parent, *_) in child.processes():
                if int(parent) == os.getpid():
                    os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
            time.sleep(0.001)
    except ChildProcessError:
        return  # there is none, as after every well-behaved model


def _answer(ffi: Any, request: dict[str, Any]) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_RTTIME, (RT_LIMIT_US, RT_LIMIT_US))
    lib = native.load(Path(request["library"]), ffi)
    if "config" in request:
        return _run(ffi, lib, request["config"])
    return _describe(ffi, lib.ct_model())


def _plain(ffi: Any, value: Any) -> int | str:
    if isinstance(value, int):
        return value
    return ffi.string(value).decode() if value else ""


def _describe(ffi: Any, model: Any) -> dict[str, Any]:
    def rows(of: str, *fields: str) -> list[dict[str, Any]]:
        table, n = getattr(model, of), getattr(model, f"n_{of}")
        return [{f: _plain(ffi, getattr(row, f)) for f in fields} for row in table[0:n]]

    plain = ("slug", "summary", "op", "min_threads", "max_threads")
    return {
        **{name: _plain(ffi, getattr(model, name)) for name in plain},
        "variants": rows("variants", "name", "help"),
        "params": rows("params", "name", "unit", "help", "initial", "min", "max"),
        "counters": rows("counters", "name", "help"),
        "phases": [_plain(ffi, phase) for phase in model.phases[0 : model.n_phases]],
        "fields": rows("fields", "of", "name", "kind", "offset", "size"),
    }


def _run(ffi: Any, lib: Any, config: dict[str, Any]) -> dict[str, Any]:
    result = ffi.new("struct ct_result *")
    # cffi frees what nobody holds: these must outlive the call.
    cpus = ffi.new("int32_t[]", config["cpus"])
    params = ffi.new("int64_t[]", config["params"] or [0])
    lib.ct_measure(
        ffi.new("struct ct_config *", {**config, "cpus": cpus, "params": params}), result
    )
    if error := ffi.string(result.error).decode(errors="replace"):
        return {"failed": error, "late": bool(result.starved)}
    model = lib.ct_model()

    def plain(of: Any, names: str, prefix: str = "") -> dict[str, Any]:
        return {name: getattr(of, prefix + name) for name in names.split()}

    phases = [
        {
            **plain(phase, "rate_min rate_median rate_max ops cpu_changes"),
            "counts": list(phase.counts[0 : model.n_counters]),
            "latency_ns": plain(phase, "p50 p90 p99 max" if phase.latencies else "", "latency_"),
        }
        for phase in result.phases[0 : model.n_phases]
    ]
    waits = plain(result, "start_skew_ns stop_skew_ns runq_wait_ns first_touch")
    return {"sched": ffi.string(result.sched).decode(), **waits, "phases": phases}


if __name__ == "__main__":
    sys.exit(main())
