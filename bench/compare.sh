#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Compares loaders and training in one run on the same data: penstock, PyTorch's DataLoader,
# libtorch's torch::data, SPDL, and NVIDIA DALI's CPU pipeline. In addition to speed, the script
# measures CPU time, memory and the time to the first batch.
#
#   bash bench/compare.sh                  installs and builds what is missing, then runs three
#                                          rounds; takes minutes
#   bash bench/compare.sh --rounds N       runs every row once per round, one after the other, and
#                                          keeps the medians
#   bash bench/compare.sh --only NAME      measures only this side; may be repeated:
#                                          penstock, pytorch, libtorch, spdl, dali
#   bash bench/compare.sh --skip-install   uses only what is installed, and queries no package index
#   bash bench/compare.sh --data DIR       MNIST's files, plain or .gz; default $MNIST_DIR, else
#                                          random bytes
#   bash bench/compare.sh --json FILE      default build/compare/results.json;
#                                          bench/compare/README.md describes the file and the rows
#
# The peers' packages are installed to a virtual environment, build/compare/venv, which takes about
# 8 GiB if PyTorch includes its unused CUDA libraries. Installed packages are not installed again. A
# side that cannot be installed is skipped, and the output has its name and the reason; this is not
# a failure.
#
# The exit status is 1 if an installed side failed or read other data than the others, 2 for invalid
# arguments, and otherwise 0. Environment: CXX is the compiler, PENSTOCK_JOBS the number of parallel
# jobs, MNIST_DIR the default of --data.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cmake/setup.sh
. "$root/cmake/setup.sh"

die() {
  printf 'compare.sh: %s; --help tells more\n' "$*" >&2
  exit 2
}

known=(penstock pytorch libtorch spdl dali)
only=()
rounds=3
install=true
data=${MNIST_DIR:-}
json=$root/build/compare/results.json
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --skip-install) install=false; shift; continue ;;
    --rounds | --only | --data | --json) [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "unknown argument $1" ;;
  esac
  case $1 in
    --rounds) rounds=$2 ;;
    --only) only+=("$2") ;;
    --data) data=$2 ;;
    --json) json=$2 ;;
  esac
  shift 2
done
[[ $rounds =~ ^[1-9][0-9]{0,3}$ ]] || die "--rounds needs a number from 1 to 9999"
for side in "${only[@]}"; do
  [[ " ${known[*]} " == *" $side "* ]] || die "no side $side; there are: ${known[*]}"
done
given=$data
[ -z "$data" ] || data=$(cd "$data" 2>/dev/null && pwd) || die "there is no folder $given (--data, MNIST_DIR)"
mkdir -p "$(dirname "$json")" 2>/dev/null || die "$json can't be written"
json=$(cd "$(dirname "$json")" && pwd)/$(basename "$json")
# Reports this problem before minutes of work.
[ ! -d "$json" ] && (: >"$json.part") 2>/dev/null || die "$json can't be written"
rm -f "$json.part"

cd "$root"
here=$root/bench/compare
work=$root/build/compare
venv=$work/venv
mkdir -p "$work/log"

