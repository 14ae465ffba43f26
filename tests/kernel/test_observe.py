# SPDX-License-Identifier: MIT
"""The field guide's commands: what they said on kernels with and without the bug, judged anew."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import labtools
import pytest
from labtools import report as fake_report
from support import make_home, one_line

from contended import cli, register
from contended.cases import study
from contended.errors import ContendedError, UsageError
from contended.kernel import boot, build, guest, observe, qemu, readings, source, variants
from contended.kernel.observe import Observations, Side, Sign
from contended.kernel.source import KernelSource

pytest_plugins = ("labfixtures",)
SIDES = ("sick", "healthy")
RECORDS = Path("results", "host", "commands")
COUNTS = """\
Attaching 3 probes...

@[
    queued_spin_lock_slowpath+1
    lockref_get_not_dead+51
]: 12
@[__legitimize_path]: 4000
@[try_to_unlazy]: 2000

@us[umount]:
[2, 4)                 1 |@@@                 |
[2K, 4K)               3 |@@@@@@@@@@@@@@@@@@@@|
@us[kworker/1:1]:
[0]                    9 |@@@                 |
[1M, 2M)               9 |@@@                 |

"""
STRUCT = """\
struct dentry {
	unsigned int               d_flags;              /*     0     4 */

	/* XXX 4 bytes hole, try to pack */

	unsigned char              d_iname[32];          /*    56    32 */
	/* --- cacheline 1 boundary (64 bytes) was 24 bytes ago --- */
	struct lockref             d_lockref __attribute__((__aligned__(8))); /*    88     8 */
	struct list_head           d_child;              /*   128    16 */
};
"""
REPORT = """\
# Overhead  Symbol
    61.50%  [k] pcpu_alloc_area
     2.25%  [k] pcpu_alloc
     0.50%  [k] pcpu_alloc_area.isra.0
"""


@pytest.fixture(scope="module")
def record(root: Path) -> Observations:
    """What was recorded, a file for each case, as if it were of one run."""
    files = [observe.load(file) for file in sorted((root / RECORDS).glob("*.json"))]
    return replace(files[0], seen=[one for file in files for one in file.seen])


# --- the record ----------------------------------------------------------------------------------


def test_each_command_that_was_run_tells_the_two_apart(record: Observations) -> None:
    """As the page has them now; a kernel is what its sign says."""
    every = observe.watched()
    for one in record.seen:
        pair = every[one.slug][one.pair]
        assert one.variant == getattr(pair, one.side)
        page = observe.commands(one.slug)
        for number, said in one.said.items():
            assert said.command == page[number - 1], "the page has changed: observe again"
            assert said.status == 0, said.text
        for sign, value, holds in observe.judged(pair, one):
            assert holds, (one.slug, one.side, sign.metric, value)
            # and not for want of something to see
            assert not sign.is_("healthy" if one.side == "sick" else "sick", value)
    assert record.held
    assert {one.slug for one in record.seen} == set(register.slugs())


@pytest.mark.parametrize("slug", register.slugs())
def test_a_section_says_if_its_commands_were_not_run(
    slug: str, record: Observations, root: Path
) -> None:
    """On all kernels that they are to tell apart; each command has a sign."""
    pairs = observe.watched()[slug]
    run = {sign.command for pair in pairs for sign in pair.signs}
    assert run == set(range(1, len(observe.commands(slug)) + 1))
    wanted = {(i, s) for i, p in enumerate(pairs) for s in SIDES if getattr(p, s)}
    seen = {(one.pair, one.side) for one in record.seen if one.slug == slug}
    text = (root / observe.PAGE).read_text().partition(f"(seen-{slug})=")[2]
    assert ("**not run here** on both" in text.partition("(seen-")[0]) == (seen != wanted)


def test_only_a_bug_that_no_kernel_here_can_have_lacks_a_sick_one(root: Path) -> None:
    alone = {s for s, pairs in observe.watched().items() if not all(p.sick for p in pairs)}
    assert alone == {"percpu-area-map"}
    assert "before" not in variants.load("percpu-area-map").variants
    assert "seen on a healthy kernel only" in (root / observe.PAGE).read_text().replace("\n", " ")


def test_the_allocator_was_at_work_where_it_was_found_well(record: Observations) -> None:
    (one,) = (each for each in record.seen if each.slug == "percpu-area-map")
    assert readings.read("share(pcpu_alloc)", one.said[1].text) > 0.5


def test_the_kernels_of_a_pair_are_two(record: Observations) -> None:
    """By what they are or what they were told, so that a difference is not the weather's."""
    for one in record.seen:
        for other in record.seen:
            if (one.slug, one.pair) == (other.slug, other.pair) and one.side != other.side:
                assert (one.build_id, one.cmdline) != (other.build_id, other.cmdline)


# --- the page ------------------------------------------------------------------------------------


def test_what_is_not_run_says_so(root: Path) -> None:
    """A command inside a sentence is one of ours, or marked."""
    page = (root / observe.PAGE).read_text().partition("(by-function)=")[2]
    plain = re.sub(r"^```sh\n.*?^```$", "", page, flags=re.M | re.S)
    words = r"`(?:sudo |perf |bpftrace |pahole |strace |cat |grep |time |dmesg)[^`]*`"
    told = [" ".join(found.split()) for found in re.findall(rf"{words}[^`]{{0,25}}", plain)]
    assert told
    for each in told:
        assert "**not run here**" in each, each


