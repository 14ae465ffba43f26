# SPDX-License-Identifier: MIT
"""`contended kernel ...`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from contended import packages
from contended.commands import commandline
from contended.errors import ContendedError, UsageError
from contended.kernel import (
    boot,
    build,
    fetch,
    health,
    qemu,
    run,
    source,
    store,
    variants,
)
from contended.kernel.make import Progress
from contended.kernel.variants import Variant
from contended.show.table import columns


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands to the parser of `contended kernel`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    doctor = commands.add_parser("doctor", help="say what the kernel lab finds here and lacks")
    doctor.set_defaults(command=_doctor)

    listing = commands.add_parser("list", help="list the variants, and which kernels are built")
    listing.set_defaults(command=_list)

    unpack = commands.add_parser(
        "source",
        help="get the kernel's source if it is not here, and unpack it, once",
        description=(
            f"Where the package {source.PACKAGE} is not installed, it is fetched into the cache by "
            "apt-get, from Debian's archive, with its signature checked; the system's own apt is "
            "left alone, and root is not needed. Without apt, give a tarball's URL and SHA-256."
        ),
    )
    unpack.add_argument("--url", metavar="URL", help="get this tarball instead of Debian's")
    unpack.add_argument("--sha256", metavar="HEX", help="what the tarball at URL must have")
    unpack.add_argument("--json", action="store_true", help="as JSON on standard output")
    _add_source(unpack)
    unpack.set_defaults(command=_source)

    making = commands.add_parser(
        "build",
        help="build kernels",
        description="Build what is not built yet. It can be interrupted and goes on where it was.",
    )
    making.add_argument(
        "names", nargs="*", metavar="SLUG[/VARIANT]", help="default: all variants of all cases"
    )
    _add_source(making)
    making.set_defaults(command=_build)

    running = commands.add_parser(
        "run",
        help="boot a case's kernels: what is expected, what is seen, and does it hold",
        description="Builds what is missing. The exit status is 0 only if all outcomes held.",
    )
    running.add_argument("slug", metavar="SLUG")
    running.add_argument("--variants", type=commandline.names, metavar="A,B", help="default: all")
    running.add_argument("--vcpus", type=int, default=2, metavar="N", help="default: 2")
    running.add_argument(
        "--repeats", type=int, default=1, metavar="K", help="boots of each; default: 1"
    )
    running.add_argument(
        "--accel",
        choices=("auto", "tcg", "kvm"),
        default="auto",
        help="auto: KVM if a kernel boots with it, otherwise TCG",
    )
    running.add_argument("--json", type=Path, metavar="FILE|-", help="write the result as JSON")
    _add_source(running)
    running.set_defaults(command=_run)

    looking = commands.add_parser("shell", help="a shell in a patched kernel")
    looking.add_argument("name", metavar="SLUG/VARIANT")
    looking.add_argument("--vcpus", type=int, default=2, metavar="N", help="default: 2")
    looking.add_argument("--config", choices=variants.CONFIGS, default="base", help="default: base")
    looking.add_argument("--accel", choices=("auto", "tcg", "kvm"), default="auto")
    _add_source(looking)
    looking.set_defaults(command=_shell)

    cleaning = commands.add_parser("clean", help="remove object files; finished kernels stay")
    cleaning.add_argument(
        "--all", action="store_true", help="remove the finished kernels and the source too"
    )
    cleaning.set_defaults(command=_clean)


def kernels_of(names: Sequence[str]) -> list[tuple[Variant, str]]:
    """The kernels of cases ("SLUG") and variants ("SLUG/VARIANT"), with all configs they need.

    Raises:
        UsageError: there is no such case or variant.
    """
    found: dict[tuple[str, str], tuple[Variant, str]] = {}
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


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        type=Path,
        metavar="TARBALL|DIR",
        help="the kernel's source; default: Debian's package, installed or fetched",
    )


def _doctor(_: argparse.Namespace) -> int:
    checks = health.examine()
    rows = [["ok" if c.ok else ("NO" if c.required else "--"), c.name, c.detail] for c in checks]
    sys.stdout.write(columns(rows) + "\n")
    lacking = sorted({package for check in checks for package in check.packages})
    if lacking:
        advice = packages.advice([p for p in packages.PACKAGES if p.name in lacking])
        first = [f"No package lists: first {advice.refresh}"] if advice.refresh else []
        sys.stdout.write("".join(f"{line}\n" for line in ["", *advice.elsewhere, *first]))
        if advice.install:
            sys.stdout.write(f"To install what is missing: {advice.install}\n")
    return 0 if all(check.ok or not check.required for check in checks) else 1


def _list(_: argparse.Namespace) -> int:
    rows = [["kernel", "configurations (* built)", "summary"]]
    try:
        origin = source.find() if health.source_is_unpacked() else None
    except ContendedError:
        origin = None
    for slug in variants.slugs():
        case = variants.load(slug)
        wanted = kernels_of([slug])
        for variant in case.variants.values():
            configs = [
                config + ("*" if origin and build.find(variant, config, origin) else "")
                for each, config in wanted
                if each.name == variant.name
            ]
            rows.append([str(variant), " ".join(configs), variant.summary])
    sys.stdout.write(columns(rows) + "\n")
    return 0


def _source(args: argparse.Namespace) -> int:
    if args.url is None and args.sha256 is None:
        found = source.obtain(args.source, _say)
    elif args.source is not None:
        raise UsageError("--source names a tarball that is here, --url one to get: give one")
    else:
        found = source.get(_say, args.url, args.sha256)
        if installed := source.installed():
            _say(f"{installed} goes first: use this one with CONTENDED_KERNEL_SOURCE={found.given}")
    if args.json:
        value = {
            "version": found.version,
            "tested": source.TESTED,
            "tree": str(found.tree),
            "given": str(found.given),
            "origin": fetch.origin(found.given),
        }
        sys.stdout.write(json.dumps(value, indent=2) + "\n")
    else:
        sys.stdout.write(f"Linux {found.version} in {found.tree}\n")
    if found.version != source.TESTED:
        _say(f"the patches were tested with {source.TESTED}; whether they apply, the build shows")
    return 0


def _build(args: argparse.Namespace) -> int:
    wanted = kernels_of(args.names)
    origin = source.obtain(args.source, _say)
    built = 0
    with commandline.lines() as progress:
        for number, (variant, config) in enumerate(wanted, 1):
            if build.find(variant, config, origin) is not None:
                continue
            name = f"[{number}/{len(wanted)}] {variant} ({config})"
            progress(name, 0, 0)
            build.build(variant, config, origin, _named(name, progress))
            built += 1
    sys.stdout.write(f"{built} built, {len(wanted) - built} were there: {len(wanted)} kernels\n")
    return 0


def _run(args: argparse.Namespace) -> int:
    run.check(args.vcpus, args.repeats)
    run.plan(args.slug, args.variants)  # a mistake in the call is said before anything is done
    if args.json is not None:
        commandline.check_writable(args.json)
    with commandline.lines() as progress:
        done = run.run(
            args.slug,
            variants=args.variants,
            vcpus=args.vcpus,
            repeats=args.repeats,
            accel=args.accel,
            source=args.source,
            progress=progress,
        )
    if args.json is not None:
        done.save(args.json)
    if args.json != commandline.STDOUT:
        sys.stdout.write(str(done) + "\n")
    for miss in done.misses:
        sys.stderr.write(f"contended: {args.slug}, {miss}\n")
    if not done.outcomes:
        sys.stderr.write(f"contended: {args.slug}: {done.first_miss}\n")
    return 0 if done.held else 1


def _shell(args: argparse.Namespace) -> int:
    run.check(args.vcpus, 1)
    variant = variants.pick(args.name)
    boot.check_terminal()
    qemu.find()
    origin = source.find(args.source, _say)
    with commandline.lines() as progress:
        kernel = build.build(variant, args.config, origin, progress)
    return boot.interact(
        qemu.Boot(
            kernel=kernel,
            vcpus=1 if args.config == "up" else args.vcpus,
            cmdline=variant.cmdline,
            accel=args.accel,
        ),
        str(variant),
    )


def _clean(args: argparse.Namespace) -> int:
    doomed = store.cache() if args.all else store.cache() / "build"
    freed = 0
    if doomed.exists():
        freed = _size(doomed)
        try:
            shutil.rmtree(doomed)
        except OSError as error:
            raise ContendedError(f"cannot remove {error.filename}: {error.strerror}") from error
    left = "nothing of the kernel lab is left" if args.all else "kernels and source are kept"
    sys.stdout.write(f"freed {freed / 1e9:.1f} GB; {left}\n")
    return 0


def _size(folder: Path) -> int:
    """What a folder takes on the disk, bytes; a file with several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for file in folder.rglob("*"):
        try:
            stat = file.lstat()
        except OSError:
            continue
        seen[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
    return sum(seen.values())


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _named(name: str, progress: Progress) -> Progress:
    return lambda _, done, total: progress(name, done, total)
