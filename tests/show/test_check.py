# SPDX-License-Identifier: MIT
"""Answers to exercises: the rules, and what readers are told; the self-tests at chapters' ends."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from contended.errors import UsageError
from contended.measure.results import Measurement
from contended.show import check as checking
from contended.show import lesson, quiz, widget
from contended.show.check import Rule, check, rules
from contended.show.quiz import Question, Wrong, self_test

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
#: The run that a chapter gives with the answer.
RUNS = {
    "whose-time": "lockref-degrade/phases",
    "how-much-is-waiting": "umount-grace-period/umounts",
}


def run_of(label: str) -> Measurement | None:
    return lesson.recorded(RUNS[label]) if label in RUNS else None


def calls(name: str) -> dict[str, list[ast.Call]]:
    """The calls of a function in the chapters, by the chapter."""
    found: dict[str, list[ast.Call]] = {}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in (c for c in cells if c["cell_type"] == "code"):
            found.setdefault(path.stem, []).extend(
                node
                for node in ast.walk(ast.parse("".join(cell["source"])))
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
            )
    return found


def test_each_chapter_asks_and_shows_no_answer() -> None:
    asked = {
        chapter: {ast.literal_eval(one.args[0]) for one in found}
        for chapter, found in calls("check").items()
    }
    assert all(asked.values()), asked
    assert asked == {
        path.stem: {label for label, rule in rules().items() if rule.chapter == path.stem}
        for path in NOTEBOOKS
    }
    for found in calls("check").values():
        for one in found:
            assert ast.literal_eval(one.args[1]) is None
            assert ast.literal_eval(one.args[0]) in RUNS or len(one.args) == 2


@pytest.mark.parametrize("label", rules())
def test_a_right_answer_is_right_and_each_hint_is_reached(label: str) -> None:
    rule, run = rules()[label], run_of(label)
    expected = rule.expected(run)
    for right in rule.right or [expected]:
        assert check(label, right, run).right is True
    said = []
    for hint in rule.hint:
        if hint.words:
            tries: list[Any] = list(hint.words)
        elif hint.value is not None:
            tries = [hint.value]
        else:
            assert expected is not None
            tries = [expected * (hint.times or {"above": 9, "below": 0.01}[hint.side])]
        for wrong in tries:
            found = check(label, wrong, run)
            assert (found.right, found.text) == (False, hint.text), wrong
        said.append(hint.text)
    for text in (*said, rule.otherwise):
        assert not any(
            f" {right} " in f" {text.lower()} " for right in rule.right if len(right) > 1
        )
        assert rule.value in (None, 0, 1) or f"{rule.value:,.10g}" not in text
    other = "something else" if rule.right else -1e9
    assert check(label, other, run).right is False


def test_what_is_no_answer_is_not_judged() -> None:
    for none in (None, ""):
        assert check("waste", none).right is None
    for text in ("many", True, "nan", ["a"]):
        assert "number is asked for" in check("waste", text).text
    assert check("waste", "2,497,500").right
    assert check("side-by-side", 3).right is None
    assert check("whose-time", 3).right is None, "it depends on the machine"
    with pytest.raises(UsageError, match=r"exercise 'no-such'; it has: .*waste"):
        check("no-such", 1)


def test_words_are_taken_in_any_order_and_form() -> None:
    for right in ({"a", "c"}, "c, A", "(a) and (c)", ["c", "a"]):
        assert check("when-is-it-safe", right).right, right
    assert "(b)" in check("when-is-it-safe", "a b c").text
    assert check("when-is-it-safe", "a").right is False
    assert check("side-by-side", "Like `shared`.").right


def test_a_run_decides_where_it_is_the_machines() -> None:
    run = run_of("whose-time")
    assert run is not None
    rule = rules()["whose-time"]
    expected = rule.expected(run)
    assert expected is not None
    assert expected > 2
    assert check("whose-time", 1.05 * expected, run).right
    assert check("whose-time", 1.2 * expected, run).right is False
    none = Rule(
        chapter="x",
        otherwise="",
        ratio=("slow", "stranger"),
        variant="before",
        phase="calm",
        threads=2,
    )
    assert none.expected(run) is None, "no stranger comes there"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[x]\nchapter = "00"\notherwise = ""\n', "one of right, value and ratio"),
        ('[x]\nchapter = "00"\notherwise = ""\nvalue = 1\nright = ["a"]\n', "one of right"),
        ('[x]\nchapter = "00"\nvalue = 1\n', "x: otherwise"),
        ('[x]\nchapter = "00"\notherwise = ""\nvalue = 1\nhints = 1\n', "x: hints"),
    ],
)
def test_a_malformed_rule_is_one_line(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers.toml").write_text(text)
    monkeypatch.setattr(checking, "PATH", tmp_path / "answers.toml")
    rules.cache_clear()
    try:
        with pytest.raises(UsageError, match=why):
            rules()
    finally:
        rules.cache_clear()


def test_it_shows_itself_as_a_box() -> None:
    assert repr(check("waste", 499500)).startswith("Not yet: That is for one place.")
    assert "Right" in check("waste", 2497500)._repr_html_()
    assert 'class="admonition warning"' in check("waste", 1)._repr_html_()


# --- self-tests ----------------------------------------------------------------------------------


def test_each_chapter_ends_in_its_self_test() -> None:
    found = {c: [ast.literal_eval(one.args[0]) for one in f] for c, f in calls("self_test").items()}
    assert found == {path.stem: [path.stem] for path in NOTEBOOKS}
    with pytest.raises(UsageError, match="no questions of chapter '12-none'"):
        self_test("12-none")


ONE = quiz.SelfTest([Question("Why <b>?", "Because", [Wrong("Magic & co", "Magic works")])])


def test_in_jupyterlab_a_choice_says_whether_it_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(widget.BOOK, raising=False)
    form = ONE.form()
    _, asked, choice, said = form.children
    assert asked.value == "Why &lt;b&gt;?"
    assert list(choice.options) == ["Because", "Magic & co"]
    assert (choice.value, said.value) == (None, ""), "nothing is chosen, nothing given away"
    choice.value = "Magic & co"
    assert said.value == "No. Who says so believes: Magic works."
    choice.value = "Because"
    assert said.value == "Yes."
    assert "application/vnd.jupyter.widget-view+json" in ONE._repr_mimebundle_()


def test_without_widgets_it_is_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(widget.BOOK, raising=False)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = ONE._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert "1. Why <b>?\n   a) Because\n   b) Magic & co" in bundle["text/plain"]
    assert "Magic works" not in bundle["text/plain"]
    assert "<summary>Magic &amp; co</summary>" in bundle["text/html"]
