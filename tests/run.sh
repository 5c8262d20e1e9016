#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs what is missing (Debian), builds and runs the tests.
#
#   bash tests/run.sh                      preset release: shows that the library works here
#   bash tests/run.sh --all                all tests, like CI: presets full, asan, tsan, aarch64
#   bash tests/run.sh PRESET...            these presets; others are dev and clang
#   bash tests/run.sh asan -- -R shuffle   passes the words after -- to ctest
#
# Environment: CXX is the compiler. PENSTOCK_JOBS is the number of jobs. MNIST_DIR is the folder of
# the MNIST files, for the tests that read them. PENSTOCK_SEEDS is the number of orders that the
# fake CUDA runtime tries. PENSTOCK_MINUTES limits the time: a preset after the first is skipped if
# it would end after this number of minutes, estimated from the first preset. The end of the output
# names skipped presets. The last line is "N passed, N failed, N skipped" over all presets.
# tests/README.md describes what each preset proves.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cmake/setup.sh
. "$root/cmake/setup.sh"

presets=()
all=no
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --all) all=yes; presets+=(full asan tsan); shift ;;
    -*) penstock_die "unknown option $1: ctest's own options follow a --" ;;
    *) presets+=("$1"); shift ;;
  esac
done
omitted=()
if [ $all = yes ]; then
  if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null; then
    presets+=(aarch64)
  else
    omitted+=("aarch64 (Debian: g++-aarch64-linux-gnu qemu-user)")
  fi
  command -v clang++ >/dev/null || omitted+=("headers by clang++ (Debian: clang)")
  command -v "${CUDACXX:-nvcc}" >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    omitted+=("what needs nvcc")
elif [ ${#presets[@]} -eq 0 ]; then
  presets=(release)
  omitted=("sanitizers, models, mutants, fuzz rounds, each header alone, examples, many seeds," \
    "statistics of orders, large data, some formats" \
    "(all of them: bash tests/run.sh --all)")
fi

cd "$root"
case " ${presets[*]} " in
  *' dev '* | *' clang '* | *' full '*) penstock_setup "$root" TESTS ALL_TESTS BENCH EXAMPLES ;;
  *) penstock_setup "$root" TESTS ;;
esac

# With a sanitizer, compiling with clang++ takes half the time of g++.
sanitizers_by_clang() {
  [ -z "${CXX:-}" ] && command -v clang++ >/dev/null || return 1
  local flags
  for flags in address,undefined thread; do
    clang++ -x c++ "-fsanitize=$flags" -o /dev/null - <<<'int main() {}' 2>/dev/null || return 1
  done
}

# If nvcc is installed but there is no GPU, device code is compiled but does not run, so a single
# architecture is enough.
gpu=yes
if ! nvidia-smi -L >/dev/null 2>&1; then
  gpu=no
  export PENSTOCK_CUDA_ARCHITECTURES=${PENSTOCK_CUDA_ARCHITECTURES:-90}
fi

# Reuses the results of earlier compiles if ccache is installed.
options=(-DPENSTOCK_WARNINGS_AS_ERRORS=ON)
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
fi

passed=0
failed=0
skipped=0
failures=() # names, repeated at the end of the output
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# count_tests JUNIT: adds ctest's counts to the totals. Fails if ctest ran no test.
count_tests() {
  local suite tests bad left
  suite=$(tr '\n\t' '  ' <"$1" 2>/dev/null | grep -o '<testsuite [^>]*>') || return 1
  tests=$(sed -n 's/.* tests="\([0-9]*\)".*/\1/p' <<<"$suite")
  bad=$(sed -n 's/.* failures="\([0-9]*\)".*/\1/p' <<<"$suite")
  left=$(sed -n 's/.* skipped="\([0-9]*\)".*/\1/p' <<<"$suite")
  [ -n "$tests" ] && [ -n "$bad" ] && [ -n "$left" ] && [ $((tests - left)) -gt 0 ] || return 1
  passed=$((passed + tests - bad - left))
  failed=$((failed + bad))
  skipped=$((skipped + left))
}

# failed_tests JUNIT: prints the names of the failed tests, one per line.
failed_tests() {
  sed -n 's/.*<testcase name="\([^"]*\)".* status="fail".*/\1/p' "$1" |
    sed "s/&apos;/'/g; s/&quot;/\"/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g"
}

first=0 # duration of the first preset in seconds
for preset in "${presets[@]}"; do
  [ "$preset" = "${presets[0]}" ] || [ $first -gt 0 ] || first=$SECONDS
  # asan takes a quarter to a third of the time of `full`, and tsan an eighth to a sixth.
  case $preset in
    asan) share=3 ;;
    tsan) share=6 ;;
    *) share=5 ;;
  esac
  if [ $((SECONDS + first / share)) -ge $((60 * ${PENSTOCK_MINUTES:-1440})) ]; then
    omitted+=("$preset (would not end within $PENSTOCK_MINUTES minutes)")
    continue
  fi
  under=()
  more=()
  case $preset in
    asan | tsan)
      read -r -a under <<<"$(penstock_no_aslr)" || true
      ! sanitizers_by_clang || more=(-DCMAKE_CXX_COMPILER=clang++)
      ;;
    release) [ $gpu = no ] || more=(-DPENSTOCK_BUILD_CUDA=ON) ;;
  esac
  penstock_say "$preset: configure and build"
  # The build also runs without ASLR, because it starts the test programs to list their test cases.
  if ! "${under[@]}" cmake --preset "$preset" "${options[@]}" "${more[@]}" --log-level=NOTICE ||
    ! "${under[@]}" cmake --build --preset "$preset" --parallel "$(penstock_jobs)" -- --quiet -k 0; then
    penstock_say "$preset: the build failed"
    failed=$((failed + 1))
    failures+=("$preset: its build")
    continue
  fi
  # A room registers no tests if its library is missing, which would otherwise go unnoticed.
  if [ "$preset" = full ]; then
    labels=$(ctest --preset full --print-labels 2>/dev/null | tr -s ' \n' ' ')
    for folder in tests/*/ tests/ext/*/; do
      case $(basename "$folder") in
        cmake | ext | fuzz | support) ;; # not rooms, or rooms with tests only in asan
        *) case "$labels " in
          *" $(basename "$folder") "*) ;;
          *) omitted+=("$folder (a library is missing)") ;;
        esac ;;
      esac
    done
  fi
  penstock_say "$preset: test"
  status=0
  before=$failed
  report=$work/$preset.xml
  "${under[@]}" ctest --preset "$preset" --parallel "$(penstock_jobs)" --output-junit "$report" "$@" ||
    status=$?
  if ! count_tests "$report"; then
    penstock_say "$preset: ctest ran no test"
    failed=$((failed + 1))
    failures+=("$preset: ctest ran no test")
  elif [ "$status" -ne 0 ] && [ "$failed" -eq "$before" ]; then
    failed=$((failed + 1)) # also counts a failure that ctest did not report
    failures+=("$preset: ctest, which names no test")
  elif [ "$failed" -gt "$before" ]; then
    while read -r name; do failures+=("$preset: $name"); done < <(failed_tests "$report")
  fi
done

if [ $all = yes ]; then
  for preset in "${presets[@]}"; do
    [ ! -f "$work/$preset.xml" ] || bash tests/costs.sh "build/$preset" "$work/$preset.xml"
  done
fi
[ ${#omitted[@]} -eq 0 ] || penstock_say "left out: ${omitted[*]}"
[ $((passed + failed)) -gt 0 ] || failed=1
[ ${#failures[@]} -eq 0 ] || printf '== failed: %s\n' "${failures[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
