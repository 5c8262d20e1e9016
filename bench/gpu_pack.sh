#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Builds everything that bench/gpu_report.sh runs, and puts it into one folder of less than 55 MB.
# The folder runs on a machine that has only a driver and python3: no compiler, no CUDA toolkit, no
# network.
#
#   bash bench/gpu_pack.sh DIR                     here; needs nvcc, no GPU
#   bash DIR/gpu_report.sh --packed DIR OUT        there; takes less than 6 minutes
#
#   --arch LIST       GPUs: compute capabilities without the dot, for example 80,89,90 (default
#                     90). The PTX of the last is included, for later GPUs
#   --march NAME      processors, as g++ names them (default x86-64-v3; on other machines native)
#   --build FOLDER    the build folder, which is kept (default build/gpu-pack)
#   --only LIST       only these programs, by the names of their CMake targets: a,b (default all;
#                     the report lists the missing programs)
#
# Environment: MNIST_DIR is the folder of MNIST's four files, which are then included. CMAKE_ARGS
# has more arguments for CMake. PENSTOCK_COMMIT names the sources if git is missing. PENSTOCK_JOBS
# is the number of parallel jobs.
#
# DIR contains bin/ with the programs, lib/ with the shared libraries that they need, mnist/, the
# report's scripts with those for PyTorch, and pack.txt, which lists the contents. lib/ includes the
# CUDA runtime, and penstock_gpu_torch.so, which PyTorch's Python loads. The C library is not
# included, and must be at least as new there as here. NCCL and cuBLAS are not included either; the
# two files of cuBLAS alone have 600 MB. On the other machine cuBLAS is searched in the folders of
# toolkits and of PyTorch. Without cuBLAS the steps that need it are left out (mlp-cublas and the
# cublas kernels in mlp-tests), and the wide workload uses fused kernels.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
max_bytes=55000000

die() {
  printf 'gpu_pack: %s; --help tells more\n' "$*" >&2
  exit 2
}

dir=
arch=90
march=native
[ "$(uname -m)" != x86_64 ] || march=x86-64-v3
build=$root/build/gpu-pack
only=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --arch | --march | --build | --only)
      [ $# -ge 2 ] || die "$1 needs a value"
      case $1 in
        --arch) arch=$2 ;;
        --march) march=$2 ;;
        --build) build=$2 ;;
        --only) only=$2 ;;
      esac
      shift 2
      ;;
    -*) die "unknown argument $1" ;;
    *)
      [ -z "$dir" ] || die "one folder, not $dir and $1"
      dir=$1
      shift
      ;;
  esac
done
[ -n "$dir" ] || die "into which folder?"
[[ $arch =~ ^[0-9]+[a-f]?(,[0-9]+[a-f]?)*$ ]] || die "--arch $arch is no list like 80,90"
if [ -e "$dir" ] && [ -n "$(ls -A "$dir")" ] && [ ! -e "$dir/pack.txt" ]; then
  die "$dir is not empty, and no pack of an earlier call"
fi

# ---- build ---------------------------------------------------------------------------------------

architectures=${arch//,/-real;}
launchers=()
if command -v ccache >/dev/null; then
  launchers=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
generator=()
if command -v ninja >/dev/null && [ ! -e "$build/CMakeCache.txt" ]; then generator=(-G Ninja); fi
targets=(penstock_gpu_tests penstock_gpu_torch penstock_mlp_gpu_tests penstock_cuda_transfer_bench
  penstock_cuda_graph_wait_bench penstock_mlp_bench penstock_mlp)
# shellcheck disable=SC2086
cmake -S "$root" -B "$build" "${generator[@]}" "${launchers[@]}" -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_CUDA_ARCHITECTURES=$architectures" "-DCMAKE_CXX_FLAGS=-march=$march" \
  "-DCMAKE_CUDA_FLAGS=-Xcompiler=-march=$march" "-DCMAKE_BUILD_RPATH=\$ORIGIN/../lib" \
  -DPENSTOCK_MLP_CUBLAS_ON_DEMAND=ON -DPENSTOCK_GOOGLE_BENCHMARK=OFF -DPENSTOCK_INSTALL=OFF \
  ${CMAKE_ARGS:-} --log-level=NOTICE
# Targets that are built only if their library is found.
known=$(cmake --build "$build" --target help)
for target in penstock_nccl_on_gpu penstock_nvimgcodec_gpu_tests; do
  [[ $known != *"$target"* ]] || targets+=("$target")
done
if [ -n "$only" ]; then
  for target in ${only//,/ }; do
    [[ " ${targets[*]} " == *" $target "* ]] || die "--only $target: one of ${targets[*]}"
  done
  read -r -a targets <<<"${only//,/ }"
fi
cmake --build "$build" --target "${targets[@]}" --parallel "${PENSTOCK_JOBS:-$(nproc)}"

# ---- pack ----------------------------------------------------------------------------------------

rm -rf "${dir:?}"/{bin,lib,mnist,pack.txt,gpu_report.sh,gpu_report.py,gpu_torch.py,pytorch_mnist.py}
mkdir -p "$dir/bin" "$dir/lib"
: >"$dir/pack.txt" # marks the folder as a pack, even if this script ends early
for target in "${targets[@]}"; do
  found=$(find "$build" -type f \( -name "$target" -o -name "$target.so" \) -perm -u+x)
  case $found in
    *.so) strip -o "$dir/lib/$target.so" "$found" ;; # Python loads it
    *) strip -o "$dir/bin/$target" "$found" ;;
  esac
