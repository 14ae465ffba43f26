# SPDX-License-Identifier: MIT
"""Many simulations at once, on Dask: this machine's CPUs by default, or any scheduler.

Each combination of case, variant, machine, CPUs and seed is a task of its own that depends on no
other, so a worker that dies loses only what it was doing, and Dask gives that to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contended import machine as host
from contended.errors import ContendedError, UsageError
from contended.simulate import cases

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]

CONNECT_S = 5  # and then a message: nobody waits longer than 10 s for an address that is wrong
_SILENT = logging.CRITICAL + 1
DEATHS = 10  # of workers that a task survives: a machine that is taken away is no fault of it


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation."""

    name: str
    variant: str
    machine: str
    cpus: int
    seed: int


def tasks(
    names: Sequence[str],
    *,
    machines: Sequence[str],
    cpus: Sequence[int],
    variants: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
) -> list[Task]:
    """Every combination, checked.

    Args:
        names: Scenarios, see `cases.names`.
        machines: Names of machines.
        cpus: How many CPUs, 1 to 512 each.
        variants: Which; default all of each scenario.
        seeds: A simulation for each.

    Raises:
        UsageError: an unknown name or a number out of range; nothing is run.
    """
    found = []
    for name in names:
        chosen = list(variants or cases.variants(name))
        for machine in machines:
            cases.check(name, chosen, machine, cpus)
        found += [Task(name, *each) for each in product(chosen, machines, cpus, seeds)]
    return found


def run(
    todo: Sequence[Task], *, address: str | None = None, progress: Progress | None = None
) -> pd.DataFrame:
    """Simulate on Dask.

    Args:
        todo: What; see `tasks`.
        address: A scheduler, such as "tcp://host:8786"; default a cluster of this machine's CPUs
            that lives as long as the call. The workers must have this package installed.
        progress: Called with the tasks done and the tasks there are.

    Returns:
        The rows of `cases.frame`, in the order of the tasks, however they were distributed.

    Raises:
        ContendedError: nobody answers at the address, or a task failed.
    """
    pandas = cases.require_pandas()
    distributed = require_distributed()
    rows: list[list[dict[str, Any]] | None] = [None] * len(todo)
    with connected(distributed, address, len(todo)) as client:
        futures = {
            client.submit(_rows, task, pure=False): number for number, task in enumerate(todo)
        }
        if progress:
            progress(0, len(todo))
        for done, future in enumerate(distributed.as_completed(futures), start=1):
            number = futures[future]
            try:
                rows[number] = future.result()
            except UsageError:
                raise
            except Exception as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ContendedError(f"simulating {todo[number]} failed: {reason}") from error
            if progress:
                progress(done, len(todo))
    found: pd.DataFrame = pandas.DataFrame([row for each in rows for row in each or ()])
    return found


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as Parquet: the whole file or, on any error, no file.

    Raises:
        ContendedError: it cannot be written, or pyarrow is missing.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        frame.to_parquet(temporary, index=False)
        temporary.replace(path)
    except ImportError as error:
        raise ContendedError("writing Parquet needs pyarrow: pip install pyarrow") from error
    except OSError as error:
        raise ContendedError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _rows(task: Task) -> list[dict[str, Any]]:
    return cases.rows(task.name, task.variant, task.machine, task.cpus, task.seed)


def require_distributed() -> Any:
    """The package distributed, imported.

    Raises:
        ContendedError: it is not installed.
    """
    try:
        import distributed
    except ImportError as error:
        raise ContendedError(
            "sweeps need Dask: install the extra with `pip install 'contended[book]'`"
        ) from error
    return distributed


@contextlib.contextmanager
def connected(distributed: Any, address: str | None, most: int) -> Iterator[Any]:
    """A client of the scheduler at an address, or of a local cluster that ends with the block.

    Raises:
        ContendedError: nobody answers there.
    """
    import dask

    # What Dask logs of a worker's death is for those who run a cluster, not for a reader.
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(_SILENT)
    settings = {
        "distributed.scheduler.allowed-failures": DEATHS,
        "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
    }
    try:
        with dask.config.set(settings):
            if address is None:
                workers = max(1, min(len(host.allowed_cpus()), most))
                with contextlib.ExitStack() as stack:
                    with _interrupts_later():
                        cluster = distributed.LocalCluster(
                            n_workers=workers,
                            threads_per_worker=1,
                            processes=True,
                            dashboard_address="127.0.0.1:0",
                            silence_logs=_SILENT,
                            local_directory=os.environ.get("TMPDIR"),
                        )
                        stack.enter_context(cluster)
                        client = stack.enter_context(distributed.Client(cluster))
                    yield client
                return
            _probe(address)
            try:
                client = distributed.Client(address, timeout=CONNECT_S)
            except Exception as error:
                raise _silent(address) from error
            with client:
                yield client
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C waits until the block is done: what is half there cannot be taken down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler if usual is None else usual)
    if caught:
        raise KeyboardInterrupt


def _probe(address: str) -> None:
    """Does a Dask scheduler answer?

    Dask's own time limit ends with the connection: a server that takes it and then says nothing, or
    something else, would be waited for without end. A thread, since notebooks have a running loop.
    """
    from distributed.comm.core import connect

    reach: Any = connect
    failures: list[BaseException] = []

    async def knock() -> None:
        comm = await asyncio.wait_for(reach(address, timeout=CONNECT_S), CONNECT_S)
        await comm.close()

    def run() -> None:
        try:
            asyncio.run(knock())
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CONNECT_S + 1)
    if failures and isinstance(failures[0], ValueError):
        raise UsageError(
            f"{address!r} is no Dask address: give one like tcp://host:8786"
        ) from failures[0]
    if failures or thread.is_alive():
        raise _silent(address) from (failures[0] if failures else None)


def _silent(address: str) -> ContendedError:
    return ContendedError(
        f"no Dask scheduler answers at {address}: start one with `dask scheduler`, or leave the "
        "address out to use this machine"
    )
