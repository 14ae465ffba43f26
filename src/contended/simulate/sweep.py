# SPDX-License-Identifier: MIT
"""Many simulations at once, on Dask: this machine's CPUs by default, or any scheduler.

Each simulation is a task of its own that depends on no other, so a worker that dies loses only what
it was doing, and Dask gives that to another. It carries its workload, so a worker needs nothing but
this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from contended import cluster
from contended.errors import ContendedError, UsageError
from contended.simulate.workload import Row, Workload

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Simulation:
    """One simulation, to be run anywhere."""

    workload: Workload
    variant: str
    machine: str
    cpus: int
    seed: int

    def __str__(self) -> str:
        where = f"{self.cpus} CPUs of {self.machine}, seed {self.seed}"
        return f"{self.workload.name}, {self.variant}, {where}"

    def rows(self) -> list[Row]:
        """Simulate it, here and now."""
        return self.workload.rows(self.variant, self.machine, self.cpus, self.seed)


def tasks(
    workloads: Sequence[Workload],
    *,
    machines: Sequence[str],
    cpus: Sequence[int],
    variants: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
) -> list[Simulation]:
    """Every combination, by default of all variants; raises UsageError as `Workload.check` does."""
    found = []
    for workload in workloads:
        chosen = list(variants or workload.variants)
        for machine in machines:
            workload.check(chosen, machine, cpus)
        found += [Simulation(workload, *each) for each in product(chosen, machines, cpus, seeds)]
    return found


def run(
    todo: Sequence[Simulation], *, address: str | None = None, progress: Progress | None = None
) -> pd.DataFrame:
    """Simulate on Dask: the rows of `Workload.rows`, in the order of `todo`.

    Args:
        todo: What; see `tasks`.
        address: A scheduler, such as "tcp://host:8786"; default a cluster of this machine's CPUs
            that lives as long as the call. The workers must have this package installed.
        progress: Called with the tasks done and the tasks there are.

    Raises:
        ContendedError: nobody answers at the address, or a task failed.
    """
    import pandas as pd  # slow to import

    report = progress or (lambda *_: None)
    rows: list[list[Row]] = [[] for _ in todo]
    with cluster.connected(address, len(todo)) as client:
        futures = {client.submit(task.rows, pure=False): n for n, task in enumerate(todo)}
        report(0, len(todo))
        for done, future in enumerate(cluster.done(futures), start=1):
            number = futures[future]
            try:
                rows[number] = future.result()
            except UsageError:
                raise
            except Exception as error:
                reason = (str(error) or type(error).__name__).splitlines()[0]
                raise ContendedError(f"simulating {todo[number]} failed: {reason}") from error
            report(done, len(todo))
    return pd.DataFrame([row for each in rows for row in each])


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as Parquet, the whole file or, on any error, a ContendedError, no file."""
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
