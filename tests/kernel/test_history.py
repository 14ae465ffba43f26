# SPDX-License-Identifier: MIT
"""What releases are counted to have, what the register says of them, and names that moved."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contended import cli, register
from contended.errors import ContendedError, UsageError
from contended.kernel import build, chapter, history, releases, run, source, store, variants
from contended.kernel.history import Count, Watched
from contended.profile.moved import Gone, called, key

DECIDES = Count("opens", "calls_per_op.__legitimize_path", "references", 1.9, 1.1)
TOLD = Count("opens", "calls_per_op.dput", "put back")


def test_each_case_is_counted_and_6_1_is_what_its_records_say() -> None:
    """By the outcomes of the recorded runs: of each count the unpatched kernel's is kept."""
    found = history.watched()
    assert set(found) == set(register.slugs())
    for slug, case in found.items():
        kept, variant = chapter.recorded(slug), history.unpatched(slug).name
        values = [
            next(
                float(str(o.seen))
                for o in kept.outcomes
                if (o.variant, o.run, o.metric) == (variant, count.run, count.metric)
            )
            for count in case.counts
        ]
        assert history.verdict(case.counts, values) == case.seen["6.1"], slug
        assert history.registered(slug, "6.1")[0] == case.seen["6.1"], slug


def test_what_was_seen_of_other_releases_is_what_was_recorded(root: Path) -> None:
    """Each record judged anew, by counts and bounds as they are now; the register agrees."""
    cases, recorded = history.watched(), set()
    for file in sorted((root / "results" / "history").glob("*.json")):
        for one in history.load(file).seen:
            about = cases[one.case]
            assert [c.metric for c in one.counts] == [c.metric for c in about.counts]
            judged = history.verdict(about.counts, [count.value for count in one.counts])
            assert about.seen[one.release] == one.verdict == judged, (one.case, one.release)
            assert history.registered(one.case, one.release)[0] == judged, (one.case, one.release)
            assert not one.splats
            assert one.version.startswith(f"{one.release}.")
            recorded.add((one.case, one.release))
    said = {(slug, name) for slug, case in cases.items() for name in case.seen if name != "6.1"}
    assert said == recorded != set()


def test_a_verdict_needs_all_counts_that_decide() -> None:
    other = replace(DECIDES, present=0.5, absent=0.05)
    both = (DECIDES, TOLD, other)
    assert history.verdict(both, [2.0, 9.0, 0.5]) == "has it"
    assert history.verdict(both, [1.1, 9.0, 0.0]) == "does not"
    assert history.verdict(both, [2.0, 9.0, 0.0]) == "changed"
    assert history.verdict(both, [1.5, 9.0, 0.5]) == "changed"
    # what a release has no function for does not decide, and is no 0
    assert history.verdict(both, [None, 9.0, 0.7]) == "has it"
    with pytest.raises(ContendedError, match="nothing that decides can be counted"):
        history.verdict(both, [None, 9.0, None])


def test_the_register_says_from_when_a_bug_is_gone() -> None:
    assert history.registered("dentry-false-sharing", "6.1") == ("has it", "")
    assert history.registered("dentry-false-sharing", "6.12") == ("does not", "18a5daf0e497")
    assert history.registered("overlay-creds", "6.12") == ("has it", "")
    assert history.registered("overlay-creds", "7.2")[0] == "does not"
    assert history.registered("mount-hash", "5.10")[0] == "does not"
    assert history.registered("umount-grace-period", "7.2") == ("has it", "")
    with pytest.raises(ValueError, match="needs a version"):
        register.Step(what="x", commit="0123456789ab", ends=True)


def test_names_that_moved() -> None:
    assert key("6.12.117") == key("6.12") > key("6.2.1") > key("5.10")
    assert called("dput", "7.2.13") == "dput"
    assert called("pcpu_alloc", "6.9") == "pcpu_alloc"
    assert called("pcpu_alloc", "6.10") == "pcpu_alloc_noprof"
    assert called("try_to_unlazy", "5.10.262") == "unlazy_walk"
    assert called("slab.slab_cache", "5.10.262") == "page.slab_cache"
    assert called("slab.slab_cache", "6.1") == "slab.slab_cache"
    with pytest.raises(Gone, match=r"Linux 6\.14\.1 has no function override_creds: since 6\.14"):
        called("override_creds", "6.14.1")


