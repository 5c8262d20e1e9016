#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Builds a pack of the GPU report programs with nvcc, moves it away from its build folder, and
# starts each program and the report, which does not measure without a GPU. Packs the programs that
# the preset `full` does not build.
#
#   bash tests/bench/gpu_pack_test.sh FOLDER       the script empties the folder
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$1
fail() {
  echo "gpu_pack_test: $*" >&2
  exit 1
}

rm -rf "${folder:?}"
mkdir -p "$folder"
# The programs are only started, so they need not be fast.
export CMAKE_ARGS="-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_CUDA_FLAGS_RELEASE=-O0 ${CMAKE_ARGS:-}"
programs=(penstock_cuda_transfer_bench penstock_cuda_graph_wait_bench penstock_gpu_torch)
if bash "$root/bench/gpu_pack.sh" "$folder/none" --build "$folder/build" --only penstock_none \
  2>"$folder/log"; then
  fail "a program of no such name was packed"
fi
grep -q -- '--only penstock_none: one of penstock_gpu_tests' "$folder/log" || fail "$(cat "$folder/log")"
only=$(IFS=, && echo "${programs[*]}")
bash "$root/bench/gpu_pack.sh" "$folder/pack" --build "$folder/build" --only "$only"
mv "$folder/pack" "$folder/elsewhere"
rm -rf "$folder/build"

count=0
for program in "$folder"/elsewhere/bin/*; do
  status=0
  "$program" --help >"$folder/log" 2>&1 || status=$?
  case $status in
    0 | 2 | 77) count=$((count + 1)) ;; # usage printed, or no GPU
    *) cat "$folder/log" && fail "${program##*/} ends with status $status" ;;
  esac
done
[ $count -eq 2 ] || fail "$count programs in the pack"
[ -e "$folder/elsewhere/lib/penstock_gpu_torch.so" ] || fail "no library for Python in the pack"

if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  status=0
  bash "$folder/elsewhere/gpu_report.sh" --packed "$folder/elsewhere" "$folder/out" \
    >"$folder/log" 2>&1 || status=$?
  grep -q 'no GPU here' "$folder/log" || { cat "$folder/log" && fail "no word of the GPU"; }
  [ $status -eq 2 ] || fail "the report ends with status $status"
fi
rm -rf "${folder:?}"