@pytest.mark.parametrize("slug", register.slugs())
def test_contended_host_names_the_pages_command(slug: str, root: Path) -> None:
    host = study(slug).host
    assert host
    page = " ".join((root / observe.PAGE).read_text().split())
    assert host.command in page


# --- how words are read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "said", "value"),
    [
        ("count(lockref_get_not_dead)", COUNTS, 12),
        ("count(dput)", COUNTS, 0),
        ("ratio(__legitimize_path, try_to_unlazy)", COUNTS, 2),
        ("count(umount)", COUNTS, 4),
        ("median(umount)", COUNTS, 2048),
        ("median(kworker)", COUNTS, 1 << 20),
        ("spread(umount)", COUNTS, 1024),
        ("spread(kworker)", COUNTS, 1 << 20),
        ("together(d_iname, d_lockref)", STRUCT, 1),
        ("together(d_flags, d_iname)", STRUCT, 1),
        ("together(d_child, d_lockref)", STRUCT, 0),
        ("share(pcpu_alloc_area)", REPORT, 62),
        ("share(pcpu_alloc)", REPORT, 2.25),
        ("share(nothing)", REPORT, 0),
        ("number(entries:)", "hash table entries: 256 (order", 256),
        ("number()", "1\n", 1),
    ],
)
def test_a_metric(metric: str, said: str, value: float) -> None:
    assert readings.read(metric, said) == value


@pytest.mark.parametrize(
    ("metric", "said", "wrong"),
    [
        ("ratio(__legitimize_path, nothing)", COUNTS, "cannot be read; the last that was said"),
        ("median(nothing)", COUNTS, "cannot be read"),
        ("spread(nothing)", COUNTS, "cannot be read"),
        ("number()", "cat: no such file", "cannot be read; .* cat: no such file"),
        ("share(x)", "", "the last that was said: nothing"),
        ("together(d_iname, d_gone)", STRUCT, "cannot be read"),
        ("mean(x)", COUNTS, "no metric 'mean"),
        ("ratio(x)", COUNTS, "not the words that ratio takes"),
    ],
)
def test_what_cannot_be_read_is_no_zero(metric: str, said: str, wrong: str) -> None:
    with pytest.raises(ContendedError, match=wrong):
        readings.read(metric, said)


def test_a_sign_may_be_a_small_number() -> None:
    more, less = Sign(1, "m", "w", sick=2, healthy=1), Sign(1, "m", "w", sick=256, healthy=2048)
    assert [more.is_("sick", v) for v in (1, 1.5, 2, 3)] == [False, False, True, True]
    assert [more.is_("healthy", v) for v in (0, 1, 1.5, 2)] == [True, True, False, False]
    assert [less.is_("sick", v) for v in (200, 256, 512)] == [True, True, False]
    assert [less.is_("healthy", v) for v in (512, 2048, 4096)] == [False, True, True]


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("command = 1", "command = 9", "the page has no command 9"),
        ('sick = "before"', 'sick = "worse"', "has no variant 'worse'"),
        ('healthy = "spin"', "", "a pair of one has to say why"),
        ("[[lockref-degrade]]", "[[lockref-degrad]]", "lockref-degrad"),
    ],
)
def test_a_mistake_in_the_file(
    old: str, new: str, wrong: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_home(tmp_path)
    for name in ("patches", "docs"):
        shutil.copytree(root / name, tmp_path / name)
    file = tmp_path / "patches" / "observe.toml"
    file.write_text(file.read_text().replace(old, new, 1))
    monkeypatch.setenv("CONTENDED_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=wrong) as error:
        observe.watched()
    assert "\n" not in str(error.value)


def test_a_missing_program_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["kernel", "observe", "mount-hash"]) != 0
    said = one_line(capsys.readouterr().err)
    assert said.endswith("need: apt-get install bpftrace linux-perf dwarves")


def test_a_load_that_fails_ends_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is no kernel that looks healthy, nor is a command that never ended."""
    kernel = build.Kernel("s", "v", "observe", "0", Path(), Path(), "", "", "")
    for console, wrong in (
        ("no room\n=== the load failed\n=== begin\n1\n=== end 0\n", "the load fails: no room"),
        ("=== begin\n", "s/v: 0 of 1 commands came to an end"),
    ):
        gave = fake_report(console=console)
        monkeypatch.setattr(boot, "boot", lambda asked, gave=gave: gave)
        monkeypatch.setattr(guest, "tools_initrd", lambda *_: nullcontext(Path()))
        with pytest.raises(ContendedError, match=wrong):
            observe.look(kernel, ["true"], [])


# --- live ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def origin() -> KernelSource:
    """What is needed to build a kernel, and to look at it."""
    if not labtools.has_qemu():
        pytest.skip(qemu.QEMU_MISSING)
    try:
        observe.tools()
        return source.find()
    except ContendedError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    ("slug", "sides"), [("mount-hash", ("sick", "healthy")), ("open-creat-unlazy", ("sick",))]
)
def test_commands_tell_what_a_kernel_is(
    slug: str, sides: tuple[Side, ...], origin: KernelSource, record: Observations
) -> None:
    """One kernel, built for it, under three loads; the others are in the record."""
    seen = observe.observe([slug], sides)
    assert len(seen.seen) == len(sides)
    assert seen.held, str(seen)
    told = {(one.slug, one.side): one for one in record.seen}
    for one in seen.seen:
        kept = told[one.slug, one.side].said
        assert {n: said.command for n, said in one.said.items()} == {
            n: said.command for n, said in kept.items()
        }
