#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs examples/python by pip into a virtual environment of its own, and checks it there.
#
#   bash tests/python/run.sh WORK    WORK is the folder for environment and build
#
# Exit status 77: skipped, and the last line says why. Environment: PYTHON the interpreter.
set -euo pipefail
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

# The tools that are here, and a build folder that stays: nothing is compiled twice.
export PATH=$work/venv/bin:$PATH
"${pip[@]}" install --no-deps --no-build-isolation --force-reinstall \
  --config-settings=build-dir="$work/build" "$root/examples/python"
cd "$work"
"$work/venv/bin/python" -B "$root/tests/python/check.py" 2>&1 | tee "$work/check.log"
if grep -q 'nanobind: leaked' "$work/check.log"; then
  echo "objects are left at the end"
  exit 1
fi
