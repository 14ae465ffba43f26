# SPDX-License-Identifier: MIT
"""Patches as chapters show them: message and hunks are the file's, and nothing is made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from contended.errors import UsageError
from contended.kernel import patchfile, variants

PATCH = """\
Subject: [PATCH] namei: a subject that goes
 on in the next line

First paragraph,
two lines of it.

Second <b>paragraph</b>.

Link: https://lore.kernel.org/all/x/
---
 fs/a.c | 3 ++-
 1 file changed, 2 insertions(+), 1 deletion(-)

diff --git a/fs/a.c b/fs/a.c
--- a/fs/a.c
+++ b/fs/a.c
@@ -10,3 +10,4 @@ static int walk(void)
 \tint a;
-\tint b;
+\tlong b;
+\tlong c;

@@ -90,2 +91,2 @@
--- removed, and begins like a header
+kept
 end
diff --git a/fs/b.h b/fs/b.h
--- a/fs/b.h
+++ b/fs/b.h
@@ -1 +1 @@
-old
+new
--\x20
2.39
"""


@pytest.fixture
def patch(tmp_path: Path) -> patchfile.Patch:
    file = tmp_path / "0001-x.patch"
    file.write_text(PATCH.replace("c;\n\n", "c;\n \n"))
    return patchfile.parse(file)


def test_the_message(patch: patchfile.Patch) -> None:
    assert patch.subject == "namei: a subject that goes on in the next line"
    assert patch.message.startswith("First paragraph,")
    assert patch.message.endswith("Link: https://lore.kernel.org/all/x/")
    assert "fs/a.c |" not in patch.message


def test_the_hunks(patch: patchfile.Patch) -> None:
    assert [(h.file, h.text.splitlines()[0], h.added, h.removed) for h in patch.hunks] == [
        ("fs/a.c", "@@ fs/a.c: static int walk(void) @@", 2, 1),
        ("fs/a.c", "@@ fs/a.c:  @@", 1, 1),
        ("fs/b.h", "@@ fs/b.h:  @@", 1, 1),
    ]
    assert patch.files == ("fs/a.c", "fs/b.h")
    assert "2.39" not in patch.hunks[-1].text
    assert patch.hunks[1].lines[0] == "--- removed, and begins like a header"


def test_what_is_shown(patch: patchfile.Patch) -> None:
    assert "long b" in patch.show(1).data
    assert "kept" not in patch.show(1).data
    assert "new" in patch.show(file="fs/b.h").data
    html = patch._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<code>fs/a.c</code> (+3 &minus;2)" in html
    url = "https://lore.kernel.org/all/x/"
    assert f'<p>Link: <a href="{url}">{url}</a></p>' in html


@pytest.mark.parametrize(
    ("numbers", "file", "message"),
    [((4,), None, "has hunks 1 to 3, not 4"), ((0,), None, "not 0"), ((), "fs/z.c", "fs/a.c")],
)
def test_a_hunk_that_is_not_there(
    patch: patchfile.Patch, numbers: tuple[int, ...], file: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        patch.show(*numbers, file=file)


def test_not_a_patch(tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_text("Subject: x\n\nnothing\n---\n")
    with pytest.raises(patchfile.BadPatch, match="holds no change"):
        patchfile.parse(tmp_path / "a.patch")
    (tmp_path / "b.patch").write_text(PATCH.partition("\n\n")[2])
    with pytest.raises(UsageError, match="no Subject"):
        patchfile.parse(tmp_path / "b.patch")


def test_a_name_that_names_none_lists_those_there() -> None:
    with pytest.raises(
        UsageError, match="does not name one patch of open-creat-unlazy; there are: "
    ):
        patchfile.load("open-creat-unlazy", "9999")


@pytest.mark.parametrize("slug", variants.slugs())
def test_every_patch_of_the_tree(slug: str) -> None:
    """Each has what a chapter shows, and each is some variant's."""
    case = variants.load(slug)
    paths = {path for variant in case.variants.values() for path in variant.patches}
    used = {path.name for path in paths if path.parent.name == slug}
    there = {path.name for path in (variants.folder() / slug).glob("*.patch")}
    assert there == used
    for name in sorted(there):
        patch = patchfile.load(slug, name)
        text = (variants.folder() / slug / name).read_text()
        assert len(patch.hunks) == sum(line.startswith("@@ ") for line in text.splitlines())
        assert "SPDX-License-Identifier: GPL-2.0-only" in text
        assert len(patch.message.split()) >= 50, "say what is wrong, what changes, and its price"
        assert "http" in patch.message, "credit the thread"
