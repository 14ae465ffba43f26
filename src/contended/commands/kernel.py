# SPDX-License-Identifier: MIT
"""`contended kernel ...`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contended import packages
from contended.cases import beyond
from contended.commands import commandline
from contended.commands.commandline import complain, mention, options, say, setting
from contended.errors import ContendedError, UsageError
from contended.kernel import (
    boot,
    build,
    clock,
    fetch,
    fuzz,
    health,
    history,
    inside,
    ktap,
    observe,
    prices,
    qemu,
    releases,
    run,
    source,
    steps,
    store,
    suite,
    times,
    variants,
    waits,
)
from contended.kernel.releases import BOOK
from contended.show import canvas
from contended.show.table import columns
from contended.simulate import machines


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands to the parser of `contended kernel`."""
    command = commandline.subcommands(parser, "COMMAND")
    tarball = "the kernel's source; default: Debian's package, installed or fetched"
    accels = ("auto", "tcg", "kvm")
    command("doctor", _doctor, "say what the kernel lab finds here and lacks")
    command("list", _list, "list the variants, and which kernels are built")
    about = f"""Where the package {BOOK.package} is not installed, it is fetched into the cache by
        apt-get, from Debian's archive, with its signature checked; the system's own apt is left
        alone, and root is not needed. Without apt, give a tarball's URL and SHA-256."""
    known = f"one of {', '.join(releases.names())}; default: {BOOK.name}, which has the patches"
    says = "get the kernel's source if it is not here, and unpack it, once"
    add = command("source", _source, says, about)
    add("--release", metavar="X.Y", help=known)
    add("--url", metavar="URL", help="get this tarball instead of Debian's")
    add("--sha256", metavar="HEX", help="what the tarball at URL must have")
    add("--json", action="store_true", help="as JSON on standard output")
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    about = "Build what is not built yet. It can be interrupted and goes on where it was."
    add = command("build", _build, "build kernels", about)
    add("names", nargs="*", metavar="SLUG[/VARIANT]", help="default: all variants of all cases")
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    about = "Builds what is missing. The exit status is 0 only if all outcomes held."
    says = "boot a case's kernels: what is expected, what is seen, and does it hold"
    add = command("run", _run, says, about)
    add("slug", metavar="SLUG")
    add("--variants", type=commandline.names, metavar="A,B", help="default: all")
    add("--vcpus", type=int, default=2, metavar="N", help="default: 2")
    add("--repeats", type=int, default=1, metavar="K", help="boots of each; default: 1")
    auto = "auto: KVM if a kernel boots with it, otherwise TCG"
    add("--accel", choices=accels, default="auto", help=auto)
    add("--json", type=Path, metavar="FILE|-", help="write the result as JSON")
    add("--ktap", action="store_true", help="print the outcomes as KTAP, as kernel tests do")
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    about = """Boot a case's kernels in QEMU with a clock for each CPU: instructions take a time,
        and so does each cache line that comes from another CPU, by a machine's distances. The
        result does not depend on this machine, however few CPUs it has."""
    add = command("time", _time, "how fast kernels are on a larger machine, in virtual time", about)
    add("slug", metavar="SLUG")
    known = f"one of {', '.join(machines.names())}; default: {clock.MACHINE}"
    add("--machine", default=clock.MACHINE, metavar="NAME", help=known)
    some = ",".join(map(str, clock.CPUS))
    add("--cpus", type=commandline.counts, default=clock.CPUS, metavar=some, help="CPUs in use")
    add("--variants", type=commandline.names, metavar="A,B", help="default: before,after")
    those = f"of {', '.join(releases.names())}; without --variants unpatched"
    add("--releases", type=commandline.names, metavar="X.Y,Z.W", help=those)
    add("--run", metavar="NAME", help="one of the case's runs in variants.toml")
    of = "of the run's workload, e.g. ops=100; may be repeated"
    add("--set", type=setting, action="append", default=[], metavar="PARAMETER=VALUE", help=of)
    ahead = f"nanoseconds that a CPU may be ahead, boots for each; default: {clock.WINDOW_NS:g}"
    ns = (clock.WINDOW_NS,)
    add(
        "--window", dest="windows", type=commandline.counts, default=ns, metavar="NS,NS", help=ahead
    )
    add("--seeds", type=int, default=1, metavar="K", help="boots of each; default: 1")
    drawn = "each seed with costs drawn from their ranges, as the scoreboard's predictions are"
    add("--drawn", action="store_true", help=drawn)
    one = "what an instruction takes, so that one process is as fast as a published one"
    add("--instruction", type=commandline.between, metavar="NS,NS", help=one)
    early = "how long before its instruction a load may begin; default: 0, or drawn"
    add("--ahead", type=float, metavar="NS", help=early)
    alone = "boots with one cost changed, and all else as it is, too; may be repeated"
    add("--cost", type=commandline.costs, action="extend", default=[], metavar="N=V,V", help=alone)
    every = "so with each cost that counts: half, and twice as much; and each choice's other side"
    add("--each-cost", action="store_true", help=every)
    who = "who is next for a line, as in the simulators; default: chance, or drawn with --drawn"
    add("--policy", choices=prices.POLICIES, default="chance", help=who)
    whose = "guest: for what sleeps, and for more processes than CPUs; default: region"
    add("--clock", dest="kept", choices=times.CLOCKS, default="region", help=whose)
    add("--json", type=Path, metavar="FILE|-", help="write the results as JSON")
    curve = "draw them, with the simulated and the published ones: .svg, .png or .pdf"
    add("--plot", type=Path, metavar="FILE", help=curve)
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    about = """Boot a case's kernels so that ticks, sleep and grace periods are in the guest's own
        time: one configuration after another, as its runs with icount name them. With one CPU
        QEMU counts instructions for time, with several the plugin keeps the time of a machine's.
        Builds what is missing."""
    add = command("waits", _waits, "how long a system call waits, by the kernel's config", about)
    add("slug", metavar="SLUG")
    add("--variants", type=commandline.names, metavar="A,B", help="default: before,after")
    add("--runs", type=commandline.names, metavar="NAME,NAME", help="default: all with icount")
    add("--boots", type=int, default=1, metavar="K", help="boots of each; default: 1")
    vcpus = "of the guest; default: 1"
    add("--cpus", type=commandline.counts, default=(1,), metavar="N,N", help=vcpus)
    add("--machine", default=clock.MACHINE, metavar="NAME", help=known)
    add("--json", type=Path, metavar="FILE|-", help="write the waits as JSON")
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    about = """Boot a case's kernels under the profiler, and show one operation step by step: its
        accesses to lines that CPUs take from each other, in their order."""
    add = command("steps", _steps, "one operation, access by access", about)
    add("slug", metavar="SLUG")
    add("--variants", type=commandline.names, metavar="A,B", help="default: before,after")
    add("--run", metavar="NAME", help="one of the case's runs in variants.toml")
    add("--set", type=setting, action="append", default=[], metavar="PARAMETER=VALUE", help=of)
    add("--json", type=Path, metavar="FILE|-", help="write the steps as JSON")
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    about = """Count on the unpatched kernels of several releases what each bug makes them do, and
        set it beside what the register says of the fix. Source and kernels of releases that are
        named are got and built if they are not there."""
    add = command("history", _history, "which releases have which of the bugs", about)
    add("slugs", nargs="*", metavar="SLUG", help="default: all nine")
    known = f"of {', '.join(releases.names())}; default: those whose kernel is built"
    add("--releases", type=commandline.names, metavar="X.Y,Z.W", help=known)
    add("--json", type=Path, metavar="FILE|-", help="write the counts as JSON")
    about = """Run the commands of docs/host.md, "Seen on a server", on kernels with the bug and
        without it, under a load that shows it. The exit status is 0 only if each command told its
        kernel for what it is. Needs bpftrace, perf and pahole."""
    add = command("observe", _observe, "do the field guide's commands tell kernels apart?", about)
    add("slugs", nargs="*", metavar="SLUG", help="default: all nine")
    add("--json", type=Path, metavar="FILE|-", help="write what they said as JSON")
    about = """Boot kernels, and have `contended host` say as root what they are: it has to name the
        bug where the lab put it, or left it."""
    add = command("host", _host, "what contended host says on kernels of the lab", about)
    add("names", nargs="+", metavar="SLUG/VARIANT")
    add("--json", type=Path, metavar="FILE|-", help="write the verdicts as JSON")
    about = """Run the smoke set, and random file-system operations from a seed, on several kernels.
        They must give the same as the first; where one does not, the operations are cut down to
        the few that show it. The exit status is 0 only if there is no finding."""
    add = command("suite", _suite, "compare kernels by tests that nobody wrote for them", about)
    known = f"the first is the reference; default: {','.join(suite.DEFAULT)}"
    add("--variants", type=commandline.names, metavar="SLUG/A,FILE.patch", help=known)
    known = f"of {', '.join(suite.CONFIGS)}; default: base"
    add("--config", type=commandline.names, default=["base"], metavar="A,B", help=known)
    add("--seed", type=int, default=1, metavar="N", help="what the operations are drawn from")
    add("--ops", type=int, default=fuzz.OPS, metavar="N", help=f"default: {fuzz.OPS}")
    add("--repeats", type=int, default=1, metavar="K", help="boots of the smoke set; default: 1")
    add("--stress", action="store_true", help="with stress-ng's file-system stressors, for minutes")
    add("--json", type=Path, metavar="FILE|-", help="write the result as JSON")
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    add = command("shell", _shell, "a shell in a patched kernel")
    add("name", metavar="SLUG/VARIANT")
    add("--vcpus", type=int, default=2, metavar="N", help="default: 2")
    add("--config", choices=variants.CONFIGS, default="base", help="default: base")
    add("--accel", choices=accels, default="auto")
    add("--source", type=Path, metavar="TARBALL|DIR", help=tarball)
    add = command("clean", _clean, "remove object files; finished kernels stay")
    add("--all", action="store_true", help="remove the finished kernels and the source too")


