# SPDX-License-Identifier: MIT
"""A wheel holds what the commands read from the repository; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TREE = (
    "csrc",
    "labs",
    "patches",
    "results",
    "docs/host.md",
    "docs/references.bib",
    "docs/quiz.json",
)
"""What `contended.tree.home` must have; contended.tree looks for it in `_tree`."""


class WithTree(build_py):
    """Copy the tree beside the modules, unless they stay where they are."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        place = Path(self.build_lib) / "contended" / "_tree"
        shutil.rmtree(place, ignore_errors=True)  # an earlier build may have left files
        for name in TREE:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            if Path(name).is_dir():
                hidden = shutil.ignore_patterns(".*", "__pycache__", "*.so", "*.o")
                shutil.copytree(name, place / name, ignore=hidden)
            else:
                shutil.copy(name, place / name)


setup(cmdclass={"build_py": WithTree})
