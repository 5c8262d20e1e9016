#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Prints the cost of a build and its tests in core seconds. The result is valid only if there were
# no more jobs than cores.
#
#   bash tests/costs.sh BUILD_FOLDER JUNIT_FILE
#
# Prints a row for each folder, then the ten slowest translation units and the ten slowest tests.
# Reads .ninja_log, which has the units of all builds since the build folder was created.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
if [ $# -ne 2 ] || [ ! -f "$1/.ninja_log" ] || [ ! -f "$2" ]; then
  echo "usage: costs.sh BUILD_FOLDER JUNIT_FILE" >&2
  exit 2
fi
units=$(mktemp)
tests=$(mktemp)
trap 'rm -f "$units" "$tests"' EXIT

# prints seconds, folder and unit; the last build counts if a unit was built several times
awk -F '\t' 'NR > 1 && $4 ~ /\.(o|gch)$/ {last[$4] = ($2 - $1) / 1000}
  END {
    for (unit in last) {
      name = unit
      gsub(/CMakeFiles\/[^\/]*\.dir\/(__\/)*/, "", name)
      folder = name
      if (unit ~ /\/Unity\// && match(unit, /\/penstock_[a-z_]*_tests\.dir/))
        sub(/^.*\/Unity/, "tests/" substr(unit, RSTART + 10, RLENGTH - 20), name)
      if (unit ~ /penstock_test_main|penstock_run_catch/) folder = "tests/support"
      else if (name ~ /^bench\/mlp\//) folder = "tests/mlp"
      else if (match(name, /^tests\/[a-z_]+/)) folder = substr(name, 1, RLENGTH)
      else sub(/\/[^\/]*$/, "", folder)
      if (match(unit, /\/penstock_(edges|model)_[a-z_0-9]+\.dir/))
        name = name " (" substr(unit, RSTART + 10, RLENGTH - 14) ")"
      printf "%.3f\t%s\t%s\n", last[unit], folder, name
    }
  }' "$1/.ninja_log" | sort -nr >"$units"

# prints seconds, folder and test; the folder is the part of the name before the first slash
tr '\n' ' ' <"$2" | sed 's/<testcase /\n&/g' |
  sed -n 's/^<testcase name="\([^"]*\)".* time="\([0-9.]*\)".*/\2\t\1/p' |
  awk -F '\t' '{
    folder = $2
    sub(/\/.*/, "", folder)
    folder = folder == "examples" ? folder : "tests/" folder
    printf "%.3f\t%s\t%s\n", $1, folder, $2
  }' | sort -nr >"$tests"

printf '== %s: seconds\n%-22s %8s %8s %8s %8s\n' "$1" folder units build tests run
awk -F '\t' '
  NR == FNR {units[$2]++; build[$2] += $1; next}
  {tests[$2]++; run[$2] += $1}
  END {
    for (folder in units) all[folder]
    for (folder in tests) all[folder]
    for (folder in all) {
      printf "%-22s %8d %8.1f %8d %8.1f\n", folder, units[folder], build[folder], tests[folder], run[folder]
      u += units[folder]; b += build[folder]; t += tests[folder]; r += run[folder]
    }
    printf "%-22s %8d %8.1f %8d %8.1f\n", "~sum", u, b, t, r
  }' "$units" "$tests" | sort | sed 's/^~sum/sum /'
for list in "$units" "$tests"; do
  [ "$list" = "$units" ] && echo "== slowest units" || echo "== slowest tests"
  head -n 10 "$list" | awk -F '\t' '{printf "%8.1f  %s\n", $1, $3}'
done