def kernels_of(names: Sequence[str]) -> list[tuple[variants.Variant, str]]:
    """The kernels of cases ("SLUG") and variants ("SLUG/VARIANT"), with all configs they need."""
    found: dict[tuple[str, str], tuple[variants.Variant, str]] = {}
    for name in names or variants.slugs():
        slug, slash, one = name.partition("/")
        if slash:
            variants.pick(name)
        for variant, config in run.plan(slug, [one] if slash else None).kernels:
            # What another variant is compared with is a kernel of that variant.
            if not slash or variant.name == one:
                found[str(variant), config] = (variant, config)
    # Configuration by configuration: what is set up for one serves all its variants.
    return sorted(found.values(), key=lambda item: variants.CONFIGS.index(item[1]))


def _doctor(_: argparse.Namespace) -> int:
    checks = health.examine()
    rows = [["ok" if c.ok else ("NO" if c.required else "--"), c.name, c.detail] for c in checks]
    say(columns(rows))
    lacking = sorted({package for check in checks for package in check.packages})
    if lacking:
        advice = packages.advice([p for p in packages.PACKAGES if p.name in lacking])
        first = [f"No package lists: first {advice.refresh}"] if advice.refresh else []
        say("\n".join(["", *advice.elsewhere, *first]))
        if advice.install:
            say(f"To install what is missing: {advice.install}")
    return 0 if all(check.ok or not check.required for check in checks) else 1


