# SPDX-License-Identifier: MIT
"""Replay an interleaving of a lazy umount, step by step, with one of the three patches.

There is one mount, with three references: being mounted is worth one, the umount has one from
looking the path up, and another process has one and is about to drop it (the closer). What each
can do, in its own order:

closer   enter    begin to read under RCU, as mntput() does
         look     is the mount in a namespace? then the reference cannot be the last one
         drop     after such a look the count is lowered and not looked at again; otherwise under
                  mount_lock, and whoever makes it 0 releases the mount
         leave    end to read
umount   unhook   the mount is in no namespace any more
         put      drop the reference of being mounted, under mount_lock: unpatched after the grace
                  period, with patch B at once; with A and C that is left to others
         return   drop the reference from the path, under mount_lock, and go back to user space
rcu      grace    the grace period is over: all who read when the mount was unhooked have left
worker   put      with patch A, after the grace period: the reference of being mounted
softirq  put      with patch C, after the grace period: the same, on the CPU of the holder
holder   lock     somebody takes mount_lock, with softirqs enabled
         unlock   and gives it back
"""

from __future__ import annotations

PATCHES = ("unpatched", "A", "B", "C")
_ORDER = {
    "closer": ["enter", "look", "drop", "leave"],
    "holder": ["lock", "unlock"],
    "rcu": ["grace"],
}
_PUTS = {"unpatched": "umount", "A": "worker", "B": "umount", "C": "softirq"}


class Refused(Exception):
    """A step that cannot happen there; the message says why."""


class Machine:
    """What is so after the steps that have been made."""

    def __init__(self, patch):
        if patch not in PATCHES:
            raise Refused(
                f"there is no patch {patch!r}; there are {', '.join(PATCHES)}"
            )
        self.patch, self.count = patch, 3
        self.hooked, self.graced, self.held = True, False, False
        self.fast = self.inside = self.waited_for = False
        self.released = self.lost = self.deadlock = False
        self.done = {
            name: []
            for name in (
                "closer",
                "umount",
                "rcu",
                "holder",
                "worker",
                "softirq",
            )
        }
        self.order = {**_ORDER, "umount": ["unhook", "return"]}
        if _PUTS[patch] == "umount":
            self.order["umount"] = ["unhook", "put", "return"]
        else:
            self.order[_PUTS[patch]] = ["put"]

    def step(self, who, what):
        """Make one step, or refuse it."""
        if self.deadlock:
            raise Refused("the CPU waits for itself: nothing goes on there")
        if who not in self.order:
            raise Refused(f"with {self.patch} there is no {who!r}")
        left = self.order[who][len(self.done[who]) :]
        if not left or left[0] != what:
            due = f"{left[0]!r} is next" if left else "all is done"
            raise Refused(f"{who} cannot {what!r}: {due}")
        getattr(self, f"_{what}")(who)
        self.done[who].append(what)

    def _enter(self, _who):
        self.inside, self.waited_for = True, self.hooked

    def _look(self, _who):
        self.fast = self.hooked

    def _drop(self, who):
        if self.fast:
            self.count -= 1
            self.lost = self.count == 0
        else:
            self._put_locked(who)

    def _leave(self, _who):
        self.inside = False

    def _unhook(self, _who):
        self._need_lock("umount")
        self.hooked = False

    def _put(self, who):
        if not (self.graced or self.patch == "B"):
            raise Refused(f"{who} cannot put before the grace period is over")
        if who == "softirq" and self.held:
            self.deadlock = True
            return
        self._put_locked(who)

    def _return(self, who):
        self._put_locked(who)

    def _grace(self, _who):
        if self.hooked:
            raise Refused("nobody has asked for a grace period yet")
        if self.inside and self.waited_for:
            raise Refused(
                "the grace period cannot end: the closer still reads"
            )
        self.graced = True

    def _lock(self, _who):
        self.held = True

    def _unlock(self, _who):
        self.held = False

    def _need_lock(self, who):
        if self.held:
            raise Refused(f"{who} waits for mount_lock")

    def _put_locked(self, who):
        self._need_lock(who)
        self.count -= 1
        self.released = self.released or self.count == 0

    @property
    def busy(self):
        """Whether the umount is back, nobody uses the mount, and it will be released later."""
        gone = (
            "return" in self.done["umount"] and "drop" in self.done["closer"]
        )
        return gone and self.count > 0


def replay(patch, trace):
    """The machine after a trace, a list of pairs [who, what]; Refused says which step cannot be."""
    machine = Machine(patch)
    if not isinstance(trace, list) or len(trace) > 40:
        raise Refused("a trace is a list of at most 40 steps")
    for number, step in enumerate(trace, 1):
        if not (
            isinstance(step, list)
            and len(step) == 2
            and all(type(s) is str for s in step)
        ):
            raise Refused(
                f"step {number} is no pair of two texts, [who, what]"
            )
        try:
            machine.step(*step)
        except Refused as refused:
            raise Refused(
                f"step {number}, {step[0]} {step[1]}: {refused}"
            ) from None
    return machine


def shows(patch, trace, finding):
    """Whether a trace can happen with a patch and ends in `lost`, `deadlock` or `busy`."""
    try:
        return bool(getattr(replay(patch, trace), finding))
    except Refused:
        return False
