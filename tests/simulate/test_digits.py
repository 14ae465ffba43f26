# SPDX-License-Identifier: MIT
"""The same seed gives the same digits: on other Pythons, and on processors with less in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import digits
import pytest

from contended import cases, register
from contended.scoreboard import simulated

HERE = Path(__file__).parent
RECORD = (HERE / "digits.json").read_text(encoding="utf-8")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def written(python: str, what: str, root: Path, **environment: str) -> str:
    """What `digits.py` writes under a Python, in an environment that differs in some variables."""
    done = subprocess.run(
        [python, HERE / "digits.py", what],
        env={
            **os.environ,
            "PYTHONPATH": str(root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CONTENDED_HOME": str(root),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def samples(text: str) -> dict[str, str]:
    """The lines of what `digits.py` writes, by the sample's name."""
    found = (re.fullmatch(r'("[^"]+"): (.+?),?', line) for line in text.splitlines())
    return {line[1]: line[2] for line in found if line}


def pythons() -> list[str]:
    """This Python, and every other version of those supported that is on PATH and runs."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for folder in os.get_exec_path():
        for version in VERSIONS:
            program = Path(folder) / f"python{version}"
            if version not in found and program.is_file() and runs(program):
                found[version] = str(program)
    return [found[version] for version in sorted(found)]


def runs(program: Path) -> bool:
    """Whether it is a Python: version managers put scripts on PATH that only complain."""
    return not subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode


def test_digits_are_as_recorded() -> None:
    """If they changed on purpose: python tests/simulate/digits.py > tests/simulate/digits.json."""
    text = digits.text(digits.everything())
    assert samples(text) == samples(RECORD)
    assert text == RECORD


@pytest.mark.parametrize("python", pythons())
def test_each_python_that_is_here_gives_the_recorded_digits(python: str, root: Path) -> None:
    """Without this one's packages: what needs them is compared where they are installed."""
    seen = samples(written(python, "plain", root, PYTHONHASHSEED="1"))
    record = samples(RECORD)
    assert len(seen) > 40
    assert seen == {name: record.get(name) for name in seen}


@pytest.mark.check
def test_a_processor_without_vectors_gives_the_recorded_digits(root: Path, tmp_path: Path) -> None:
    """NumPy's vector code, OpenBLAS's and libm's kernels and numba's target are all turned down."""
    import numpy as np

    configuration: Any = np.show_config(mode="dicts")
    text = written(
        sys.executable,
        "all",
        root,
        NPY_DISABLE_CPU_FEATURES=" ".join(configuration["SIMD Extensions"].get("found", [])),
        NUMBA_CPU_NAME="generic",
        NUMBA_CPU_FEATURES="",
        NUMBA_CACHE_DIR=str(tmp_path),
        OPENBLAS_CORETYPE="Prescott",
        GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-FMA,-FMA4,-SSE4_1",
        PYTHONHASHSEED="2",
    )
    assert samples(text) == samples(RECORD)


def test_the_engine_has_no_floating_point_instruction() -> None:
    """So no processor can round it differently: there is nothing to round."""
    from numba import njit, types

    from contended.simulate import engine

    def code(function: Any, arguments: int) -> str:
        compiled: Any = njit(function)
        signature = (types.int64,) * arguments
        compiled.compile(signature)
        return str(compiled.inspect_llvm(signature))

    word = re.compile(r"\b(half|float|double|fadd|fmul|sitofp|uitofp)\b")
    assert word.search(code(lambda a, b: a / b, 2))
    run: Any = engine._run
    assert not word.findall(code(run.py_func, run.py_func.__code__.co_argcount))


@pytest.mark.parametrize("slug", register.slugs())
def test_the_recorded_predictions_are_those_of_now_digit_for_digit(slug: str) -> None:
    assert simulated.load(slug) == cases.prediction(slug).rows, f"run {simulated.COMMAND}"
