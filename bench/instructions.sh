#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Counts the instructions of each part of the flow per sample, with valgrind --tool=callgrind.
# Unlike times, these counts are reproducible.
#
#   bash bench/instructions.sh                prints a table
#   bash bench/instructions.sh --json FILE    also writes the table as JSON
#
# Every part runs with two different batch counts, and the difference is reported, which excludes
# one-time work. The program is compiled separately and without -march=native, because valgrind does
# not know every instruction that a machine may have. A thread that waits for another thread spins
# and yields for a bounded time. These instructions are counted too, and valgrind runs one thread at
# a time, so the last digits may vary.
#
# Environment: CXX is the compiler (g++). CXXFLAGS contains additional flags, such as -I for Boost's
# headers. Exits with 77 if valgrind is missing.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

json=
case "$#:${1:-}" in
  0:) ;;
  2:--json) json=$2 ;;
  *)
    echo "usage: instructions.sh [--json FILE]" >&2
    exit 2
    ;;
esac
if ! command -v valgrind >/dev/null; then
  echo "instructions.sh: valgrind is not installed (Debian: valgrind): nothing was counted" >&2
  exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra flags <<<"${CXXFLAGS:-}"
"${CXX:-g++}" -std=c++20 -O3 -DNDEBUG -I"$root/include" ${flags[@]+"${flags[@]}"} \
  "$root/bench/instructions.cpp" -o "$work/instructions" -pthread

# counts PART BATCH_SIZE BATCHES: prints the instructions of each thread.
counts() {
  rm -f "$work"/count-*
  if ! valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$work/count" \
    "$work/instructions" "$1" "$2" "$3" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    return 1
  fi
  sed -n 's/^totals: //p' "$work"/count-*
}

few=2000
many=6000
batch=64
for part in plain inline worker guarded transfer; do
  low=$(counts "$part" "$batch" "$few")
  high=$(counts "$part" "$batch" "$many")
  echo "$part $(awk -v more="$((many - few))" -v batch="$batch" '
    NR == FNR { low += $1; next } { high += $1 }
    END { printf "%.1f", (high - low) / more / batch }' <(echo "$low") <(echo "$high"))"
done >"$work/rows"

# Columns: part, instructions per sample.
awk -v json="$json" -v batch="$batch" '
  {
    name = $1 "/batch:" batch
    printf "%-18s %8.1f a sample\n", name, $2
    rows = rows (rows == "" ? "" : ",\n  ") "{\"name\": \"" name \
      "\", \"instructions_per_sample\": " $2 "}"
    if ($1 == "plain") plain = $2
    if ($1 !~ /inline|worker|guarded/) next
    over = $2 - plain
    met = over <= 60
    lines = lines sprintf("%s over plain/batch:%d: %.1f instructions a sample; at most 60: %s\n", \
      name, batch, over, met ? "met" : "missed")
    goals = goals (goals == "" ? "" : ",\n  ") "{\"name\": \"" name \
      "\", \"floor\": \"plain/batch:" batch "\", \"compares\": \"instructions_per_sample\", \"difference\": " over \
      ", \"at_most\": 60, \"met\": " (met ? "true" : "false") "}"
  }
  END {
    printf "\n%s", lines
    if (json != "")
      printf "{\"program\": \"instructions\",\n \"rows\": [\n  %s],\n \"goals\": [\n  %s]}\n", \
        rows, goals >json
  }' "$work/rows"
