# SPDX-License-Identifier: MIT
"""Where and how a number was measured."""

from __future__ import annotations

import platform

from contended import __version__, machine
from contended.measure.results import Provenance


def provenance(
    started: str,
    seconds: float,
    load: float,
    *,
    scheduler: str,
    compiler: str,
    compiler_flags: str,
) -> Provenance:
    """This machine, and what the caller knows of its run: what is on it comes from `machine`."""
    return Provenance(
        cpu=machine.cpu_model(),
        cpus_allowed=machine.allowed_cpus(),
        kernel=platform.release(),
        compiler=compiler,
        compiler_flags=compiler_flags,
        python=platform.python_version(),
        contended=__version__,
        commit=machine.commit(),
        governor=machine.governor(),
        virtualized=machine.hypervisor(),
        load_1min=load,
        scheduler=scheduler,
        started=started,
        seconds=round(seconds, 3),
    )
