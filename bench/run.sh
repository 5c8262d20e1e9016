#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs missing packages (Debian), builds and runs every benchmark, and writes the results to one
# file, with a table next to it.
#
#   bash bench/run.sh                      all except compare; about ten minutes on two cores
#   bash bench/run.sh --only NAME          only this program; may be repeated
#   bash bench/run.sh --compare            also the loaders of PyTorch and others: downloads them
#   bash bench/run.sh --out DIR            writes the results there instead of to bench/results
#
# Names: batch_queue_bench and so on, one for each bench/*_bench.cpp; compile_cost, mlp,
# mlp_augment, compare. Writes DIR/<date>-<cpu>-<commit>.json and .md: see bench/README.md.
#
# If a program fails, the failure is recorded in the results and the next program runs. Exit status:
# 0 if no program failed, 1 if a program failed, 2 for invalid arguments. A skipped program is not a
# failure.
#
# Environment: CXX is the compiler. PENSTOCK_JOBS is the number of parallel jobs. MNIST_DIR is the
# folder of the MNIST files. PENSTOCK_COMMIT identifies the sources if git is missing.
# PENSTOCK_BENCH_SECONDS limits the time of each program (default 900; the first run of compare,
# which installs packages, needs 1500).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cmake/setup.sh
. "$root/cmake/setup.sh"
command_line="bash bench/run.sh $*"
began=$(date -u +%Y-%m-%dT%H:%M:%SZ)
load_before=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo 0)

die() {
  printf 'run.sh: %s; --help tells more\n' "$*" >&2
  exit 2
}

benches=()
for file in "$root"/bench/*_bench.cpp; do
  if [ -e "$file" ]; then benches+=("$(basename "$file" .cpp)"); fi
done
known=("${benches[@]}" compile_cost mlp mlp_augment compare)
is_known() { printf '%s\n' "${known[@]}" | grep -qxF -e "$1"; }

only=()
compare=false
out=$root/bench/results
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      [ $# -ge 2 ] || die "--only needs a name"
      is_known "$2" || die "no program $2; there are: ${known[*]}"
      only+=("$2")
      shift 2
      ;;
    --out)
      [ $# -ge 2 ] || die "--out needs a folder"
      out=$2
      shift 2
      ;;
    --compare) compare=true; shift ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "unknown argument $1" ;;
  esac
done

# wanted NAME: succeeds if the options request this program. compare must be requested by name.
wanted() {
  if [ "$1" = compare ] && $compare; then return 0; fi
  if [ ${#only[@]} -eq 0 ]; then [ "$1" != compare ]; return; fi
  printf '%s\n' "${only[@]}" | grep -qxF -e "$1"
}

mkdir -p "$out" 2>/dev/null || die "$out is no folder that can be made"
[ -w "$out" ] || die "$out can't be written"
out=$(cd "$out" && pwd)
cd "$root"
command -v python3 >/dev/null || penstock_install python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/steps.tsv"

# note NAME STATUS SECONDS COMMAND...: records the end of a step.
note() {
  local name=$1 ended=$2 seconds=$3
  shift 3
  printf '%s\t%s\t%s\t%s\n' "$name" "$ended" "$seconds" "$*" >>"$work/steps.tsv"
}

# step NAME COMMAND...: runs a program that writes its results to the file JSON in its command.
step() {
  local name=$1 status=0 start=$SECONDS ended word command=()
  shift
  for word in "$@"; do command+=("${word/#JSON/$work/$name.json}"); done
  penstock_say "$name: $*"
  timeout -k 10 "${PENSTOCK_BENCH_SECONDS:-900}" "${command[@]}" 2>&1 | tee "$work/$name.log" ||
    status=${PIPESTATUS[0]}
  case $status in
    0)
      ended=passed
      python3 -m json.tool "$work/$name.json" >/dev/null 2>&1 || ended="failed: it wrote no JSON"
      ;;
    77) ended="skipped: $(tail -n 1 "$work/$name.log")" ;;
    124 | 137) ended="failed: time limit" ;;
    *) ended="failed: status $status: $(tail -n 1 "$work/$name.log")" ;;
  esac
  [ "$ended" = passed ] || penstock_say "$name: $ended"
  note "$name" "${ended//$'\t'/ }" $((SECONDS - start)) "${*//$root\//}"
}

# build PRESET FOLDER TARGET...: builds as a separate step, so that the programs that were built
# still run after a failure. First removes programs of an earlier build, because they would be
# measured as if built from these sources.
build() {
  local preset=$1 folder=build/$1/$2 start=$SECONDS
  shift 2
  penstock_say "building $* in build/$preset"
  if [ -d "$folder" ]; then (cd "$folder" && rm -f "$@"); fi
  if cmake --preset "$preset" --log-level=NOTICE -DPENSTOCK_BUILD_CUDA=OFF >/dev/null &&
    cmake --build --preset "$preset" --parallel "$(penstock_jobs)" --target "$@" -- --quiet -k 0; then
    return
  fi
  note "build_$preset" "failed: see the compiler's messages" $((SECONDS - start)) \
    "cmake --preset $preset && cmake --build --preset $preset --target $*"
  penstock_say "building $* failed; what did build is run"
}

# ---- build everything before measuring ----------------------------------------------------------

run=()
for name in "${benches[@]}"; do
  if wanted "$name"; then run+=("$name"); fi
done
mlp=false
if wanted mlp || wanted mlp_augment; then mlp=true; fi
parts=()
if [ ${#run[@]} -gt 0 ] || $mlp; then parts+=(BENCH); fi
[ ${#parts[@]} -eq 0 ] || penstock_setup "$root" "${parts[@]}"
[ ${#run[@]} -eq 0 ] || build bench bench "${run[@]/#/penstock_}"
! $mlp || build bench bench/mlp penstock_mlp_bench

# ---- measure, one program at a time --------------------------------------------------------------

for name in "${run[@]}"; do step "$name" "build/bench/bench/penstock_$name" --json JSON; done
mlp_command=(build/bench/bench/mlp/penstock_mlp_bench --device host --repeat 7 --json JSON)
if wanted mlp; then step mlp "${mlp_command[@]}"; fi
if wanted mlp_augment; then step mlp_augment "${mlp_command[@]}" --augment; fi
if wanted compile_cost; then step compile_cost python3 bench/compile_cost.py --json JSON; fi
if wanted compare; then step compare bash bench/compare.sh --json JSON; fi

# ---- merge all results ---------------------------------------------------------------------------

commit=${PENSTOCK_COMMIT:-$(git rev-parse --short=10 HEAD 2>/dev/null || echo unknown)}
dirty=null
if changed=$(git status --porcelain -- . ':!bench/results' 2>/dev/null); then
  if [ -n "$changed" ]; then dirty=true; else dirty=false; fi
fi
compiler=$("${CXX:-g++}" --version 2>/dev/null | head -n 1 || true)
export command_line began load_before commit dirty compiler
file=$(python3 bench/report.py --merge "$work" "$out")
python3 bench/report.py "$file"
# A skipped program is not a failure.
if grep -q $'\tfailed: ' "$work/steps.tsv"; then
  penstock_say "failed: $(grep $'\tfailed: ' "$work/steps.tsv" | cut -f 1 | paste -sd ' ')"
  exit 1
fi
