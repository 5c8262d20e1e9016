#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
# code_of_options.sh NM OBJECT PROGRAM...: checks that the object of a program without options does
# not contain option code. The other programs together set all options. If none of their symbols
# contains a class name in the list of this script, that class was renamed.
set -eu
case ${1:-} in -h | --help) sed -n '3,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
nm=$1
object=$2
shift 2
"$nm" -C "$object" >"$object.symbols"
for program; do "$nm" -C "$program"; done >"$object.others"
wrong=0
for pattern in 'basic_loop_tuner|basic_depth_tuner|hill_climber' 'failure_ledger::|detail::recovery::' \
  'read_watch::' 'trace_recorder::|trace_writer::' 'plan_cores|bind_this_thread|cpus_of_node' \
  'plan_ledger|plan_follower|lookahead_thread' 'take_newest'; do
  if grep -E "$pattern" "$object.symbols"; then
    echo "^ code of an option that the program does not set"
    wrong=1
  fi
  if ! grep -Eq "$pattern" "$object.others"; then
    echo "$pattern: in no symbol of programs that set all options"
    wrong=1
  fi
done
exit $wrong
