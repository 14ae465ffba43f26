# SPDX-License-Identifier: MIT
"""Dask, for whoever has many things to do: this machine's CPUs, or any scheduler."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from contended import machine
from contended.errors import ContendedError, UsageError

CONNECT_S = 5  # and then a message: nobody waits longer than 10 s for an address that is wrong
DEATHS = 10  # of workers that a task survives: a machine that is taken away is no fault of it


@contextlib.contextmanager
def connected(address: str | None, most: int) -> Iterator[Any]:
    """A client of the scheduler at an address, or else of a cluster of at most `most` CPUs here."""
    try:  # an extra, and slow to import
        dask, distributed = import_module("dask"), import_module("distributed")
    except ImportError as error:
        message = "sweeps need Dask: install the extra with `pip install 'contended[book]'`"
        raise ContendedError(message) from error
    settings = {
        "distributed.scheduler.allowed-failures": DEATHS,
        "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
    }
    with contextlib.ExitStack() as stack:
        # What Dask logs of a worker's death is for those who run a cluster, not for a reader.
        logger, silent = logging.getLogger("distributed"), logging.CRITICAL + 1
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(silent)
        stack.enter_context(dask.config.set(settings))
        if address is None:
            with _interrupts_later():
                local = distributed.LocalCluster(
                    n_workers=max(1, min(len(machine.allowed_cpus()), most)),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=silent,
                    local_directory=os.environ.get("TMPDIR"),
                )
                stack.enter_context(local)
                client = stack.enter_context(distributed.Client(local))
        else:
            try:
                _knock(address)
                client = distributed.Client(address, timeout=CONNECT_S)
            except ValueError as error:
                message = f"{address!r} is no Dask address: give one like tcp://host:8786"
                raise UsageError(message) from error
            except Exception as error:
                raise ContendedError(
                    f"no Dask scheduler answers at {address}: start one with `dask scheduler`, "
                    "or leave the address out to use this machine"
                ) from error
            stack.enter_context(client)
        yield client


def done(futures: Iterable[Any]) -> Iterator[Any]:
    """The futures of a client of `connected`, each as it ends."""
    found: Iterator[Any] = import_module("distributed").as_completed(futures)
    return found


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


def _knock(address: str) -> None:
    """See that a Dask scheduler answers.

    Dask's own time limit ends with the connection: a server that takes it and then says nothing, or
    something else, would be waited for without end. A thread, since notebooks have a running loop.
    """
    comm: Any = import_module("distributed.comm.core")
    answer: Future[None] = Future()

    async def knock() -> None:
        there = await asyncio.wait_for(comm.connect(address, timeout=CONNECT_S), CONNECT_S)
        await there.close()

    def run() -> None:
        try:
            answer.set_result(asyncio.run(knock()))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    answer.result(CONNECT_S + 1)
