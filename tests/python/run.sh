#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs examples/python with pip into a new virtual environment and tests it.
#
#   bash tests/python/run.sh WORK    WORK is the folder for the environment and the build
#
# Exit status 77 means skipped; the last line is the reason. The environment variable PYTHON selects
# the interpreter.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=${1:?"usage: run.sh WORK"}
python=${PYTHON:-python3}

skip() {
  echo "skipped: $*"
  exit 77
}

command -v "$python" >/dev/null || skip "there is no $python"
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$include/Python.h" ] ||
  skip "there is no Python.h (Debian: python3-dev)"
mkdir -p "$work"
if [ ! -x "$work/venv/bin/pip" ]; then
  "$python" -m venv "$work/venv" >"$work/venv.log" 2>&1 ||
    skip "$python makes no virtual environment (Debian: python3-venv)"
fi
pip=("$work/venv/bin/pip" --disable-pip-version-check --quiet)
needs=(nanobind scikit-build-core numpy)
"${pip[@]}" --retries 0 --timeout 20 install "${needs[@]}" >"$work/pip.log" 2>&1 ||
  skip "pip can't fetch ${needs[*]}"

# Uses the installed tools and a persistent build folder, so that nothing is compiled twice.
export PATH=$work/venv/bin:$PATH
"${pip[@]}" install --no-deps --no-build-isolation --force-reinstall \
  --config-settings=build-dir="$work/build" "$root/examples/python"
cd "$work"
"$work/venv/bin/python" -B "$root/tests/python/check.py" 2>&1 | tee "$work/check.log"
if grep -q 'nanobind: leaked' "$work/check.log"; then
  echo "objects are left at the end"
  exit 1
fi
