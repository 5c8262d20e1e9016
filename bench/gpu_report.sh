#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Checks and measures everything that needs a GPU, in one run of less than six minutes. Needs no
# network.
#
# The order is: facts of the machine and a smoke test of seconds; the tests labelled gpu, tensors of
# PyTorch over a feed's batches, the MLP's kernels compared with the CPU device, NCCL as a world of
# one; the tests and kernels under compute-sanitizer; the measurements that have an aim, each in
# turns with its variants; the other measurements of transfers; the MLP in its four modes; PyTorch
# if it is installed; and then the two steps that may upset a GPU (a held kernel, a kernel that
# faults).
#
#   bash bench/gpu_report.sh OUT                 builds what is not built, then measures
#   bash bench/gpu_report.sh --build             only builds: minutes, also without a GPU
#   bash bench/gpu_report.sh --packed DIR OUT    only measures: runs the programs in DIR, which
#                                                bench/gpu_pack.sh has made
#
# Writes OUT/report.txt, OUT/report.json and OUT/logs.txt: facts of the machine, and the output of
# each step. A step may use its share of the time and the time that earlier steps have left over.
# All shares together are less than 6 minutes. Without a pack the build may take 4 minutes more. A
# step that is cut or fails keeps the rows that it has written, as "partial".
#
# Environment: PENSTOCK_BUILD is the build folder, which is kept (default build/gpu). CMAKE_ARGS has
# more arguments for CMake (-DCMAKE_PREFIX_PATH=... for carried libraries). MNIST_DIR is the folder
# of the MNIST files. PENSTOCK_COMMIT names the sources if git is missing. PENSTOCK_REPORT_SECONDS
# is the limit (350, or 590 with a build); a longer limit lengthens all shares.
# PENSTOCK_REPORT_WITHOUT lists parts that are known to be missing and are left out: sanitizer,
# cublas, nccl. A pack has no NCCL, because of its size: the NCCL of the machine is used, if PyTorch
# has installed it.
#
# If a step fails, is missing, has nothing to do or runs out of time, the report contains that, and
# the next step runs. The report lists each target as reached or missed, and counts claims: shown,
# refuted (a target that was missed, a test that failed) and not measured. Exit status: 0 if every
# step ran and passed and every target was measured, reached or not; 1 otherwise; 2 without a GPU or
# for invalid arguments.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() {
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit "$1"
}