def _list(_: argparse.Namespace) -> None:
    rows = [["kernel", "configurations (* built)", "summary"]]
    origin = None
    with suppress(ContendedError):
        origin = source.find() if health.source_is_unpacked() else None
    configs: dict[str, list[str]] = {}
    for variant, config in kernels_of([]):
        built = "*" if origin and build.find(variant, config, origin) else ""
        configs.setdefault(str(variant), []).append(config + built)
    for slug in variants.slugs():
        for variant in variants.load(slug).variants.values():
            rows.append([str(variant), " ".join(configs[str(variant)]), variant.summary])
    say(columns(rows))


def _source(args: argparse.Namespace) -> None:
    release = releases.get(args.release) if args.release else None
    if args.url is None and args.sha256 is None:
        found = source.obtain(args.source, mention, release)
    elif args.source is not None:
        raise UsageError("--source names a tarball that is here, --url one to get: give one")
    else:
        found = source.get(mention, args.url, args.sha256, release)
        if installed := source.installed(release or BOOK):
            setting = f"CONTENDED_KERNEL_SOURCE={found.given}"
            mention(f"{installed} goes first: use this one with {setting}")
    tested = (release or BOOK).tested
    if args.json:
        paths = {"tree": str(found.tree), "given": str(found.given)}
        told = {"version": found.version, "tested": tested, **paths}
        say(json.dumps({**told, "origin": fetch.origin(found.given)}, indent=2))
    else:
        say(f"Linux {found.version} in {found.tree}")
    if found.version != tested:
        what = "the outcomes" if release and release != BOOK else "the patches"
        mention(f"{what} were tested with {tested}; whether they apply, the build shows")


def _build(args: argparse.Namespace) -> None:
    wanted = kernels_of(args.names)
    origin = source.obtain(args.source, mention)
    built = 0
    with commandline.lines() as progress:
        for number, (variant, config) in enumerate(wanted, 1):
            if build.find(variant, config, origin) is None:
                name = f"[{number}/{len(wanted)}] {variant} ({config})"
                progress(name, 0, 0)
                build.build(variant, config, origin, lambda _, *n, name=name: progress(name, *n))
                built += 1
    say(f"{built} built, {len(wanted) - built} were there: {len(wanted)} kernels")


def _run(args: argparse.Namespace) -> int:
    run.check(args.vcpus, args.repeats)
    run.plan(args.slug, args.variants)  # a mistake in the call is said before anything is done
    if args.ktap and args.json == commandline.STDOUT:
        raise UsageError("--ktap and --json - both are for standard output: give --json a file")
    commandline.check_writable(args.json)
    chosen = options(args, "variants", "vcpus", "repeats", "accel", "source")
    with commandline.lines() as progress:
        done = run.run(args.slug, progress=progress, **chosen)
    every = variants.load(args.slug).variants
    commandline.deliver(
        args.json, done.to_json, lambda: ktap.report(done, every) if args.ktap else done
    )
    for miss in done.misses:
        complain(f"{args.slug}, {miss}")
    if not done.outcomes:
        complain(f"{args.slug}: {done.first_miss}")
    return 0 if done.held else 1


