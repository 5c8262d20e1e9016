#!/usr/bin/env bash
# Installs what is missing (Debian), builds and runs the tests.
#
#   bash tests/run.sh                      presets release, asan and tsan
#   bash tests/run.sh tsan                 only this one; also there: dev, clang
#   bash tests/run.sh asan -- -R shuffle   what follows -- goes to ctest
#
# Environment: CXX the compiler; PENSTOCK_JOBS jobs at once; MNIST_DIR the folder of the MNIST
# files, for the tests that read them. Ends with "N passed, N failed" over all presets.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cmake/setup.sh
. "$root/cmake/setup.sh"

presets=()
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) penstock_die "unknown option $1: ctest's own options follow a --" ;;
    *) presets+=("$1"); shift ;;
  esac
done
[ ${#presets[@]} -gt 0 ] || presets=(release asan tsan)

cd "$root"
penstock_setup "$root" TESTS BENCH EXAMPLES

# Where there is nvcc and no GPU, its code is compiled and not run: for one architecture is enough.
if ! nvidia-smi -L >/dev/null 2>&1; then
  export PENSTOCK_CUDA_ARCHITECTURES=${PENSTOCK_CUDA_ARCHITECTURES:-90}
fi

passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

for preset in "${presets[@]}"; do
  under=()
  case $preset in
    asan | tsan) read -r -a under <<<"$(penstock_no_aslr)" || true ;;
  esac
  penstock_say "$preset: configure and build"
  # The build runs under it too: it starts the test programs to ask for their test cases.
  if ! "${under[@]}" cmake --preset "$preset" -DPENSTOCK_WARNINGS_AS_ERRORS=ON --log-level=NOTICE ||
    ! "${under[@]}" cmake --build --preset "$preset" --parallel "$(penstock_jobs)" -- -k 0; then
    penstock_say "$preset: the build failed"
    failed=$((failed + 1))
    continue
  fi
  penstock_say "$preset: test"
  status=0
  "${under[@]}" ctest --preset "$preset" --parallel "$(penstock_jobs)" "$@" 2>&1 | tee "$log" || status=$?
  # "100% tests passed, 0 tests failed out of 12"
  read -r bad all <<<"$(sed -n 's/.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\).*/\1 \2/p' "$log")" ||
    true
  if [ -z "${all:-}" ]; then
    penstock_say "$preset: ctest ran no test"
    failed=$((failed + 1))
    continue
  fi
  passed=$((passed + all - bad))
  failed=$((failed + bad))
  # A failure that ctest did not count is one all the same.
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then failed=$((failed + 1)); fi
done

[ $((passed + failed)) -gt 0 ] || failed=1
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