wanted() {
  [ ${#only[@]} -eq 0 ] || printf '%s\n' "${only[@]}" | grep -qxF -e "$1"
}

sides=()
without=()
leave_out() {
  penstock_say "$1 is left out: $2"
  without+=(--without "$1" "$2")
}

# ---- penstock ------------------------------------------------------------------------------------

# build PRESET TARGET: builds a target. On failure, prints the reason from the log.
build() {
  penstock_say "building $2 in build/$1"
  {
    cmake --preset "$1" --log-level=NOTICE -DPENSTOCK_BUILD_CUDA=OFF &&
      cmake --build --preset "$1" --parallel "$(penstock_jobs)" --target "$2" -- --quiet
  } >"$work/log/$2.log" 2>&1 || {
    tail -n 20 "$work/log/$2.log" >&2
    return 1
  }
}

command -v python3 >/dev/null || (penstock_install python3)
if $install; then (penstock_setup "$root" BENCH) || penstock_say "going on with what there is"; fi

if wanted penstock; then
  build bench penstock_compare || penstock_die "penstock_compare could not be built"
  sides+=(--side penstock "$(printf '%q' "$root/build/bench/bench/compare/penstock_compare")")
  mlp=$root/build/bench/bench/mlp/penstock_mlp_bench
  if build bench penstock_mlp_bench; then
    sides+=(--side penstock_mlp "$(printf 'python3 %q %q' "$here/mlp_peer.py" "$mlp")")
  else
    leave_out penstock_mlp "it could not be built: see $work/log/penstock_mlp_bench.log"
  fi
fi

# ---- the data, the same files for all sides ------------------------------------------------------

data_name=$(python3 "$here/digits.py" "${data:---random}" "$work/data")

# ---- the peers -----------------------------------------------------------------------------------

has_module() { "$venv/bin/python" -c "import $1" >"$work/log/$1.log" 2>&1; }

# get NAME MODULE PACKAGE...: makes `import MODULE` work in the virtual environment, or prints the
# reason for the failure.
get() {
  local name=$1 module=$2 log=$work/log/pip-$1.log
  shift 2
  if [ -x "$venv/bin/python" ] && has_module "$module"; then return; fi
  if ! $install; then
    leave_out "$name" "not installed, and --skip-install was given"
    return 1
  fi
  if [ ! -x "$venv/bin/pip" ]; then (penstock_install python3-venv) || true; fi
  penstock_say "installing $* in build/compare/venv"
  if { [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv"; } >"$log" 2>&1 &&
    timeout 1200 "$venv/bin/pip" install --quiet --progress-bar off --disable-pip-version-check \
      --retries 1 "$@" >>"$log" 2>&1 </dev/null && has_module "$module"; then
    return
  fi
  leave_out "$name" "not installed: see $log and $work/log/$module.log"
  return 1
}

# python_side NAME SCRIPT [ARGUMENT]
python_side() { sides+=(--side "$1" "$(printf '%q ' "$venv/bin/python" "$here/$2" "${@:3}")"); }

has_torch=false
if wanted pytorch || wanted libtorch; then
  if get pytorch torch torch numpy; then has_torch=true; fi
fi
if wanted pytorch && $has_torch; then python_side pytorch pytorch_peer.py; fi

if wanted libtorch && ! $has_torch; then
  leave_out libtorch "it comes with PyTorch, which is left out"
elif wanted libtorch; then
  folder=$("$venv/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
  abi=$("$venv/bin/python" -c 'import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))')
  penstock_say "building libtorch's side in build/compare/libtorch"
  if cmake -S "$here/libtorch" -B "$work/libtorch" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DTORCH_DIR="$folder" -DCMAKE_CXX_FLAGS="-D_GLIBCXX_USE_CXX11_ABI=$abi" \
    >"$work/log/libtorch.log" 2>&1 && cmake --build "$work/libtorch" >>"$work/log/libtorch.log" 2>&1; then
    sides+=(--side libtorch "$(printf '%q' "$work/libtorch/penstock_compare_libtorch")")
  else
    leave_out libtorch "it could not be built: see $work/log/libtorch.log"
  fi
fi

if wanted spdl && get spdl spdl.pipeline spdl numpy; then
  python_side spdl loader_peers.py spdl
fi
if wanted dali && get dali nvidia.dali nvidia-dali-cuda120 numpy; then
  python_side dali loader_peers.py dali
fi

# ---- measurement ---------------------------------------------------------------------------------

[ ${#sides[@]} -gt 0 ] || penstock_die "nothing is left to measure"
penstock_say "measuring: $rounds rounds"
PYTHONDONTWRITEBYTECODE=1 python3 "$here/rounds.py" --rounds "$rounds" --data "$work/data" \
  --data-name "$data_name" --json "$json" "${sides[@]}" ${without[@]+"${without[@]}"}
