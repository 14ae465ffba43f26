# SPDX-License-Identifier: MIT
"""How long a grace period is: RCU's normal and expedited one, against CPUs and their readers.

A grace period is over when every CPU has passed through a quiescent state. The normal one asks
nobody: a kthread looks at the CPUs a few ticks after it began, and again after as many. An idle
CPU counts as quiescent when it is looked at; a busy one is at the first tick that does not hit a
reader. The expedited one interrupts each CPU, one after the other, and waits for the answers.

Times and chance are whole numbers, and a mean is their exact sum divided once, rounded to the
nearest float: the same seed gives the same digits everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from contended.errors import UsageError
from contended.simulate.machines import Parameter, Source
from contended.simulate.program import check_cpus, check_ns

SOURCE = Source(
    key="mckenney2013fqs",
    title="P. E. McKenney, Linux commit 026ad2835ce6, rcu: Drive quiescent-state-forcing delay "
    "from HZ: 1 to 3 jiffies by HZ, and one more for each 256 CPUs",
    url="https://git.zx2c4.com/linux-dev/commit/?id=026ad2835ce6202069e7aa0b11f5f1be4de34550",
)
DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rcu:
    """What decides how long a grace period takes.

    Attributes:
        hz: Timer ticks in a second: 100, 250, 300 or 1000.
        busy: The part of the CPUs that is not idle, 0 to 1.
        reader_us: Mean length of a read-side section on a busy CPU, microseconds, exponential.
        reading: The part of a busy CPU's time that it spends in such sections.
        underway: How likely a grace period is already under way, which does not count for who
            comes now: they wait for its end, and then for a whole one.
        wake_us: Mean delay of each wake-up of a kthread, microseconds.
        interrupt_us: An expedited grace period's cost for each CPU, one after the other.
        call_us: Everything else that the umount command does, microseconds.
    """

    hz: int = 1000
    busy: float = 0.2
    reader_us: float = 5.0
    reading: float = 0.3
    underway: float = 0.5
    wake_us: float = 50.0
    interrupt_us: float = 2.0
    call_us: float = 3000.0

    def __post_init__(self) -> None:
        if self.hz not in (100, 250, 300, 1000):
            raise UsageError(f"hz is {self.hz}: choose 100, 250, 300 or 1000")
        for name in ("busy", "reading", "underway"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name):g}: choose 0 to 1")
        for name in ("reader_us", "wake_us", "interrupt_us", "call_us"):
            check_ns(name, getattr(self, name) * 1000)

    def wait_ticks(self, cpus: int) -> int:
        """Ticks before CPUs are looked at, and between looks."""
        return 1 + (self.hz > 250) + (self.hz > 500) + cpus // 256


PARAMETERS = {
    "hz": Parameter(basis="assumed", source="1000 a second; 250 is common", low=250, high=1000),
    "wait_ticks": Parameter(basis="cited", source=SOURCE.key, low=1, high=3),
    "busy": Parameter(basis="assumed", source="it does little else", low=0.0, high=1.0),
    "reading": Parameter(basis="assumed", source="part of busy time", low=0.0, high=0.9),
    "underway": Parameter(basis="assumed", source="other users of RCU", low=0.0, high=1.0),
    "wake_us": Parameter(basis="assumed", source="kthreads compete for CPUs", low=5.0, high=1000.0),
    "call_us": Parameter(
        basis="cited",
        source="the deferred variants' own published time: what is left without a wait",
        low=2900.0,
        high=3200.0,
    ),
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


_64 = (1 << 64) - 1


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


def umount_ns(rcu: Rcu, variant: str, cpus: int, chance: _Chance) -> int:
    """How long one lazy umount takes its caller, nanoseconds."""
    call = round(rcu.call_us * 1000)
    if variant == "before":
        return call + wait_ns(rcu, cpus, chance)
    if variant == "expedited":
        return call + expedited_ns(rcu, cpus, chance)
    return call


def umounts_ms(
    variant: str, cpus: int, *, rcu: Rcu | None = None, seed: int = 0, draws: int = DRAWS
) -> list[float]:
    """Lazy umounts, one after the other.

    Args:
        variant: "before", "expedited", "call-rcu" or "no-wait".
        cpus: CPUs of the machine, 1 to 512.
        rcu: What decides; default a mostly idle machine.
        seed: Seeds what is random.
        draws: How many.

    Returns:
        Milliseconds of each, shape (draws,).
    """
    return [ns / 1e6 for ns in umounts_ns(variant, cpus, rcu=rcu, seed=seed, draws=draws)]


def umounts_ns(
    variant: str, cpus: int, *, rcu: Rcu | None = None, seed: int = 0, draws: int = DRAWS
) -> list[int]:
    """As `umounts_ms`, in whole nanoseconds: what sums and means are made of.

    Python 3.12 and later compensate in `sum` what adding up floats loses, older ones do not.
    """
    check_cpus(cpus)
    chance = _Chance(seed)
    chosen = rcu or Rcu()
    return [umount_ns(chosen, variant, cpus, chance) for _ in range(draws)]


def sources() -> list[tuple[str, float, str, Parameter]]:
    """What a grace period's length rests on: name, usual value, unit, and where it comes from."""
    rcu = Rcu()
    units = {"hz": "1/s", "wait_ticks": "ticks", "busy": "part", "reading": "part"}
    units["underway"] = "part"
    return [
        (
            name,
            rcu.wait_ticks(1) if name == "wait_ticks" else getattr(rcu, name),
            units.get(name, "us"),
            where,
        )
        for name, where in PARAMETERS.items()
    ]
