# SPDX-License-Identifier: MIT
"""A machine in a box: it runs what a benchmark asks for, and misleads it like a real one.

Nothing here takes time. The box computes what a machine with its loop, its compiler, its caches and
its scheduler would have shown, with a little noise. The same seed gives the same machine, so one
can know the truth and compare. On a real machine nobody can.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

Request = dict[str, Any]
Result = dict[str, Any]

MULTIPLY = "x = x * 5 + 1"
KEEP = "keep x"
OWN = "own += 1"
SHARED = "shared += 1"
STATEMENTS = (MULTIPLY, KEEP, OWN, SHARED)


def ask(
    body: Sequence[str],
    *,
    label: str = "",
    cpus: Sequence[int] | None = None,
    threads: int = 1,
    think_ns: float = 0.0,
    ops: int = 10_000,
) -> Request:
    """A run to ask the box for: `threads` threads that each execute `body` `ops` times.

    Args:
        body: Statements of `STATEMENTS`. `keep x` takes no time; it makes the compiler believe
            that somebody looks at x.
        label: For yourself; it comes back with the result.
        cpus: A CPU for each thread, or None: wherever the scheduler puts them.
        threads: Their number.
        think_ns: Private work after each execution of the body, nanoseconds.
        ops: Executions in each thread.
    """
    return {
        "body": list(body),
        "label": label,
        "cpus": None if cpus is None else list(cpus),
        "threads": threads,
        "think_ns": think_ns,
        "ops": ops,
    }


class Box:
    """A machine.

    Args:
        seed: Which.
        cpus: The CPUs that we are allowed to use.
        neighbour_at: The number of the run, from 0, at which somebody else begins to use the
            machine; None: nobody does.
        quiet: No noise, for those who want to check a formula.
    """

    def __init__(
        self,
        seed: int,
        cpus: Sequence[int] = (0, 1),
        neighbour_at: int | None = None,
        quiet: bool = False,
    ) -> None:
        self._random = random.Random(seed)
        self._cpus = list(cpus)
        self._neighbour_at = neighbour_at
        self._quiet = quiet
        self._runs = 0
        self._loop_ns = self._random.uniform(0.5, 3.0)
        self._multiply_ns = self._random.uniform(0.7, 2.0)
        self._add_ns = self._random.uniform(4.0, 9.0)
        self._handover_ns = self._random.uniform(30.0, 180.0)
        self._slower = self._random.uniform(1.4, 2.4)

    def truth(self) -> dict[str, float]:
        """What the machine is like: nanoseconds of a loop, a multiplication, an add, a hand-over."""
        return {
            "loop": self._loop_ns,
            "multiply": self._multiply_ns,
            "add": self._add_ns,
            "handover": self._handover_ns,
        }

    def run_all(self, plan: Sequence[Mapping[str, Any]]) -> list[Result]:
        """The results of some runs, one after the other."""
        return [self.run(request) for request in plan]

    def run(self, request: Mapping[str, Any]) -> Result:
        """Run what `ask` describes.

        Returns:
            The request, and: ns (from the start to the end of all threads), multiplications
            (executed by all threads), handovers (of the shared counter's line), cpu_changes (of
            all threads) and wait_ns (time that threads were ready and did not run).

        Raises:
            ValueError: a statement, a CPU or a number that the box does not know.
        """
        made = self._checked(request)
        threads, ops, body = made["threads"], made["ops"], made["body"]
        multiplications = self._compiled(body).count(MULTIPLY)
        alone = (
            self._loop_ns
            + multiplications * self._multiply_ns
            + (body.count(OWN) + body.count(SHARED)) * self._add_ns
            + made["think_ns"]
        )
        together, changes = self._placed(made["cpus"], threads)
        line_ns = (
            body.count(SHARED) * self._handover_ns if threads > 1 else 0.0
        )
        met = max(
            alone + line_ns, threads * line_ns
        )  # each waits for the line, or it for them
        ns = ops * (together * threads * alone + (1 - together) * met)
        wait = ops * together * (threads - 1) * alone * threads
        if (
            self._neighbour_at is not None
            and self._runs >= self._neighbour_at
        ):
            wait += ns * (self._slower - 1) * threads
            ns *= self._slower
        self._runs += 1
        if not self._quiet:
            ns *= self._random.uniform(0.995, 1.005)
        return {
            **made,
            "ns": ns,
            "multiplications": multiplications * ops * threads,
            "handovers": round((1 - together) * ops * threads)
            if line_ns
            else 0,
            "cpu_changes": changes,
            "wait_ns": round(wait),
        }

    def _checked(self, request: Mapping[str, Any]) -> Request:
        made = ask([])
        for key in request:
            if key not in made:
                raise ValueError(f"the box does not know {key!r}")
        made.update(request)
        for statement in made["body"]:
            if statement not in STATEMENTS:
                raise ValueError(
                    f"the box does not know the statement {statement!r}"
                )
        if made["threads"] < 1 or made["ops"] < 1 or made["think_ns"] < 0:
            raise ValueError("threads and ops begin at 1, think_ns at 0")
        if made["cpus"] is not None:
            if len(made["cpus"]) != made["threads"]:
                raise ValueError(
                    f"{made['threads']} threads need as many CPUs"
                )
            for cpu in made["cpus"]:
                if cpu not in self._cpus:
                    raise ValueError(
                        f"CPU {cpu} is not ours; ours are {self._cpus}"
                    )
        return made

    @staticmethod
    def _compiled(body: Sequence[str]) -> list[str]:
        """What is left of the body: nobody computes what nobody looks at."""
        return [s for s in body if s != MULTIPLY or KEEP in body]

    def _placed(
        self, cpus: Sequence[int] | None, threads: int
    ) -> tuple[float, int]:
        """The part of the time that threads share a CPU, and how often they change it."""
        luck, changes = (
            self._random.uniform(0.2, 0.9),
            self._random.randint(2, 40),
        )
        if threads == 1:
            return 0.0, 0 if cpus is not None else changes
        if cpus is None:
            return luck, changes
        return (0.0 if len(set(cpus)) == threads else 1.0), 0


def usl(threads: float, alone: float, queue: float, pairs: float) -> float:
    """Gunther's law: throughput of so many threads.

    Args:
        threads: n.
        alone: λ, the throughput of one thread.
        queue: σ, the part of the work that queues.
        pairs: κ, what each pair of threads costs.
    """
    return (
        alone
        * threads
        / (1 + queue * (threads - 1) + pairs * threads * (threads - 1))
    )
