#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Counts the instructions of each part of the flow per batch and per sample, with valgrind
# --tool=callgrind. Unlike times, these counts are reproducible.
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

# counts PART BATCH_SIZE BATCHES: prints the instructions of each thread, in start order.
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
for batch in 16 64 256; do
  for part in sampler plain inline worker guarded transfer; do
    low=$(counts "$part" "$batch" "$few")
    high=$(counts "$part" "$batch" "$many")
    paste <(echo "$low") <(echo "$high") |
      awk -v part="$part" -v batch="$batch" -v more="$((many - few))" '
        { printf "%s %d %d %.1f\n", part, batch, NR, ($2 - $1) / more }'
  done
done >"$work/rows"

# Columns: part, batch size, thread, instructions per batch.
awk -v json="$json" '
  function names(part) {
    if (part == "transfer") return "consumer consumer_stream worker copy_stream"
    if (part == "worker") return "consumer worker"
    if (part == "guarded") return "consumer worker watch"
    return "consumer"
  }
  function end_of_row(  name, list) {
    if (part == "") return
    name = part "/batch:" batch
    if (part == "plain") floor_of[batch] = total
    printf "%-20s %9.0f a batch %8.1f a sample   %s\n", name, total, total / batch, threads
    list = "{\"name\": \"" name "\", \"instructions_per_batch\": " total \
      ", \"instructions_per_sample\": " total / batch ", \"threads\": {" quoted "}}"
    rows = rows (rows == "" ? "" : ",\n  ") list
    if (part == "inline" || part == "worker" || part == "guarded") judge(name, (total - floor_of[batch]) / batch)
  }
  function judge(name, over,  floor, aim, verdict) {
    floor = "plain/batch:" batch
    verdict = over <= 60 ? "met" : "missed"
    aim = batch == 64
    lines = lines sprintf("%s over %s: %.1f instructions a sample%s\n", name, floor, over, \
      aim ? "; at most 60: " verdict : "")
    goals = goals (goals == "" ? "" : ",\n  ") "{\"name\": \"" name "\", \"floor\": \"" floor \
      "\", \"compares\": \"instructions_per_sample\", \"difference\": " over \
      (aim ? ", \"at_most\": 60, \"met\": " (over <= 60 ? "true" : "false") : "") "}"
  }
  $1 != part || $2 != batch { end_of_row(); part = $1; batch = $2; total = 0; threads = quoted = "" }
  {
    split(names(part), name_of, " ")
    total += $4
    threads = threads sprintf(" %s %.0f", name_of[$3], $4)
    quoted = quoted (quoted == "" ? "" : ", ") "\"" name_of[$3] "\": " $4
  }
  END {
    end_of_row()
    printf "\n%s", lines
    if (json != "")
      printf "{\"program\": \"instructions\",\n \"rows\": [\n  %s],\n \"goals\": [\n  %s]}\n", \
        rows, goals >json
  }' "$work/rows"
