# SPDX-License-Identifier: MIT
"""A lab as a Gradescope autograder: the zip to upload, and what runs where it is unpacked.

By https://gradescope-autograders.readthedocs.io/en/latest/specs/: `setup.sh` makes the image, and
has the network; `run_autograder` is copied to /autograder, grades what is in `submission/` beside
it by what is in `source/`, and writes `results/results.json`. That needs neither network nor KVM.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from contended import tree
from contended.course import exports, grade, lab, release, sandbox, submission
from contended.course.boxes import PACKAGE
from contended.course.lab import Lab
from contended.errors import ContendedError, UsageError
from contended.records import write_whole

_GRADING = ("nbgrader", "nbclient", "nbformat", "ipykernel")  # besides the package's own needs

_SETUP = """\
#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Run once, when the image is made. What is there already is not installed again.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
base=$(dirname "$source")
old='import sys; sys.exit(sys.version_info < (3, 11))'

missing=()
for name in gcc bwrap setpriv python3; do
  command -v "$name" > /dev/null || missing+=("$name")
done
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update
  apt-get install -y --no-install-recommends bubblewrap gcc libc6-dev python3-venv util-linux
fi
if ! python3 -c "$old"; then
  echo "Python 3.11 or later is needed: choose Ubuntu 24.04 or later as the base image" >&2
  exit 1
fi
if ! python3 -c 'import MODULES' 2> /dev/null; then
  apt-get install -y --no-install-recommends python3-venv
  python3 -m venv "$base/venv"
  "$base/venv/bin/pip" install -c "$source/constraints.txt" -r "$source/requirements.txt"
fi
"""

_RUN = """\
#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Grades the submission beside this file; the results are beside it, too.
set -euo pipefail
base=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$base/venv/bin/python
[ -x "$python" ] || python=python3
export CONTENDED_HOME=$base/source PYTHONPATH=$base/source/src PYTHONDONTWRITEBYTECODE=1
exec "$python" -m contended.course.gradescope "$base"
"""


def requirements() -> list[str]:
    """What the grading of a lab needs of Python's packages."""
    needs = metadata.requires("contended") or []
    return [need for need in needs if "extra ==" not in need] + list(_GRADING)


def _modules(needs: list[str]) -> list[str]:
    names = [re.split(r"[^\w.-]", need)[0].lower() for need in needs]
    return [{"pyelftools": "elftools"}.get(name, name.replace("-", "_")) for name in names]


def contents(about: Lab) -> Iterator[tuple[str, bytes]]:
    """The files of a lab's autograder, by their names in the zip."""
    if about.kind == "patch":
        why = "is graded by booting kernels, for which Gradescope has no machine"
        raise UsageError(f"the lab {about.slug} {why}: use contended course grade")
    needs = requirements()
    yield "setup.sh", _SETUP.replace("MODULES", ", ".join(_modules(needs))).encode()
    yield "run_autograder", _RUN.encode()
    yield "requirements.txt", "\n".join([*needs, ""]).encode()
    pins = tree.home() / "constraints.txt"
    yield "constraints.txt", pins.read_bytes() if pins.is_file() else b""
    yield "csrc/abi.h", (tree.home() / "csrc" / "abi.h").read_bytes()
    for name in about.material():
        yield f"labs/{about.slug}/{name}", (about.folder / name).read_bytes()
    for path in about.private():
        name = path.relative_to(about.folder).as_posix()
        yield f"labs/{about.slug}/{name}", path.read_bytes()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".toml") and tree.PACKED not in path.parents:
            yield f"src/contended/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()


def pack(about: Lab, out: Path) -> Path:
    """Write a lab's autograder, a zip file to upload."""
    if out.suffix != ".zip":
        raise UsageError(f"{out} must end in .zip")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}: make it first")
    files = dict(contents(about))
    part = out.with_name(f".{out.name}")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                script = name in ("setup.sh", "run_autograder")
                release.add(archive, name, content, 0o755 if script else 0o644)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ContendedError(f"cannot write {out}: {error.strerror}") from error
    return out


def run(base: Path) -> Path:
    """Grade `base/submission` by the lab in `base/source`; the results.json that was written."""
    slugs = lab.slugs()
    if len(slugs) != 1:
        raise ContendedError(f"{lab.folder()} must hold one lab, not {len(slugs)}")
    about = lab.load(lab.folder() / slugs[0])
    taken = submission.take(about, _handed_in(about, base / "submission"))
    how = f"Graded in a sandbox ({sandbox.require(unsafe=False)})."
    got = grade.one(about, taken, student="submission", unsafe=False)
    hints = {part.id: part.hint for part in about.parts}
    found = base / "results" / "results.json"
    found.parent.mkdir(exist_ok=True)
    write_whole(found, json.dumps(exports.results(got, hints, how), indent=2) + "\n")
    return found


def _handed_in(about: Lab, folder: Path) -> Path:
    """The folder with the lab's files: students upload them, or the folder that they are in."""
    wanted = {about.notebook.name, *about.files}
    places = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    having = (place for place in places if any((place / name).is_file() for name in wanted))
    return next(having, folder)


def main(argv: list[str]) -> int:
    """Grade; without results.json, Gradescope tells the instructor, and nobody gets a zero."""
    try:
        run(Path(argv[0]).resolve())
    except ContendedError as error:
        sys.stderr.write(f"contended: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
