# SPDX-License-Identifier: MIT
"""C that students hand in: what compiles, what is refused, what a program tells."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from contended.course import ask, lab, program
from contended.course.ask import StudentError
from contended.course.lab import CRules, Lab
from contended.course.program import CodeError
from contended.errors import UsageError

pytest_plugins = ("coursefixtures",)
pytestmark = pytest.mark.usefixtures("boxes")

TICK = b"void tick(void);\nvoid count(int n);\n"
GOOD = '#include "tick.h"\nvoid count(int n)\n{\n\twhile (n-- > 0)\n\t\ttick();\n}\n'


@pytest.fixture
def counting(toys: Path) -> Lab:
    return lab.load(toys / "labs" / "counting")


def check(about: Lab, text: str) -> None:
    program.check(about, "count.c", text.encode(), {"tick.h": TICK}, unsafe=False)


def test_what_the_lab_asks_for_is_allowed(counting: Lab) -> None:
    check(counting, GOOD)
    check(
        counting,
        "#include <stdatomic.h>\n#include <stdint.h>\n#include <string.h>\n"
        + GOOD
        + "static _Thread_local int mine;\nstatic char room[64];\n"
        "static void helper(void) { mine++; memset(room, 0, sizeof(room)); }\n"
        "__attribute__((noinline, unused)) static int f(int a) { helper(); return a; }\n"
        '/* asm in a comment */ static const char *const word = "asm";\n'
        "const char *const *dummy(void);\nstatic const void *use(void) { return &word; }\n"
        "static int section(int x) { return x; }\n"
        "static int g(void) { return use() != 0 && section(f(1)); }\n"
        "static int (*volatile keep)(void) = g;\n",
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('#include "tick.h"\nvoid count(int n) { (void)n; asm volatile("nop"); }\n', "assembly"),
        ('void count(int n) { (void)n; }\n__asm__(".incbin \\"/etc/passwd\\"");\n', "assembly"),
        ('#define P(a, b) a##b\nvoid count(int n) { (void)n; P(as, m)("nop"); }\n', "assembly"),
        ("#define count(x) co\\\nunt(x)\n#include </etc/passwd>\n", "#include"),
        ('#include "../../lab.toml"\nvoid count(int n) { (void)n; }\n', "#include"),
        ("#include <stdio.h>\nvoid count(int n) { (void)n; }\n", "#include <stdio.h>"),
        ('#define H "/etc/passwd"\n#include H\nvoid count(int n) { (void)n; }\n', "#include H"),
        ('%:include "/etc/passwd"\nvoid count(int n) { (void)n; }\n', "#include"),
        ("#include_next <stdio.h>\nvoid count(int n) { (void)n; }\n", "#include <stdio.h>"),
        ("#import <stdio.h>\nvoid count(int n) { (void)n; }\n", "#include <stdio.h>"),
        (
            'static const char *const a = "/*";\n#include <stdio.h>\n'
            'static const char *const b = "*/";\nvoid count(int n) { (void)n; (void)(a < b); }\n',
            r"#include of .*/stdio\.h",
        ),
        (
            'static const char *const a = "/*";\n#line 1 "tick.h"\n'
            'static const char *const b = "*/";\nvoid count(int n) { (void)n; (void)(a < b); }\n',
            "#line",
        ),
        ('#line 1 "tick.h"\nvoid count(int n) { (void)n; }\n', "#line"),
        ('# 1 "tick.h"\nvoid count(int n) { (void)n; }\n', "#line"),
        (
            "int printf(const char *, ...);\nvoid exit(int);\nvoid count(int n) { (void)n; "
            'printf("{\\"ticks\\": 3}\\n"); exit(0); }\n',
            "may not use (printf|puts|exit)",
        ),
        ("long syscall(long, ...);\nvoid count(int n) { syscall(n); }\n", "may not use syscall"),
        ("void count(int n) { (void)n; }\nint tick(void) { return 0; }\n", "tick must be static"),
        ("int main(void) { return 0; }\nvoid count(int n) { (void)n; }\n", "main must be static"),
        (
            "void count(int n) { (void)n; }\n"
            "__attribute__((constructor)) static void early(void) { for (;;) ; }\n",
            r"section \.init_array",
        ),
        (
            'void count(int n) { (void)n; }\n__attribute__((section(".init_array"), used)) '
            "static void *early = (void *)count;\n",
            "attribute section",
        ),
        (
            "void count(int n) { (void)n; }\n"
            '__attribute__((weak, alias("count"))) void other(int n);\n',
            "attribute alias",
        ),
        ("__attribute__((weak)) void count(int n) { (void)n; }\n", "must be an ordinary symbol"),
        ("static void unused(void) { }\n", "there is no function count"),
        ("void count(int n) { return n }\n", "does not compile: count.c:1"),
        ("", "there is no function count"),
        ("\x00\xff\xfe", "does not compile"),
    ],
)
def test_what_could_cheat_is_refused(counting: Lab, text: str, what: str) -> None:
    with pytest.raises(CodeError, match=what):
        check(counting, text)


def test_what_macros_unfold_to_does_not_hold_up_the_others(
    counting: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(program._COMPILING, cpu_s=2)
    monkeypatch.setattr(program, "_COMPILING", short)
    tens = "".join(f"#define M{i + 1}(x) {f'M{i}(x) ' * 10}\n" for i in range(12))
    bomb = f"#define M0(x) x = x * 3 + 1;\n{tens}" + "void count(int n) { M12(n) }\n"
    start = time.monotonic()
    with pytest.raises(
        CodeError, match=r"does not compile: .*(of CPU time|printed more than|memory)"
    ):
        check(counting, bomb)
    assert time.monotonic() - start < 20


def test_data_outside_of_functions_can_be_forbidden(toys: Path) -> None:
    rules = CRules(exports=("count",), imports=("tick",), static_data=False)
    about = replace(lab.load(toys / "labs" / "counting"), c=rules)
    check(about, GOOD + "static const int table[3] = {1, 2, 3};\nint count_of(void);\n")
    for data in ("static int kept;", "static _Thread_local int kept;", "static int kept = 1;"):
        text = f"{data}\nvoid count(int n) {{ kept += n; }}\n"
        with pytest.raises(CodeError, match="keeps data outside of functions"):
            check(about, text)


@pytest.fixture
def graded(counting: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in the judge's kernel: a job, and the folder with what was taken."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "given").mkdir()
    about = ask.GradingJob(
        lab=str(counting.folder),
        taken=str(tmp_path / "taken"),
        given=str(tmp_path / "given"),
        cells=(),
    )
    about.save(tmp_path / "job.json")
    monkeypatch.setenv(ask.JOB, str(tmp_path / "job.json"))
    return tmp_path / "taken" / "count.c"


def test_a_program_runs_and_answers(graded: Path) -> None:
    graded.write_text(GOOD)
    made = program.compile("count.c", "main.c")
    assert made.run(7).json() == {"ticks": 7}
    assert program.compile("count.c", "main.c") is made


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("for (;;) ;", "did not finish within 1"),
        ("*(volatile int *)0 = n;", "SIGSEGV"),
        ("volatile int z = 0; z = n / z;", "SIGFPE"),
        ("__builtin_trap();", "SIGILL"),
    ],
)
def test_how_a_program_dies_is_told(graded: Path, body: str, what: str) -> None:
    graded.write_text(f"void count(int n) {{ {body} (void)n; }}\n")
    deadline_s = 1 if "did not finish" in what else 20
    output = program.compile("count.c", "main.c").run(3, deadline_s=deadline_s)
    assert what in output.reason
    with pytest.raises(StudentError, match=what):
        output.json()


def test_a_missing_file_is_told(graded: Path) -> None:
    with pytest.raises(UsageError, match=r"no C file count\.c"):
        program.compile("count.c", "main.c")
    with pytest.raises(UsageError, match=r"no C file x\.c"):
        program.compile("x.c")


def test_a_last_line_that_is_no_json() -> None:
    output = program.Output(stdout="a\n", stderr="", status=0, reason="")
    with pytest.raises(StudentError, match="no JSON"):
        output.json()
    output = program.Output(stdout="noise\n" + json.dumps([1]), stderr="", status=0, reason="")
    assert output.json() == [1]
