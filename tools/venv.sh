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
place=$(dirname "$dir")
another="name another with make PYTHON=/path/to/python3"

fail() {
	echo "venv.sh: $1" >&2
	exit 1
}

# What a program said, in one line; a full disk has many voices, and some of them do not say so.
blame() {
	free=$(df -Pk "$place" 2>/dev/null | awk 'NR == 2 { print $4 }')
	if [ "${free:-1000000}" -lt 51200 ]; then
		echo "the disk is full ($((free / 1024)) MB left): make 3 GB free and run make again"
	else
		printf '%s\n' "$1" | sed '/^[[:space:]]*$/d' | tail -n 1
	fi
}

# Nothing half-made stays behind, and the disk that it filled is free again.
give_up() {
	why=$(blame "$2")
	rm -rf "$dir"
	fail "$1: $why"
}

command -v "$python" >/dev/null || fail "no $python on PATH: apt-get install python3, or $another"
version=$("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null) ||
	fail "$python does not run: $another"
case $version in
3.11.* | 3.12.* | 3.13.* | 3.14.*) ;;
*) fail "needs Python 3.11 to 3.14, $python is $version: $another" ;;
esac

[ -w "$place" ] || fail "cannot write to $(cd "$place" && pwd): copy the tree to a folder of yours"
rm -rf "$dir" 2>/dev/null || fail "cannot remove $dir, which an earlier try left: remove it yourself"
if "$python" -c 'import ensurepip' 2>/dev/null; then
	trap 'rm -rf "$dir"; exit 1' HUP INT TERM
	said=$("$python" -m venv "$dir" 2>&1) || give_up "cannot make $dir" "$said"
	exit
fi

echo "venv.sh: python3-venv is not installed; taking pip from the package python3-pip-whl"
scratch=$(mktemp -d 2>/dev/null) || fail "no room for temporary files: make some, or set TMPDIR to another folder"
trap 'rm -rf "$scratch"' EXIT
trap 'rm -rf "$dir"; exit 1' HUP INT TERM
sorry="no pip for $python. Install it with: sudo apt-get update && sudo apt-get install python3-venv"

fetch() { (cd "$scratch" && apt-get -qq "$@" download python3-pip-whl) >"$scratch/log" 2>&1; }
# A container image often comes without package lists; lists of our own need no root either.
fetch_anew() {
	mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
	set -- -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/cache"
	apt-get -qq "$@" update >"$scratch/log" 2>&1 && fetch "$@"
}
fetch || fetch_anew || fail "$sorry"
dpkg-deb -x "$scratch"/python3-pip-whl_*.deb "$scratch" || fail "$sorry"

said=$("$python" -m venv --without-pip "$dir" 2>&1) || give_up "cannot make $dir" "$said"
for wheel in "$scratch"/usr/share/python-wheels/pip-*.whl; do
	# A wheel is a zip file, which Python can import from: pip installs itself, offline.
	said=$(PYTHONPATH=$wheel "$dir/bin/python" -m pip install --quiet --no-index "$wheel" 2>&1) ||
		give_up "no pip for $python" "$said"
done