command_line="bash bench/gpu_report.sh $*"
packed=
only_builds=no
case ${1:-} in
  -h | --help) usage 0 ;;
  --build) only_builds=yes ;;
  --packed)
    [ $# -eq 3 ] || usage 2 >&2
    packed=$(cd "$2" && pwd) || exit 2
    shift 2
    ;;
esac
if [ $# -ne 1 ] || { [ $only_builds = no ] && [ "${1#-}" != "$1" ]; }; then usage 2 >&2; fi
if ! command -v python3 >/dev/null; then
  echo "gpu_report: no python3, which puts the report together" >&2
  exit 2
fi
if [ -n "$packed" ]; then
  needs=$(sed -n 's/^glibc //p' "$packed/pack.txt" 2>/dev/null)
  has=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
  if [ -n "$needs" ] && [ -n "$has" ] &&
    [ "$(printf '%s\n' "$needs" "$has" | sort -V | tail -n 1)" != "$has" ]; then
    echo "gpu_report: the pack needs glibc $needs, this machine has $has: pack on an older one" >&2
    exit 2
  fi
fi
root=$(cd "$here/.." && pwd)
build=${PENSTOCK_BUILD:-$root/build/gpu}
usual_limit=590
[ -z "$packed" ] || usual_limit=350
limit=${PENSTOCK_REPORT_SECONDS:-$usual_limit}
without=" ${PENSTOCK_REPORT_WITHOUT:-} "

# ---- the GPU -------------------------------------------------------------------------------------

smi() { timeout -k 2 20 nvidia-smi "$@" 2>/dev/null; }
if [ $only_builds = yes ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
else
  mkdir -p "$1" || exit 2
  out=$(cd "$1" && pwd)
  gpus=$(smi -L)
  if ! grep -q '^GPU' <<<"$gpus"; then
    echo "gpu_report: no GPU here (nvidia-smi shows none): nothing to measure" |
      tee "$out/report.txt" >&2
    exit 2
  fi
fi
steps=$out/gpu_report_steps
# Removes the results of an earlier run.
rm -rf "$steps" "$out/report.json" "$out/report.txt" "$out/logs.txt"
mkdir "$steps" || exit 2

# A single query for the whole run. It keeps the GPU initialized, so that no step pays for that, and
# records the clocks and the link of each measurement. The link saves power when idle, so its
# maximum counts.
watched=timestamp,clocks.sm,clocks.mem,pcie.link.gen.current,pcie.link.width.current
watched+=,utilization.gpu,temperature.gpu,power.draw
watcher=
stop_watching() {
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
  watcher=
}

machine_facts() {
  local file
  uname -srm
  lscpu 2>/dev/null | grep -E '^(Model name|CPU\(s\)|Thread|Core|Socket|NUMA|L3|Hypervisor)'
  grep -E '^(MemTotal|MemAvailable|Hugepagesize)' /proc/meminfo
  for file in /sys/kernel/mm/transparent_hugepage/enabled /sys/fs/cgroup/cpu.max \
    /sys/fs/cgroup/memory.max /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor; do
    [ ! -r "$file" ] || echo "$file: $(<"$file")"
  done
  echo "IOMMU groups: $(find /sys/kernel/iommu_groups -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)"
  echo "locked memory: $(ulimit -l) KiB"
}

if [ $only_builds = no ]; then
  nvidia-smi "--query-gpu=$watched" --format=csv,noheader -lms 500 >"$steps/watched.csv" \
    2>/dev/null </dev/null &
  watcher=$!
  trap stop_watching EXIT
  fields=name,driver_version,compute_cap,memory.total
  fields+=,pcie.link.gen.max,pcie.link.width.max,pcie.link.gen.current
  smi "--query-gpu=$fields" --format=csv,noheader >"$steps/gpu.csv"
  machine_facts >"$steps/machine.txt"
  smi >"$steps/nvidia-smi.log"
fi

# ---- steps ---------------------------------------------------------------------------------------

planned=$SECONDS # the end of this step's share

# note NAME ENDED SECONDS SHARE EXPECTS COMMAND: adds a line to steps.tsv, which gpu_report.py
# evaluates.
note() { (IFS=$'\t' && printf '%s\n' "$*") >>"$steps/steps.tsv"; }

# step NAME SHARE EXPECTS COMMAND...: runs a command within its share of seconds plus the time that
# earlier steps have left over. EXPECTS lists the requirements in addition to status 0, joined by
# commas: json ($steps/NAME.json), tests (some in the log), sanitized (the tool's summary), example
# (its loops trained the same), or "-" for nothing.
step() {
  local name=$1 share=$2 expects=$3 began=$SECONDS status=0 most
  shift 3
  planned=$((planned + (limit > usual_limit ? share * limit / usual_limit : share)))
  most=$((planned - SECONDS))
  [ $most -le $((limit - SECONDS)) ] || most=$((limit - SECONDS))
  if [ $most -lt 2 ]; then
    note "$name" "out of time" 0 "$share" "$expects" "$*"
    return 1
  fi
  if ! command -v "$1" >/dev/null; then
    note "$name" missing 0 "$share" "$expects" "$*"
    echo "== $name: there is no ${1##*/}"
    return 1
  fi
  echo "== $name ($SECONDS s): $*"
  PENSTOCK_STEP=$name timeout -k 5 "$most" "$@" >"$steps/$name.log" 2>&1 </dev/null || status=$?
  note "$name" "$status" $((SECONDS - began)) "$share" "$expects" "$*"
  tail -n 3 "$steps/$name.log"
  return $status
}

# ---- programs ------------------------------------------------------------------------------------

targets=(penstock_gpu_tests penstock_gpu_torch penstock_mlp_gpu_tests penstock_cuda_transfer_bench
  penstock_cuda_graph_wait_bench penstock_mlp_bench penstock_mlp)
[[ $without == *" nccl "* ]] || targets+=(penstock_nccl_on_gpu)

# program NAME: prints the path of the program or loadable library, or a nonexistent path if there
# is none.
program() {
  local found
  if [ -e "$packed/lib/$1.so" ]; then
    echo "$packed/lib/$1.so"
  elif [ -n "$packed" ]; then
    echo "$packed/bin/$1"
  else
    found=$(find "$build" -type f \( -name "$1" -o -name "$1.so" \) -perm -u+x 2>/dev/null |
      sort | sed -n 1p)
    echo "${found:-$build/$1}"
  fi
}

if [ -z "$packed" ]; then
  generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  if [ ! -e "$build/CMakeCache.txt" ]; then
    # shellcheck disable=SC2086
    step configure 40 - cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
      -DPENSTOCK_NATIVE=ON -DPENSTOCK_GOOGLE_BENCHMARK=OFF -DFETCHCONTENT_FULLY_DISCONNECTED=ON \
      ${CMAKE_ARGS:-}
  fi
  known=$(cmake --build "$build" --target help 2>/dev/null)
  if [[ $known == *penstock_nvimgcodec_gpu_tests* ]]; then
    targets+=(penstock_nvimgcodec_gpu_tests)
  fi
  keeps_going=-k
  [ ! -e "$build/build.ninja" ] || keeps_going=-k0
  build_share=195
  [ $only_builds = no ] || build_share=550
  # Builds the targets one by one if that fails: a target whose library is missing does not exist
  # and would end the build.
  jobs=$(nproc)
  if ! step build $build_share - cmake --build "$build" --target "${targets[@]}" \
    --parallel "$jobs" -- $keeps_going; then
    for target in "${targets[@]}"; do
      [ -x "$(program "$target")" ] ||
        step "build-$target" 1 - cmake --build "$build" --target "$target" --parallel "$jobs"
    done
  fi
  if [ $only_builds = yes ]; then
    missing=()
    for target in "${targets[@]}"; do [ -x "$(program "$target")" ] || missing+=("$target"); done
    [ ${#missing[@]} -eq 0 ] && exit 0
    cat "$steps"/*.log >&2
    echo "gpu_report: not built: ${missing[*]}" >&2
    exit 1
  fi
fi
tests=$(program penstock_gpu_tests)
mlp_tests=$(program penstock_mlp_gpu_tests)
transfer=$(program penstock_cuda_transfer_bench)
graph_wait=$(program penstock_cuda_graph_wait_bench)
nccl=$(program penstock_nccl_on_gpu)
nvimgcodec=$(program penstock_nvimgcodec_gpu_tests)
mlp=$(program penstock_mlp_bench)
example=$(program penstock_mlp)
if [ -n "$packed" ] && [ -z "${MNIST_DIR:-}" ] && [ -d "$packed/mnist" ]; then
  export MNIST_DIR=$packed/mnist
fi

# A packed MLP loads cuBLAS on first use, and NCCL's program uses this machine's NCCL. If the loader
# cannot find these libraries, the usual folders are searched.
library_folders() {
  printf '%s\n' "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda*/lib64 \
    /usr/local/cuda*/targets/*/lib
  python3 -c 'import glob, sys
for path in sys.path[1:]:
    print(*glob.glob(path + "/nvidia/*/lib"), sep="\n")' 2>/dev/null
}
# find_libraries FILE...: links only these files, so that no other CUDA runtime comes with them.
find_libraries() {
  local folder file
  if [ -z "$1" ] || grep -qF "$1 " <<<"$(ldconfig -p 2>/dev/null)"; then return; fi
  while read -r folder; do
    for file in "$@"; do [ -e "$folder/$file" ] || continue 2; done
    mkdir -p "$steps/libraries"
    for file in "$@"; do ln -sf "$folder/$file" "$steps/libraries"; done
    return
  done < <(library_folders)
}
if [ -n "$packed" ]; then
  chmod u+x "$packed"/bin/* 2>/dev/null # some ways to copy a folder lose the permission
  cublas=$(sed -n 's/^cublas //p' "$packed/pack.txt" 2>/dev/null)
  find_libraries "$cublas" "${cublas/cublas/cublasLt}"
  find_libraries libnccl.so.2
  [ ! -d "$steps/libraries" ] ||
    export LD_LIBRARY_PATH=$steps/libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# ---- correctness ---------------------------------------------------------------------------------

# Runs each kind of transfer once, so that a machine on which nothing runs is reported before
# minutes are spent.
step smoke 6 json "$transfer" --quick --json "$steps/smoke.json"

# The two tests that a faulty device could make wait forever or that could end the process run
# separately. The names are spelled out, because in "${names[@]/#/~}" bash takes the tilde for the
# home directory. Without '~[.]' Catch2 2 adds the hidden tests to a selection that consists only of
# exclusions.
contract='a GPU keeps the contract*'
fault='a kernel fault*'
not_apart=('~[.]' '~a GPU keeps the contract*' '~a kernel fault*')
step tests 8 tests "$tests" --durations yes "${not_apart[@]}"
has_torch=no
if python3 -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch") is None)'; then
  has_torch=yes
  step torch 9 tests python3 "$here/gpu_torch.py" "$(program penstock_gpu_torch)"
else
  note torch absent 0 0 tests "there is no PyTorch here"
fi
step mlp-tests 9 tests "$mlp_tests" 12800
if [[ $without == *" nccl "* ]]; then
  note nccl "left out" 0 0 tests "requested by PENSTOCK_REPORT_WITHOUT"
elif [ -n "$packed" ] && [ ! -e "$nccl" ]; then
  note nccl "left out" 0 0 tests "the pack has no program for NCCL"
elif [[ $(ldd "$nccl" 2>/dev/null) == *"libnccl.so.2 => not found"* ]]; then
  note nccl "left out" 0 0 tests "there is no libnccl.so.2 here"
else
  step nccl 4 tests "$nccl"
fi

# nvImageCodec finds its extensions, and these find nvJPEG, in the pack or in the toolkit.
if [ -e "$nvimgcodec" ]; then
  [ ! -d "$packed/lib/extensions" ] || export NVIMGCODEC_EXTENSIONS_PATH=$packed/lib/extensions
  path=${packed:+$packed/lib:}${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
  step nvimgcodec 12 tests env "LD_LIBRARY_PATH=$path" "$nvimgcodec"
else
  note nvimgcodec "left out" 0 0 tests "built without nvImageCodec"
fi

# Finds out whether cuBLAS works here.
mlp_run() {
  local name=mlp-$1 share=$2
  shift 2
  step "$name" "$share" json "$mlp" --device cuda --json "$steps/$name.json" "$@"
}
with_cublas=yes
if [[ $without == *" cublas "* ]]; then
  with_cublas=no
  note mlp-cublas "left out" 0 0 json "requested by PENSTOCK_REPORT_WITHOUT"
else
  mlp_run cublas 4 --kernels cublas --mode resident --epochs 1 --samples 640 || with_cublas=no
fi

# ---- compute-sanitizer ---------------------------------------------------------------------------

# Checks memory errors in all kernels, and races and barriers in the MLP's kernels, the only ones
# with shared memory. Excludes two tests: in the first a kernel must fault, and in the second the
# host holds kernels, which would block a tool that serializes kernels. API errors are not counted,
# because a test makes some on purpose. Steps of 300 samples take racecheck two minutes on an H100,
# so it gets 64.
sanitized() {
  local name=$1 share=$2
  shift 2
  if [[ $without == *" sanitizer "* ]]; then
    note "$name" "left out" 0 0 sanitized "requested by PENSTOCK_REPORT_WITHOUT"
    return
  fi
  step "$name" "$share" tests,sanitized "$sanitizer" --error-exitcode 1 "$@"
}
sanitizer=$(command -v compute-sanitizer ||
  ls /usr/local/cuda*/{bin,compute-sanitizer}/compute-sanitizer 2>/dev/null)
sanitizer=$(sed -n 1p <<<"${sanitizer:-compute-sanitizer}")
sanitized memcheck 14 --tool memcheck --report-api-errors no "$tests" "${not_apart[@]}"
sanitized initcheck 10 --tool initcheck "$tests" "${not_apart[@]}"
sanitized leak-check 4 --tool memcheck --leak-check full --report-api-errors no \
  "$tests" "a program's own capture*"
sanitized memcheck-mlp 10 --tool memcheck --report-api-errors no "$mlp_tests" 640
sanitized racecheck-fused 35 --tool racecheck "$mlp_tests" 65 fused
sanitized synccheck-fused 4 --tool synccheck "$mlp_tests" 640 fused
if [ $with_cublas = yes ]; then # separate, because races here may be cuBLAS's own
  sanitized racecheck-cublas 35 --tool racecheck "$mlp_tests" 65 cublas
else
  note racecheck-cublas "left out" 0 0 sanitized "no cuBLAS"
fi

# ---- measurements --------------------------------------------------------------------------------

# rows NAME SHARE PROGRAM ARGUMENT...: runs a benchmark that writes rows.
rows() {
  local name=$1 share=$2
  shift 2
  step "$name" "$share" json "$@" --json "$steps/$name.json"
}
# What has an aim. A program measures the variants of a group in turns.
rows results 6 "$transfer" --group download
rows graph-wait 12 "$graph_wait"
rows bulk 8 "$transfer" --group bulk
rows registered 14 "$transfer" --group bandwidth
step example 6 example "$example" --device cuda --workers 8
step example-augment 9 example "$example" --device cuda --workers 8 --augment

other=()
for group in versions tiny loaders fed; do
  other+=(--group "$group")
done
rows transfer 22 "$transfer" "${other[@]}"

wide=()
[ $with_cublas = yes ] || wide=(--kernels fused)
mlp_run modes 6 --workers 8 --repeat 3
mlp_run seeds 5 --workers 8 --mode overlapped --seeds 1,2,3,4,5
mlp_run augment 13 --workers 8 --augment
mlp_run wide 6 --workers 8 --workload wide "${wide[@]}"
mlp_run no-graph 4 --workers 8 --no-graph

# ---- PyTorch beside it ---------------------------------------------------------------------------

if [ $has_torch = yes ]; then
  step pytorch 38 json python3 "$here/pytorch_mnist.py" --epochs 1 --json "$steps/pytorch.json"
else
  note pytorch absent 0 0 json "there is no PyTorch here"
fi

# ---- what may upset a GPU ------------------------------------------------------------------------

step tests-contract 4 tests "$tests" "$contract"
step tests-fault 4 tests "$tests" "$fault"

# ---- the report ----------------------------------------------------------------------------------

commit=$(sed -n 's/^commit //p' "$packed/pack.txt" 2>/dev/null)
if [ -z "$commit" ]; then
  commit=$(git -C "$root" describe --always --dirty 2>/dev/null)
  commit=${commit:-${PENSTOCK_COMMIT:-unknown}}
fi
status=0
stop_watching
python3 "$here/gpu_report.py" "$out" --commit "$commit" --command "$command_line" \
  --pack "$packed" || status=1
[ ! -s "$out/report.txt" ] || cat "$out/report.txt"
exit $status
