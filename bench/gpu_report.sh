#!/usr/bin/env bash
# Everything that is measured and checked on a GPU, in one run of less than 8 minutes: the tests labelled
# gpu, compute-sanitizer on them, the benchmarks of transfer and transforms, the MLP in its four modes,
# and PyTorch beside it where it is installed. Needs no network: builds with what is installed.
#
#   bash bench/gpu_report.sh OUT           writes OUT/report.json, OUT/report.txt and the steps' logs
#
# Environment: PENSTOCK_BUILD a build folder, kept and used as it is where it has the programs already
# (default build/gpu); CMAKE_ARGS more arguments for CMake (-DCMAKE_PREFIX_PATH=... for carried
# libraries); MNIST_DIR the folder of the MNIST files; PENSTOCK_COMMIT what to call the sources where there
# is no git; PENSTOCK_REPORT_SECONDS the limit (470).
#
# A step that fails or runs out of time stands in the report, and the next one runs. Exit status: 0 if all
# steps passed, 1 if one did not, 2 without a GPU.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
command_line="bash bench/gpu_report.sh $*"
mkdir -p "$1/steps" || exit 2
out=$(cd "$1" && pwd)
build=${PENSTOCK_BUILD:-$root/build/gpu}
limit=${PENSTOCK_REPORT_SECONDS:-470}
steps=$out/steps
: >"$steps/steps.tsv"

left() { echo $((limit - SECONDS)); }

# step NAME SECONDS COMMAND...: runs it within its time and what is left of the whole; notes how it ended.
step() {
  local name=$1 most=$2 began=$SECONDS status=0
  shift 2
  if [ "$(left)" -lt 5 ]; then
    printf '%s\tout of time\t0\t%s\n' "$name" "$*" >>"$steps/steps.tsv"
    return 1
  fi
  if [ "$most" -gt "$(left)" ]; then most=$(left); fi
  echo "== $name ($SECONDS s): $*"
  timeout -k 5 "$most" "$@" >"$steps/$name.log" 2>&1 || status=$?
  case $status in
    0) printf '%s\tpassed' "$name" ;;
    77) printf '%s\tskipped' "$name" ;;
    124 | 137) printf '%s\ttime limit' "$name" ;;
    *) printf '%s\tfailed (%s)' "$name" "$status" ;;
  esac >>"$steps/steps.tsv"
  printf '\t%s\t%s\n' $((SECONDS - began)) "$*" >>"$steps/steps.tsv"
  tail -n 3 "$steps/$name.log"
  return $status
}

# ---- the GPU ---------------------------------------------------------------------------------------

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "gpu_report: no GPU here (nvidia-smi shows none): nothing to measure" | tee "$out/report.txt" >&2
  exit 2
fi
nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,pcie.link.gen.current,pcie.link.width.current \
  --format=csv,noheader >"$steps/gpu.csv" 2>/dev/null
nvidia-smi >"$steps/nvidia-smi.log" 2>&1

# ---- build -----------------------------------------------------------------------------------------

bin() { find "$build" -type f -name "$1" -perm -u+x 2>/dev/null | head -n 1; }

targets=(penstock_gpu_tests penstock_cuda_transfer_bench penstock_cuda_on_device_bench penstock_mlp)
missing=()
for target in "${targets[@]}"; do [ -n "$(bin "$target")" ] || missing+=("$target"); done
if [ ${#missing[@]} -gt 0 ]; then
  generator=()
  command -v ninja >/dev/null && generator=(-G Ninja)
  # shellcheck disable=SC2086
  step configure 60 cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DPENSTOCK_NATIVE=ON -DPENSTOCK_GOOGLE_BENCHMARK=OFF ${CMAKE_ARGS:-}
  for target in "${missing[@]}"; do  # one by one: what can't be built here does not stop the others
    step "build-$target" 240 cmake --build "$build" --target "$target" --parallel "$(nproc)"
  done
fi

# ---- tests, bench, MLP -----------------------------------------------------------------------------

tests=$(bin penstock_gpu_tests)
transfer=$(bin penstock_cuda_transfer_bench)
on_device=$(bin penstock_cuda_on_device_bench)
mlp=$(bin penstock_mlp)

# Apart: the two that a wrong device could make wait for ever, or take the process with them.
apart=('a GPU keeps the contract*' 'a kernel that faults*')
if [ -n "$tests" ]; then
  step tests 90 "$tests" --durations yes "${apart[@]/#/~}"
  step tests-contract 30 "$tests" "${apart[0]}"
  step tests-fault 20 "$tests" "${apart[1]}"
fi
mlp_tests=$(bin penstock_mlp_gpu_tests)
if [ -n "$mlp_tests" ]; then step mlp-tests 60 "$mlp_tests"; fi
if [ -n "$transfer" ]; then step transfer 90 "$transfer" --json "$steps/transfer.json"; fi
if [ -n "$on_device" ]; then step on-device 30 "$on_device" --json "$steps/on-device.json"; fi

mlp_run() {
  local name=$1 most=$2
  shift 2
  step "mlp-$name" "$most" "$mlp" --device cuda --json "$steps/mlp-$name.json" "$@"
}
if [ -n "$mlp" ]; then
  mlp_run modes 60 --workers 8 --repeat 3
  for seed in 1 2 3 4 5; do mlp_run "seed-$seed" 20 --workers 8 --mode overlapped --seed "$seed"; done
  mlp_run augment 45 --workers 8 --augment
  mlp_run wide 45 --workers 8 --workload wide
  for workers in 1 2 4 16; do mlp_run "workers-$workers" 30 --workers "$workers"; done
  mlp_run no-graph 30 --workers 8 --no-graph
  step mlp-steps-table 60 "$mlp" --device cuda --workers 8 --steps-table
fi

# ---- compute-sanitizer -----------------------------------------------------------------------------

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ] && [ -n "$tests" ]; then
  # Not on the two: one has to fault, and in the other the host holds kernels, for which a tool that lets
  # them run one by one would wait.
  for tool in memcheck racecheck synccheck; do
    step "sanitizer-$tool" 60 "$sanitizer" --tool "$tool" --error-exitcode 1 "$tests" \
      "${apart[@]/#/~}"
  done
fi

# ---- PyTorch beside it -----------------------------------------------------------------------------

if python3 -c 'import torch' 2>/dev/null; then
  step pytorch 120 python3 "$root/bench/pytorch_mnist.py" --epochs 2 --json "$steps/pytorch.json"
fi

# ---- the report ------------------------------------------------------------------------------------

commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo "${PENSTOCK_COMMIT:-unknown}")
python3 "$root/bench/gpu_report.py" "$out" --commit "$commit" --command "$command_line" || exit 1
cat "$out/report.txt"
! cut -f 2 "$steps/steps.tsv" | grep -qvE '^(passed|skipped)$'