done
packed=()
for file in "$dir"/bin/* "$dir"/lib/*.so; do [ ! -e "$file" ] || packed+=("$file"); done

# Copies the linked libraries except the C library and its loader, which belong to the machine, and
# NCCL, which is too large.
machines='^(ld-linux.*|libc|libm|libpthread|libdl|librt|libresolv|libnccl)\.so'
linked=$(ldd "${packed[@]}")
if [[ $linked == *"not found"* ]]; then
  die "not found here: $(sed -n 's/^\t\([^ ]*\) => not found.*/\1/p' <<<"$linked" | sort -u | tr '\n' ' ')"
fi
while read -r name path; do
  [[ $name =~ $machines ]] || cp -L "$path" "$dir/lib/$name"
done < <(sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' <<<"$linked" | sort -u)
# nvImageCodec loads its JPEG decoder, which loads nvJPEG; a toolkit has nvJPEG too.
if [ -e "$dir/bin/penstock_nvimgcodec_gpu_tests" ]; then
  library=$(sed -n 's/^penstock_nvimgcodec_library:[A-Z]*=//p' "$build/CMakeCache.txt")
  mkdir "$dir/lib/extensions"
  for name in nvjpeg jpeg_turbo; do
    cp -L "${library%/*}"/extensions/lib${name}_ext.so* "$dir/lib/extensions"
  done
  for nvjpeg in "${library%/*}"/../{cu13,nvjpeg}/lib/libnvjpeg.so.*; do
    [ ! -e "$nvjpeg" ] || cp -L "$nvjpeg" "$dir/lib"
  done
fi
for program in "${packed[@]}"; do
  # Does not pipe to grep -q, which ends at its first match: the writer would get a broken pipe.
  section=$(readelf -d "$program")
  if [[ $section == *libcublas* ]]; then die "${program##*/} is linked with cuBLAS"; fi
  [[ $section == *PATH*ORIGIN/../lib* ]] ||
    die "${program##*/} does not look into lib"
done

cp "$root"/bench/{gpu_report.sh,gpu_report.py,gpu_torch.py,pytorch_mnist.py} "$dir"
if [ -n "${MNIST_DIR:-}" ]; then
  mkdir "$dir/mnist"
  for name in {train,t10k}-{images-idx3,labels-idx1}-ubyte; do
    if [ -e "$MNIST_DIR/$name.gz" ]; then
      install -m 644 "$MNIST_DIR/$name.gz" "$dir/mnist"
    else
      gzip -c "$MNIST_DIR/$name" >"$dir/mnist/$name.gz"
    fi
  done
fi

nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
nvcc=${nvcc:-nvcc}
cublas=$("$nvcc" -x cu -E - <<<$'#include <cublas_v2.h>\nCUBLAS_VER_MAJOR' | tail -n 1)
[[ $cublas =~ ^[0-9]+$ ]] || die "which cuBLAS? $nvcc does not tell"
cat >"$dir/pack.txt" <<END
commit $(git -C "$root" describe --always --dirty 2>/dev/null || echo "${PENSTOCK_COMMIT:-unknown}")
packed $(date -u +%Y-%m-%dT%H:%M:%SZ)
nvcc $("$nvcc" --version | sed -n 's/.*release \(.*\)/\1/p')
compiler $("${CXX:-c++}" --version | sed -n 1p)
architectures $architectures
processors $march
glibc $(getconf GNU_LIBC_VERSION | sed 's/.* //')
cublas libcublas.so.$cublas
data $([ -d "$dir/mnist" ] && echo MNIST || echo "none: random digits")
END

bytes=$(du -sb "$dir" | cut -f 1)
cat "$dir/pack.txt"
du -sh "$dir"/*
echo "gpu_pack: $((bytes / 1000000)) MB in $dir"
[ "$bytes" -lt $max_bytes ] || die "more than $((max_bytes / 1000000)) MB: fewer --arch"
