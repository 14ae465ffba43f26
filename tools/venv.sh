#!/bin/sh
# SPDX-License-Identifier: MIT
# venv.sh PYTHON DIR: make a virtual environment with pip in it, with or without python3-venv.
#
# Debian and Ubuntu split Python: `python3` alone has the venv module but not the copy of pip that
# it would put into the new environment (that is in python3-venv). A reader who may not install
# packages gets pip from the distribution's own wheel package, unpacked into a scratch directory:
# apt-get download needs no root. Index, proxy and certificates stay what pip's configuration says.
set -eu
python=$1
dir=$2

fail() {
	echo "venv.sh: $1" >&2
	exit 1
}

command -v "$python" >/dev/null || fail "no $python on PATH: apt-get install python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
	fail "needs Python 3.11 or newer, $python is $("$python" -c 'import platform; print(platform.python_version())'); name another with make PYTHON=/path/to/python3"

rm -rf "$dir" # a half-made one from an earlier try
if "$python" -c 'import ensurepip' 2>/dev/null; then
	exec "$python" -m venv "$dir"
fi

echo "venv.sh: python3-venv is not installed; taking pip from the package python3-pip-whl"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
base=$(pwd)
sorry="no pip for $python. Install it with: sudo apt-get update && sudo apt-get install python3-venv"

fetch() { (cd "$scratch" && apt-get -qq "$@" download python3-pip-whl) >"$scratch/log" 2>&1; }
# A container image often comes without package lists; lists of our own need no root either.
private="-o Dir::State::Lists=$scratch/lists -o Dir::Cache=$scratch/cache"
fetch || {
	mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
	# shellcheck disable=SC2086 # the options are meant to be split
	apt-get -qq $private update >"$scratch/log" 2>&1 && fetch $private
} || fail "$sorry"
dpkg-deb -x "$scratch"/python3-pip-whl_*.deb "$scratch" || fail "$sorry"

cd "$base"
"$python" -m venv --without-pip "$dir"
for wheel in "$scratch"/usr/share/python-wheels/pip-*.whl; do
	# A wheel is a zip file, which Python can import from: pip installs itself, offline.
	PYTHONPATH=$wheel "$dir/bin/python" -m pip install --quiet --no-index "$wheel" || {
		rm -rf "$dir"
		fail "$sorry"
	}
done
