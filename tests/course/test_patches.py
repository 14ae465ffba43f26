# SPDX-License-Identifier: MIT
"""A patch is read strictly, compiled in a sandbox, and judged step by step."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from contended.course import lab, patches
from contended.course.lab import ALLOWED
from contended.course.patches import PatchRefused
from contended.errors import ContendedError
from contended.kernel import build, outcomes, qemu, record, source, store, variants
from contended.kernel.source import KernelSource

pytest_plugins = ("coursefixtures",)

PATCH = """\
From: A Student <student@example.org>
Subject: [PATCH] fs: say one

--- a/mm/slab.c
is not a header here, and @@ -1 +1 @@ no hunk.
---
 fs/a.c | 2 +-

diff --git a/fs/a.c b/fs/a.c
index 1234567..89abcde 100644
--- a/fs/a.c	2026-01-01
+++ b/fs/a.c	2026-01-02
@@ -1,3 +1,3 @@ int f(void)
 one

-two
+2
@@ -9 +9,2 @@
 nine
+ten
\\ No newline at end of file
diff --git a/include/linux/b.h b/include/linux/b.h
new file mode 100644
--- /dev/null
+++ b/include/linux/b.h
@@ -0,0 +1 @@
+b
--
2.39.5
"""


def test_a_patch_is_written_anew_without_anything_else() -> None:
    changes = patches.parse(PATCH.encode(), ALLOWED)
    assert [(c.file, not c.old, len(c.hunks)) for c in changes] == [
        ("fs/a.c", False, 2),
        ("include/linux/b.h", True, 1),
    ]
    text = patches.text(changes)
    assert "Student" not in text
    assert "slab" not in text
    assert "2.39.5" not in text
    assert patches.parse(text.encode(), ALLOWED) == changes
    assert "\\ No newline at end of file" in text


def one(old: str, new: str, body: str = "@@ -1 +1 @@\n-a\n+b\n") -> str:
    return f"--- {old}\n+++ {new}\n{body}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no change"),
        ("Put your patch here.\n", "holds no change"),
        (PATCH.replace("\n", "\r\n"), "CRLF"),
        (one("a/fs/../mm/a.c", "b/fs/../mm/a.c"), "is no name like"),
        (one("/fs/a.c", "/fs/a.c"), "is no name like"),
        (one("a//etc/a.c", "b//etc/a.c"), "is no name like"),
        (one("fs", "fs"), "is no name like"),
        (one('"a/fs/\\056\\056/a.c"', '"b/fs/a.c"'), "is no name like"),
        (one("a/fs/a b.c", "b/fs/a b.c"), "no name of the kernel's tree"),
        (one("a/fs/Makefile", "b/fs/Makefile"), "may only change"),
        (one("a/fs/Kconfig", "b/fs/Kconfig"), "may only change"),
        (one("a/fs/a.S", "b/fs/a.S"), "may only change"),
        (one("a/scripts/mod/modpost.c", "b/scripts/mod/modpost.c"), "may only change"),
        (one("a/lib/gen_crc32table.c", "b/lib/gen_crc32table.c"), "program that builds"),
        (one("a/include/linux/license.h", "b/include/linux/license.h"), "program that builds"),
        (one("a/fs/a.c", "b/fs/b.c"), "may not rename"),
        (one("a/fs/a.c", "/dev/null"), "may not remove"),
        (one("a/fs/a.c", "b/fs/a.c", "@@ -1,9 +1,9 @@\n-a\n+b\n"), "cut short|no line of a hunk"),
        (one("a/fs/a.c", "b/fs/a.c", "@@ -1 +1 @@\n-a\nodd\n"), "no line of a hunk"),
        (one("a/fs/a.c", "b/fs/a.c", "@@ -1 +1 @@\n-a\n-b\n"), "other lines than it says"),
        (one("a/fs/a.c", "b/fs/a.c", "nothing\n"), "no hunk"),
        (one("a/fs/a.c", "b/fs/a.c") * 2, "twice"),
        (one("a/fs/a.c", "b/fs/a.c", "@@ -1 +1 @@\n-a\n+\tconsole_silent();\n"), "not use console"),
        (
            one("a/fs/a.c", "b/fs/a.c", "@@ -1 +1 @@\n-a\n+if (strstr(saved_command_line, p))\n"),
            "may not use saved_command_line: a fix does the same for everybody",
        ),
        ("@@ -1 +1 @@\n-a\n+b\n", "starts a hunk of no file"),
        ("*** a/fs/a.c\n--- b/fs/a.c\n***************\n*** 1 ****\n", "holds no change"),
        ("GIT binary patch\nliteral 3\n", "lines of text files"),
        ("rename from fs/a.c\nrename to fs/b.c\n", "lines of text files"),
        ("new file mode 120000\n" + one("/dev/null", "b/fs/a.c", "@@ -0,0 +1 @@\n+/etc\n"), "text"),
    ],
)
def test_what_is_not_a_change_of_allowed_files_is_refused(text: str, why: str) -> None:
    with pytest.raises(PatchRefused, match=why):
        patches.parse(text.encode(), ALLOWED)


def test_another_encoding_is_told() -> None:
    with pytest.raises(PatchRefused, match="not in UTF-8"):
        patches.parse(one("a/fs/a.c", "b/fs/a.c").encode("utf-16"), ALLOWED)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("int a;", "/* why */ int  a; // so", True),
        ("int a;", "int b;", False),
        ('s = "/* a */";', 's = "/* b */";', False),
        ("c = '\"'; /* a */", "c = '\"'; /* b */", True),
        ("a\n", "\n\na", True),
    ],
)
def test_comments_and_blanks_are_no_change(one: str, other: str, same: bool) -> None:
    assert (patches.code(one) == patches.code(other)) is same


def test_what_was_there_may_look_at_the_command_line() -> None:
    body = "@@ -1,2 +1,2 @@\n saved_command_line\n-a\n+b\n"
    assert patches.parse(one("a/fs/a.c", "b/fs/a.c", body).encode(), ALLOWED)


def test_a_word_of_what_the_lab_adds_is_drawn_for_each_grading(root: Path, tmp_path: Path) -> None:
    """Who calls the watch, or says what the kernel is to say, would have to know it."""
    changes = patches.parse(PATCH.encode(), ALLOWED)
    seen = set()
    for number, slug in enumerate(("umount-grace-period", "open-creat-unlazy") * 2):
        (tmp_path / str(number)).mkdir()
        case = patches._case(lab.load(root / "labs" / slug), changes, tmp_path / str(number))
        added = [p for p in case.variants["submission"].patches if p.name != "submission.patch"]
        text = "".join(path.read_text() for path in added)
        assert patches.DRAWN not in text
        words = set(re.findall(r"\bd[0-9a-f]{8}\b|(?<=_)d[0-9a-f]{8}\b", text))
        assert len(words) == 1
        seen |= words
        if slug == "open-creat-unlazy":
            wanted = [each.contains or "" for each in case.outcomes]
            assert any(words & set(each.split(":")) for each in wanted)
    assert len(seen) == 4


def test_a_part_may_have_a_label_of_anothers_run() -> None:
    def outcome(metric: str, *, held: bool) -> record.OutcomeRecord:
        return record.OutcomeRecord(
            variant="submission", run="latency", expected=metric, condition="", metric=metric,
            seen=1.0, low=1.0, high=1.0, held=held, reason="" if held else "lost",
        )  # fmt: skip

    found = _found([outcome("lazy/waits", held=True), outcome("watch/wrong", held=False)])
    labels = {"latency/watch"}
    assert patches._of_runs(found, ["latency"], labels).reason == ""
    assert "watch/wrong" in patches._of_runs(found, ["left", "latency/watch"], labels).reason
    assert "watch/wrong" in patches._of_runs(found, ["latency"]).reason


def test_an_outcome_without_an_expectation_is_the_labs_mistake() -> None:
    with pytest.raises(ContendedError, match="nothing is expected"):
        patches._of_runs(_found([]), ["opens"])


def test_a_panic_of_one_run_is_that_runs_and_a_kernel_boots_that_ever_did() -> None:
    def boot(run: str, config: str, failed: str) -> record.BootRecord:
        return record.BootRecord(
            variant="submission", run=run, config=config, workload=run, args={}, cmdline="",
            vcpus=1, icount=False, repeat=0, accel="tcg", build_id="", results=[], checks=[],
            failed=failed, splats=[], excerpt="", boot_s=1.0, wall_s=1.0,
        )  # fmt: skip

    found = _found([])
    found.boots.extend([boot("one", "debug", ""), boot("two", "debug", "panic: oops")])
    assert not patches._boots(found).reason
    found.boots.append(boot("two", "base", "panic: oops"))
    assert "the workload two (config base)" in patches._boots(found).reason


def _found(of: list[record.OutcomeRecord]) -> record.KernelRun:
    from dataclasses import fields

    blank = {field.name: "" for field in fields(record.KernelProvenance)}
    return record.KernelRun(
        case="x", vcpus=1, repeats=1, variants={}, kernels=[], boots=[], outcomes=of,
        provenance=record.KernelProvenance(**blank),  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_smoke_set_is_run_for_the_submission_alone(toys: Path, tmp_path: Path) -> None:
    text = (toys / "labs" / "patching" / "kernel.toml").read_text()
    (tmp_path / "x").mkdir()
    for name in ("submission.patch", "more.patch"):
        (tmp_path / "x" / name).write_text(one("a/fs/a.c", "b/fs/a.c"))
    more = text.replace(
        "[runs.opens]",
        '[variants.submission-more]\nsummary = "m"\npatches = ["submission.patch", "more.patch"]\n'
        "[runs.opens]",
    )
    more += text[text.index("[[outcomes]]") :].replace('"submission"', '"submission-more"')
    (tmp_path / "x" / "variants.toml").write_text(more)
    plan = patches._plan(variants.read(tmp_path / "x" / "variants.toml"))
    assert [(variant.name, each.name) for variant, each in plan.boots] == [
        ("submission", "opens"),
        ("submission-more", "opens"),
        ("submission", "smoke"),
    ]


@pytest.fixture(scope="module")
def built() -> KernelSource:
    """The kernel's source, with the unpatched kernel built."""
    if shutil.which(qemu.QEMU) is None:
        pytest.skip(qemu.QEMU_MISSING)
    try:
        found = source.find()
        build.build(variants.Variant("test", "before", "Linux as it is"), "base", found)
    except ContendedError as error:
        if "apt-get" not in str(error):
            raise
        pytest.skip(str(error))
    return found


