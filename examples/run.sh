#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs missing packages (Debian), builds the main example for this machine and runs it: a
# network that is trained on MNIST, fed serially, overlapped, and from resident data. The program
# uses the GPU if the machine has a GPU and a CUDA toolkit, and otherwise the CPU device.
#
#   bash examples/run.sh                   plain MNIST, then with augmentation
#   bash examples/run.sh ARGUMENT...       once, with these arguments
#   bash examples/run.sh --help            prints this and the arguments, and builds nothing
#   bash examples/run.sh --example NAME [ARGUMENT...]
#                                          another example: 10_images reads a folder of images,
#                                          12_tar_shards tar archives, 14_packed_tokens tokens,
#                                          17_arrays npy, npz and records, 18_mds_texts MDS shards,
#                                          19_tables Parquet
#
# Environment: CXX is the compiler. PENSTOCK_JOBS is the number of parallel jobs. MNIST_DIR is the
# folder of the MNIST files. PENSTOCK_CUDA_ARCHITECTURES lists the GPU architectures to compile for,
# instead of the architecture of this machine's GPU.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case " $* " in
  *' -h '* | *' --help '*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    echo && sed -n '/R"(usage: /,/^)"/s/^ .*(usage: .*/The arguments:/; /^The arguments:/,/^)"/{/^)"/!p}' \
      "$root/examples/mlp/main.cpp"
    exit 0
    ;;
esac
# shellcheck source=cmake/setup.sh
. "$root/cmake/setup.sh"

# Finds the CUDA compiler in the locations that cmake/penstock_cuda_language.cmake searches.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" \
    "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [ -n "$candidate" ] && command -v "$candidate"; then return; fi
  done
  return 1
}

example=
if [ "${1:-}" = --example ]; then
  example=${2:-}
  shift "$(($# > 1 ? 2 : 1))"
  mapfile -t known < <(find "$root/examples" -maxdepth 1 -name '[0-9]*.c*' -printf '%f\n' |
    sed 's/\.cp*u*p*$//' | sort)
  [[ -n $example && " ${known[*]} " == *" $example "* ]] ||
    penstock_die "--example '$example': expected one of ${known[*]}"
fi

penstock_setup "$root" EXAMPLES
cuda=OFF
if ! nvcc=$(find_nvcc); then
  penstock_say "CPU device: there is no CUDA toolkit (nvcc) here"
elif ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) ||
  [ -z "$gpu" ]; then
  penstock_say "CPU device: there is a CUDA toolkit ($nvcc), but no GPU (nvidia-smi shows none)"
else
  cuda=ON
  penstock_say "CUDA device: $gpu, and a toolkit ($nvcc)"
fi

target=penstock_${example:-mlp}
penstock_say "building $target in build/examples"
(
  cd "$root"
  cmake --preset examples --log-level=NOTICE "-DPENSTOCK_BUILD_CUDA=$cuda" >/dev/null
  cmake --build --preset examples --parallel "$(penstock_jobs)" \
    --target "$target" -- --quiet
)
if [ -n "$example" ]; then
  exec "$root/build/examples/examples/$target" "$@"
fi

# Does not change the current folder, because --data and --trace may be relative paths.
mlp=$root/build/examples/examples/mlp/$target
if [ $# -gt 0 ]; then
  exec "$mlp" "$@"
fi
penstock_say "plain: reading is cheap"
"$mlp"
penstock_say "--augment: reading costs about as much as a step of the CPU device"
"$mlp" --augment