def _time(args: argparse.Namespace) -> None:
    commandline.check_writable(args.json)
    commandline.check_writable(args.plot)
    if args.plot is not None:
        canvas.format_of(args.plot)
        if len(args.windows) > 1:
            raise UsageError("--plot shows one window: give one to --window")
    names = "machine", "cpus", "run", "seeds", "drawn", "instruction", "ahead", "kept", "policy"
    chosen = options(args, *names, "each_cost", "windows")
    asked = {"wanted": args.variants, "names": args.releases}
    asked |= {"source_path": args.source, "costs": args.cost}
    with commandline.lines() as progress:
        found = clock.time(args.slug, changed=dict(args.set), progress=progress, **chosen, **asked)
    commandline.deliver(args.json, found.to_json, lambda: found)
    if args.plot is not None:
        title = f"{args.slug}, {found.run}"
        beyond.in_virtual_time(args.slug, title, found.regions).save(args.plot)


def _waits(args: argparse.Namespace) -> None:
    commandline.check_writable(args.json)
    chosen = options(args, "runs", "boots", "cpus", "machine")
    with commandline.lines() as progress:
        found = waits.waits(
            args.slug,
            wanted=args.variants,
            source_path=args.source,
            progress=progress,
            **chosen,
        )
    commandline.deliver(args.json, found.to_json, lambda: found)


def _steps(args: argparse.Namespace) -> None:
    commandline.check_writable(args.json)
    with commandline.lines() as progress:
        found = steps.steps(
            args.slug,
            wanted=args.variants,
            run=args.run,
            changed=dict(args.set),
            source_path=args.source,
            progress=progress,
        )
    commandline.deliver(args.json, found.to_json, lambda: found)


def _history(args: argparse.Namespace) -> int:
    commandline.check_writable(args.json)
    with commandline.lines() as progress:
        found = history.history(args.slugs, args.releases, progress)
    commandline.deliver(args.json, found.to_json, lambda: found)
    missing = set(releases.names()) - {one.release for one in found.seen}
    if args.releases is None and missing:
        some = ",".join(sorted(missing, key=releases.names().index))
        mention(f"not built here: {some}; contended kernel history --releases {some} builds them")
    return 0 if all(one.agrees for one in found.seen) else 1


def _observe(args: argparse.Namespace) -> int:
    commandline.check_writable(args.json)
    with commandline.lines() as progress:
        found = observe.observe(args.slugs, progress=progress)
    commandline.deliver(args.json, found.to_json, lambda: found)
    return 0 if found.held else 1


def _host(args: argparse.Namespace) -> None:
    commandline.check_writable(args.json)
    with commandline.lines() as progress:
        found = inside.hosts(args.names, progress)
    commandline.deliver(args.json, found.to_json, lambda: found)


def _suite(args: argparse.Namespace) -> int:
    names = args.variants or list(suite.DEFAULT)
    suite.check(names, args.config, args.seed, args.ops, args.repeats)
    commandline.check_writable(args.json)
    chosen = options(args, "seed", "ops", "repeats", "stress")
    with commandline.lines() as progress:
        found = suite.suite(names, args.config, given=args.source, progress=progress, **chosen)
    commandline.deliver(args.json, found.to_json, lambda: found)
    return 1 if found.findings else 0


def _shell(args: argparse.Namespace) -> int:
    run.check(args.vcpus, 1)
    variant = variants.pick(args.name)
    boot.check_terminal()
    qemu.find()
    origin = source.find(args.source, mention)
    with commandline.lines() as progress:
        kernel = build.build(variant, args.config, origin, progress)
    vcpus = 1 if args.config == "up" else args.vcpus
    booted = qemu.Boot(kernel=kernel, vcpus=vcpus, cmdline=variant.cmdline, accel=args.accel)
    return boot.interact(booted, str(variant))


def _clean(args: argparse.Namespace) -> None:
    doomed = store.cache() if args.all else store.cache() / "build"
    sizes = {}
    for file in doomed.rglob("*"):
        with suppress(OSError):
            stat = file.lstat()
            # a file with several names counts once
            sizes[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
    try:
        if doomed.exists():
            shutil.rmtree(doomed)
    except OSError as error:
        raise ContendedError(f"cannot remove {error.filename}: {error.strerror}") from error
    left = "nothing of the kernel lab is left" if args.all else "kernels and source are kept"
    say(f"freed {sum(sizes.values()) / 1e9:.1f} GB; {left}")