def diff(tree: KernelSource, file: str, old: str, new: str) -> bytes:
    """A patch that replaces a text of a file of the kernel's."""
    before = (tree.tree / file).read_text()
    assert old in before
    after = before.replace(old, new, 1)
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{file}", f"b/{file}"
    )
    return "".join(lines).encode()


def reasons(toys: Path, patch: bytes) -> dict[str, str]:
    about = lab.load(toys / "labs" / "patching")
    return {name: verdict.reason for name, verdict in patches.judge(about, patch).items()}


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where the patched kernels would be that are asked for: others may build some, too."""
    found, digest_of = [], build.digest_of

    def noted(source: KernelSource, patches: Sequence[Path], config: str) -> str:
        digest = digest_of(source, patches, config)
        if patches:
            found.append(store.cache() / "kernels" / digest)
        return digest

    monkeypatch.setattr(build, "digest_of", noted)
    return found


@pytest.mark.usefixtures("boxes")
def test_the_compiler_sees_nothing_of_the_machine(
    toys: Path, built: KernelSource, root: Path
) -> None:
    include = "#include <linux/stddef.h>"
    for place in ("/etc/passwd", str(root / "pyproject.toml")):
        assert Path(place).exists()
        seen = reasons(toys, diff(built, "fs/readdir.c", include, f'#include "{place}"\n{include}'))
        assert seen["applies"] == ""
        assert re.search(f"{place}: (No such file|Permission denied)", seen["builds"])
        assert seen["gain"].startswith("it was not reached")


@pytest.mark.usefixtures("boxes")
def test_a_warning_is_a_lost_build_and_the_cache_is_as_before(
    toys: Path, built: KernelSource, patched: list[Path]
) -> None:
    use = "#include <linux/uaccess.h>\n"
    patch = diff(built, "fs/readdir.c", use, use + "static int not_used(void)\n{\n\treturn 1;\n}\n")
    seen = reasons(toys, patch)
    assert seen["applies"] == ""
    assert "defined but not used" in seen["builds"]
    assert patched
    assert not any(kernel.exists() for kernel in patched)
    assert "not_used" not in (built.tree / "fs/readdir.c").read_text()


@pytest.mark.usefixtures("boxes")
def test_a_kernel_that_works_and_gains_nothing_keeps_its_steps(
    toys: Path, built: KernelSource, patched: list[Path]
) -> None:
    use = "#include <linux/uaccess.h>\n"
    seen = reasons(toys, diff(built, "fs/readdir.c", use, use + "extern int no_such_thing;\n"))
    assert [name for name, reason in seen.items() if not reason] == ["applies", "builds", "boots"]
    assert "every open takes one reference: 2 is above 1.1" in seen["gain"]
    # The student's kernel is not kept.
    assert patched
    assert not any(kernel.exists() for kernel in patched)


def test_patches_that_change_nothing_or_fit_nothing(toys: Path, built: KernelSource) -> None:
    use = "#include <linux/uaccess.h>\n"
    seen = reasons(toys, diff(built, "fs/readdir.c", use, use + "\n/* nothing */\n"))
    assert "nothing but comments" in seen["applies"]
    seen = reasons(toys, one("a/fs/readdir.c", "b/fs/readdir.c").encode())
    assert "does not apply: hunk 1" in seen["applies"]
    assert built.version in seen["applies"]
    seen = reasons(toys, one("a/fs/no_such.c", "b/fs/no_such.c").encode())
    assert "does not apply" in seen["applies"]


def test_what_the_lab_adds_must_fit_on_top(toys: Path, built: KernelSource, tmp_path: Path) -> None:
    place = tmp_path / "patching"
    shutil.copytree(toys / "labs" / "patching", place)
    use = "#include <linux/uaccess.h>\n"
    (place / "more.patch").write_bytes(
        b"Subject: more\n\n---\n" + diff(built, "fs/readdir.c", use, use + "/* more */\n")
    )
    file = place / "kernel.toml"
    more = (
        '[variants.submission-more]\nsummary = "m"\npatches = ["submission.patch", "more.patch"]\n'
    )
    file.write_text(file.read_text().replace("[runs.opens]", f"{more}[runs.opens]"))
    about = lab.load(place)
    verdicts = patches.judge(about, diff(built, "fs/readdir.c", use, "int in_the_way;\n"))
    assert "what the lab adds to it does not" in verdicts["applies"].reason
    # Elsewhere in the same file both fit; the compiler is asked next.
    patch = diff(built, "fs/readdir.c", "EXPORT_SYMBOL(iterate_dir);\n", "no C;\n")
    verdicts = patches.judge(about, patch)
    assert verdicts["applies"].reason == ""
    assert "does not compile" in verdicts["builds"].reason


def test_no_program_of_the_build_can_be_changed(built: KernelSource) -> None:
    """The list against what make noted of the programs that it compiled for this machine."""
    objects = store.cache() / "build" / f"{built.tree.parent.name}-base" / "objects"
    used: set[str] = set()
    for noted in objects.rglob(".*.cmd"):
        text = noted.read_text(errors="replace")
        if re.match(r"(saved)?cmd_\S+ := (gcc|cc|clang) ", text) and "__KERNEL__" not in text:
            for name in re.findall(r"(/\S+\.[chS])\b", text):
                path = Path(re.sub(r"/[^/]+/\.\.(?=/)", "", re.sub(r"/\./", "/", name)))
                path = path.resolve()
                if path.is_relative_to(built.tree):
                    used.add(path.relative_to(built.tree).as_posix())
    assert any(name.startswith("scripts/mod/") for name in used)
    dangerous = {name for name in used if name.startswith(ALLOWED)}
    assert dangerous <= patches.HOST_PROGRAMS


def test_the_kernels_own_words_are_in_the_detail() -> None:
    lost = record.OutcomeRecord(
        variant="submission", run="lockdep", expected="lockdep is silent", condition="splats = 0",
        metric="splats", seen=1.0, low=1.0, high=1.0, held=False, reason="1 is not 0",
    )  # fmt: skip
    console = "WARNING: inconsistent lock state\nfoo\n"
    boot = record.BootRecord(
        variant="submission", run="lockdep", config="up", workload="umount", args={}, cmdline="",
        vcpus=1, icount=False, repeat=0, accel="tcg", build_id="", results=[], checks=[],
        failed="", splats=outcomes.splats(console), excerpt=console, boot_s=1.0, wall_s=1.0,
    )  # fmt: skip
    found = _found([lost])
    found.boots.append(boot)
    verdict = patches._of_runs(found, ["lockdep"])
    assert verdict.reason == "not seen: lockdep is silent: 1 is not 0"
    assert "inconsistent lock state" in verdict.detail
