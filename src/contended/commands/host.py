# SPDX-License-Identifier: MIT
"""`contended host`: which of the cases the running kernel has."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

from contended import machine, register, state
from contended.cases import study
from contended.cases.host import Finding, find, sampled
from contended.commands import commandline
from contended.commands.commandline import say
from contended.measure import running, today

LIMIT_S = 55.0  # for all of it, so that what asks and prints is within a minute as well


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    about = """Say of each case whether the running kernel has it. No root is needed, nothing is
        changed, and it takes a minute at most: what is mounted is in a namespace of its own."""
    add = commandline.arguments(parser, _host, about)
    add("slug", nargs="?", metavar="SLUG", help="a case; default: all")
    add("--json", action="store_true", help="as JSON on standard output")


def _host(args: argparse.Namespace) -> None:
    slugs = [register.get(args.slug).slug] if args.slug else list(register.slugs())
    until = time.monotonic() + LIMIT_S
    kernel = running.read()
    checks = state.checks()
    found, notes = [], [*kernel.notes, *(f"{check}" for check in checks if not check.ok)]
    if refused := today.refusal():
        notes.append(f"the controls are not run: {refused}")
    with commandline.lines() as progress:
        for done, slug in enumerate(slugs):
            progress(slug, done, len(slugs))
            host = study(slug).host
            today.LIMIT_S.set(max(0.1, until - time.monotonic()))
            one = find(register.get(slug), host, kernel, controls=not refused)
            if host and not refused:
                today.LIMIT_S.set(max(0.1, until - time.monotonic()))
                one = replace(one, sampled=sampled(slug, host, kernel))
            found.append(one)
    if args.json:
        value = {
            "kernel": kernel.release,
            "architecture": kernel.architecture,
            "cpu": machine.cpu_model(),
            "cpus": len(machine.allowed_cpus()),
            "notes": notes,
            "cases": [asdict(one) for one in found],
        }
        say(json.dumps(value, indent=2, ensure_ascii=False))
        return
    cpus = len(machine.allowed_cpus())
    say(f"Linux {kernel.release}, {kernel.architecture}, {machine.cpu_model()}, {cpus} CPUs")
    say("".join(f"note: {note}\n" for note in notes))
    say("\n\n".join("\n".join(_lines(one)) for one in found))


def _lines(one: Finding) -> Iterator[str]:
    yield f"{one.slug}: {one.verdict}"
    rows = [("because", why) for why in one.why]
    rows += [("costs here", one.cost), ("felt", one.size), ("gone since", one.gone)]
    rows += [("perf c2c", row) for row in one.sampled]
    rows += [("as root", one.ask_root)] if one.ask_root else []
    for name, text in [*rows, ("chapter", one.chapter)]:
        yield f"  {name:<10}  {text}"
