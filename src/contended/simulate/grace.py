# SPDX-License-Identifier: MIT
"""How long a grace period is: RCU's normal and expedited one, against CPUs and their readers.

For the normal one a kthread looks at the CPUs a few ticks after it began. An idle CPU is quiescent
when it is looked at, a busy one at the first tick that does not hit a reader. The expedited one
interrupts each CPU, one after the other. Times and chance are whole numbers, and a mean is their
exact sum divided once: the same seed gives the same digits everywhere.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from contended.errors import UsageError
from contended.simulate.machines import Parameter
from contended.simulate.program import check_cpus, check_ns

SOURCE = "mckenney2013fqs"  # 1 to 3 ticks by HZ, and one more for each 256 CPUs
DRAWS = 200
RATES = (100, 250, 300, 1000)  # timer ticks in a second that a kernel can be configured with
_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rcu:
    """What decides how long a grace period takes; all times are means."""

    hz: int = 1000  # timer ticks in a second: 100, 250, 300 or 1000
    busy: float = 0.2  # the part of the CPUs that is not idle
    reader_us: float = 5.0  # of a read-side section on a busy CPU, exponential
    reading: float = 0.3  # the part of a busy CPU's time that it spends in such sections
    # How likely a grace period is already under way, which does not count for who comes now: they
    # wait for its end, and then for a whole one.
    underway: float = 0.5
    wake_us: float = 50.0  # of each wake-up of a kthread, exponential
    interrupt_us: float = 2.0  # an expedited grace period's for each CPU, one after the other
    call_us: float = 3000.0  # of everything else that the umount command does

    def __post_init__(self) -> None:
        if self.hz not in RATES:
            raise UsageError(f"hz is {self.hz}: choose 100, 250, 300 or 1000")
        for name in ("busy", "reading", "underway"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name):g}: choose 0 to 1")
        for name in ("reader_us", "wake_us", "interrupt_us", "call_us"):
            check_ns(name, getattr(self, name) * 1000)

    def wait_ticks(self, cpus: int) -> int:
        """Ticks before CPUs are looked at, and between looks."""
        return 1 + (self.hz > 250) + (self.hz > 500) + cpus // 256


_CALL = "the deferred variants' own published time: what is left without a wait"
PARAMETERS = {
    "hz": Parameter("assumed", "1000 a second; 250 is common, 100 the least", 100, 1000),
    "wait_ticks": Parameter("cited", SOURCE, 1, 3),
    "busy": Parameter("assumed", "it does little else", 0.0, 1.0),
    "reading": Parameter("assumed", "part of busy time", 0.0, 0.9),
    "reader_us": Parameter("assumed", "a section of some dozen to some thousand lines", 1.0, 50.0),
    "underway": Parameter("assumed", "other users of RCU", 0.0, 1.0),
    "wake_us": Parameter("assumed", "kthreads compete for CPUs", 5.0, 1000.0),
    "interrupt_us": Parameter("assumed", "an interrupt to another CPU and its handler", 1.0, 10.0),
    "call_us": Parameter("cited", _CALL, 2900.0, 3200.0),
}


class _Chance:
    """splitmix64, as in the engine."""

    def __init__(self, seed: int) -> None:
        self._state = (seed + 1) * 0x94D049BB133111EB & _64

    def below(self, limit: int) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _64
        z = self._state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
        return (z ^ z >> 31) * limit >> 64

    def happens(self, part: float) -> bool:
        return self.below(1 << 20) < round(part * (1 << 20))

    def exponential(self, mean: int) -> int:
        whole = 0
        while True:
            first = last = self.below(1 << 53)
            n = 1
            while (u := self.below(1 << 53)) <= last:
                last, n = u, n + 1
            if n % 2:
                return whole * mean + (mean * first >> 53)
            whole += 1


def normal_ns(rcu: Rcu, cpus: int, chance: _Chance) -> int:
    """The length of one normal grace period, nanoseconds."""
    tick = 10**9 // rcu.hz
    wait = rcu.wait_ticks(cpus) * tick
    begun = chance.exponential(round(rcu.wake_us * 1000))
    latest, idle = 0, False
    for _ in range(cpus):
        if not chance.happens(rcu.busy):
            idle = True
            continue
        at = chance.below(tick)
        # A tick that interrupts a reader proves nothing: try the next one.
        while chance.happens(rcu.reading):
            left = chance.exponential(round(rcu.reader_us * 1000))
            at += tick * (1 + left // tick)
        latest = max(latest, at)
    # An idle CPU is only found when the kthread looks; busy ones report by themselves.
    end = max(latest, wait) if idle else latest
    return begun + end + chance.exponential(round(rcu.wake_us * 1000))


def wait_ns(rcu: Rcu, cpus: int, chance: _Chance) -> int:
    """How long somebody waits who asks for a normal grace period, nanoseconds."""
    rest = 0
    if chance.happens(rcu.underway):
        rest = chance.below(normal_ns(rcu, cpus, chance) + 1)
    return rest + normal_ns(rcu, cpus, chance) + chance.exponential(round(rcu.wake_us * 1000))


def expedited_ns(rcu: Rcu, cpus: int, chance: _Chance) -> int:
    """The length of one expedited grace period, nanoseconds."""
    sent, latest = 0, 0
    for _ in range(cpus):
        sent += round(rcu.interrupt_us * 1000)
        left = 0
        if chance.happens(rcu.busy) and chance.happens(rcu.reading):
            left = chance.exponential(round(rcu.reader_us * 1000))
        latest = max(latest, sent + left)
    return latest + chance.exponential(round(rcu.wake_us * 1000))


def umounts_ns(
    variant: str, cpus: int, *, rcu: Rcu | None = None, seed: int = 0, draws: int = DRAWS
) -> list[int]:
    """Nanoseconds of so many lazy umounts on 1 to 512 CPUs, one after the other.

    With "before" and "expedited" the caller waits, with any other variant nobody does. The numbers
    are whole: Python 3.12 and later compensate in `sum` what adding up floats loses, older ones do
    not.
    """
    check_cpus(cpus)
    chance, chosen = _Chance(seed), rcu or Rcu()
    call = round(chosen.call_us * 1000)
    wait = {"before": wait_ns, "expedited": expedited_ns}.get(variant)
    return [call + (wait(chosen, cpus, chance) if wait else 0) for _ in range(draws)]


def sources() -> list[tuple[str, float, Parameter]]:
    """What a grace period's length rests on: name, usual value, and where that comes from."""
    usual = Rcu()
    values = {**asdict(usual), "wait_ticks": usual.wait_ticks(1)}
    return [(name, values[name], where) for name, where in PARAMETERS.items()]