def test_a_run_counts_what_is_asked_for_by_the_releases_names() -> None:
    case = variants.load("overlay-creds")
    counts = history.watched()["overlay-creds"].counts
    old, new = history.runs_of(case, counts, "6.12"), history.runs_of(case, counts, "7.2")
    assert [(one.name, one.calls) for one in old] == [
        ("access", ("override_creds",)),
        ("lines", ()),
    ]
    assert [one.name for one in new] == ["lines"], "nothing is left to count in the other"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Kernels that are not booted; what was asked for, and `values` of outcomes to be seen."""
    seen: dict[str, Any] = {"values": [], "plans": []}

    def carry_out(plan: run.Plan, **more: Any) -> Any:
        kept = chapter.recorded(plan.case.slug)
        seen["plans"].append(plan)
        outcomes = [
            replace(
                kept.outcomes[0], metric=o.metric, seen=v, reason="" if v is not None else "panic"
            )
            for o, v in zip(plan.case.outcomes, seen["values"], strict=True)
        ]
        return replace(kept, outcomes=outcomes)

    def obtain(_: object, __: object, release: releases.Release) -> source.KernelSource:
        return source.KernelSource(tmp_path, release.tested, "digest", tmp_path)

    monkeypatch.setattr(run, "carry_out", carry_out)

    @contextmanager
    def patched(_: object, patches: Sequence[Path]) -> Iterator[Path]:
        if len(patches) > 2:
            raise store.ToolError("x.patch does not apply: hunk 1 of y; the source is Linux")
        yield tmp_path

    monkeypatch.setattr(source, "obtain", obtain)
    monkeypatch.setattr(source, "patched", patched)
    recorded = chapter.recorded("overlay-creds").kernels[0]
    vmlinux = small(tmp_path)
    kernel = build.Kernel("x", "x", "base", "d", vmlinux, vmlinux, "id", recorded.version, "gcc")
    monkeypatch.setattr(build, "build", lambda *_: kernel)
    return seen


def small(where: Path) -> Path:
    """A program with a struct and a function of the kernel's names."""
    code = "struct cred { long usage; } init_cred; int d_alloc(void) { return 0; }\n"
    (where / "small.c").write_text(code)
    command = ["gcc", "-g", "-shared", "-nostdlib", "-o", "small", "small.c"]
    subprocess.run(command, cwd=where, check=True)
    return where / "small"


def test_a_release_is_set_beside_the_register(
    fake: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fake["values"] = [3.0, 0.9]
    call = ["kernel", "history", "overlay-creds", "--releases"]
    assert cli.main([*call, "6.12", "--json", "-"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["seen"]
    assert (one["verdict"], one["registered"], one["version"]) == ("has it", "has it", "6.12.117")
    assert [count["value"] for count in one["counts"]] == [3.0, 0.9]
    # of a bug that is there, whether its patches apply, and where not
    assert one["patches"]["backing-only"] == ""
    assert one["patches"]["after"] == "x.patch does not apply: hunk 1 of y"
    # 7.2 has no such function: that is said, it is no 0, and the other count decides
    fake["values"] = [0.0]
    assert cli.main([*call, "7.2"]) == 0
    out = capsys.readouterr().out
    assert "has no function override_creds: since 6.14 it is inline" in out
    assert "does not, a51a1d6bcaa3" in out
    fake["values"] = [0.9]
    assert cli.main([*call, "7.2"]) == 1, "a disagreement"
    out = capsys.readouterr().out
    said = "the register says 'does not' and the kernel 'has it'"
    assert f"DISAGREES overlay-creds on Linux 7.2.13: {said}" in out
    assert all(not variant.patches for plan in fake["plans"] for variant, _ in plan.boots)


def test_what_cannot_be_counted_is_no_verdict(
    fake: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fake["values"] = [None, 0.9]
    assert cli.main(["kernel", "history", "overlay-creds", "--releases", "6.12"]) == 1
    assert "overlay-creds on Linux 6.12.117: calls_per_op.override_creds: panic" in (
        capsys.readouterr().err
    )
    # the small program has no struct dentry, and no function that looks up
    for slug, lacks in (("open-creat-unlazy", "struct dentry"), ("dentry-false-sharing", "")):
        assert cli.main(["kernel", "history", slug, "--releases", "6.12"]) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert re.search(rf"Linux 6\.12\.117: small has no .*{lacks}", last)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (["none"], "nothing is counted of a case 'none'"),
        (["overlay-creds", "--releases", "6.13"], "no kernel release '6.13'; it has: 5.10, 6.1"),
    ],
)
def test_calls_that_make_no_sense(
    call: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["kernel", "history", *call]) == 2
    assert says in capsys.readouterr().err


def test_mistakes_in_the_file_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: Path
) -> None:
    text = (root / "patches" / "history.toml").read_text()
    for slug in ("open-creat-unlazy", "will-it-scale"):  # whose patch is in two of its variants
        shutil.copytree(root / "patches" / slug, tmp_path / slug)
    monkeypatch.setattr(variants, "folder", lambda: tmp_path)
    own = re.search(r"\[open-creat-unlazy\].*?(?=\n\[overlay-creds\])", text, re.S)
    assert own
    for old, new, says in (
        ('run = "opens"', 'run = "closes"', "no run 'closes'"),
        ("absent = 1.1\n", "", "has one of present and absent"),
        (re.compile("^(present|absent).*", re.M), "", "no count that decides"),
        ('"6.1" =', '"6.13" =', "no kernel release '6.13'"),
        ('"has it"', '"had it"', "open-creat-unlazy: seen.5.10"),
    ):
        changed = old.sub(new, own[0]) if isinstance(old, re.Pattern) else own[0].replace(old, new)
        (tmp_path / "history.toml").write_text(changed)
        with pytest.raises(UsageError, match=re.escape(says)):
            history.watched()


def test_a_record_comes_back(tmp_path: Path) -> None:
    one = history.ReleaseSeen(
        case="open-creat-unlazy",
        release="6.12",
        version="6.12.117",
        build_id="00",
        counts=[history.Seen(run="opens", metric="m", what="w", value=1.0)],
        splats=[],
        verdict="does not",
        registered="does not",
        commit="e747e15156b7",
    )
    kept = history.History(seen=[one], qemu="7.2")
    kept.save(tmp_path / "h.json")
    assert history.load(tmp_path / "h.json") == kept
    assert Watched((DECIDES,), {"6.12": "does not"}).seen["6.12"] == one.verdict
