# SPDX-License-Identifier: MIT
"""Which of the races that KCSAN reports are a patch's."""

from __future__ import annotations

from pathlib import Path

from contended import tree
from contended.kernel import races, suite
from contended.kernel.variants import Variant

RACE = "BUG: KCSAN: data-race in {} / {}"
NAMEI = """\
static inline int legitimize(struct nameidata *nd);

static const char *open_last_lookups(struct nameidata *nd,
\t\t   struct file *file)
{
\tif (called_here(nd))
\t\treturn NULL;
}
int vfs_open(const struct path *path)
{
}

static int follows(int one, int called_here)
{
}

SYSCALL_DEFINE2(mkdir, const char __user *, pathname, umode_t, mode)
{
}
"""
PATCH = """\
--- a/fs/namei.c
+++ b/fs/namei.c
@@ -1 +1,4 @@
 static inline int legitimize(struct nameidata *nd);
+static bool is_new(struct nameidata *nd)
+{
+}
"""


def variant(place: Path, *texts: str) -> Variant:
    files = [place / f"{number}.patch" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return Variant("x", "y", "of a test", tuple(files))


def test_a_report_is_a_race_or_none() -> None:
    one = RACE.format("dput.part.0", "step_into")
    alone = "BUG: KCSAN: assert: race in dget_parent"
    others, found = races.split(["BUG: KASAN: use-after-free in dput", one, "WARNING: ...", alone])
    assert (others, found) == (
        ["BUG: KASAN: use-after-free in dput", "WARNING: ..."],
        [one, alone],
    )
    assert races.functions(one) == ("dput", "step_into")
    assert races.functions(alone) == ("dget_parent",)
    assert races.functions("WARNING: ...") == ()


def test_a_race_is_of_a_patch_by_the_functions_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "fs").mkdir()
    (tmp_path / "fs" / "namei.c").write_text(NAMEI)
    header = PATCH.replace("namei.c", "dcache.h").replace("is_new", "d_inline")
    found = races.changed(variant(tmp_path, PATCH, header), tmp_path)
    assert found is not None
    own = {name for name in found if "sys_" not in name}
    assert own == {"open_last_lookups", "vfs_open", "follows", "is_new", "d_inline"}
    assert {"__do_sys_mkdir", "__se_sys_mkdir", "__x64_sys_mkdir"} <= found
    theirs = RACE.format("wake_up", "vfs_open")
    assert races.of_files([theirs, RACE.format("wake_up", "called_here")], found) == [theirs]
    # A struct's members are anywhere.
    assert races.changed(variant(tmp_path, header), tmp_path) is None
    assert races.of_files([theirs], None) == [theirs]


def test_a_race_that_the_reference_has_too_is_none_of_the_patchs() -> None:
    asked = list[int]()

    def again(sees: dict[int, str]) -> list[str]:
        asked.append(len(asked))
        return [sees[len(asked)]] if len(asked) in sees else []

    assert races.unseen(["a", "b"], lambda: again({3: "a"})) == ["b"]
    assert len(asked) == races.MORE
    asked.clear()
    assert races.unseen(["a"], lambda: again({2: "a"})) == []
    assert len(asked) == 2


def test_kcsan_sees_what_nobody_guards_and_nothing_of_the_books() -> None:
    record = suite.load(tree.home() / "results" / "suite" / "kcsan.json")
    first, *others = record.tested
    racy = "tests/kernel/racy.patch"
    assert {"open-creat-unlazy/after", "overlay-creds/after", racy} <= {o.variant for o in others}
    assert first.races, "Linux 6.1 has data races of its own, and they were not seen"
    assert {(each.variant, each.kind) for each in record.findings} == {(racy, "race")}
    assert any("path_openat" in races.functions(each.what) for each in record.findings)
    for one in record.tested:
        assert (one.config, one.ended, one.reports) == (races.CONFIG, "", [])
        assert one.smoke_checks > 100
