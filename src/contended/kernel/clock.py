# SPDX-License-Identifier: MIT
"""How fast the time stamp counter of an x86-64 host runs, measured without compiling anything.

A guest under TCG or KVM reads the host's counter, but has to find out its rate. Its kernel times
it against an emulated timer chip, which fails on a busy host; then the guest is left with a clock
that advances in steps of 10 ms, and every latency it reports is nonsense. So the guest is told.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from functools import cache

# rdtsc; shl rdx, 32; or rax, rdx; ret
_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
_INTERVAL_S = 0.02


@cache
def tsc_khz() -> int | None:
    """The counter's rate in kHz within some parts per million; None where it cannot be read."""
    if platform.machine() != "x86_64":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None  # a system that forbids memory that is both writable and executable
    page.write(_RDTSC)
    code = ctypes.c_char.from_buffer(page)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))

    def both() -> tuple[int, int]:
        """The counter and the clock (ns) at one moment: the reading that took least."""
        tries = []
        for _ in range(20):
            before, now, after = read(), time.monotonic_ns(), read()
            tries.append((after - before, (before + after) // 2, now))
        return min(tries)[1:]

    first_ticks, first_ns = both()
    time.sleep(_INTERVAL_S)
    last_ticks, last_ns = both()
    del code
    page.close()
    khz = round((last_ticks - first_ticks) * 1_000_000 / (last_ns - first_ns))
    return khz if khz > 0 else None
