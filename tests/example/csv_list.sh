#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
# csv_list.sh PROGRAM: tests that examples/20_csv_list.cpp reads the correct labels from CSV files
# of other programs, or names the file and the line of an error.
set -eu
case ${1:-} in -h | --help) sed -n '3,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
program=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
touch "$dir/a" "$dir/b,c" "$dir/d\"e"
failed=0

# run CSV: prints the output of the program for this CSV.
run() {
  printf "$1" > "$dir/list.csv"
  said=$("$program" "$dir/list.csv" 2>&1) || true
}
fail() {
  echo "FAILED: $1: $said"
  failed=1
}
# reads NAME CSV LABELS: checks that the program reads these labels.
reads() {
  run "$2"
  found=$(echo "$said" | sed -n 's/.* has label //p' | tr '\n' ' ')
  [ "$found" = "$3 " ] || fail "$1"
}
# rejects NAME CSV LINE: checks that the program rejects this line.
rejects() {
  run "$2"
  case $said in *"$dir/list.csv:$3: "*) ;; *) fail "$1" ;; esac
  case $said in *"has label"*) fail "$1" ;; esac
}

reads 'plain' 'path,label\na,3\na,-4\n' '3 -4'
reads 'CRLF' 'path,label\r\na,3\r\na,4\r\n' '3 4'
reads 'a byte order mark' '\357\273\277path,label\na,3\n' '3'
reads 'all at once' '\357\273\277"path","label"\r\n\r\na,"3"\r\n\r\n' '3'
reads 'no last line end' 'path,label\na,3\na,14' '3 14'
reads 'empty lines' '\npath,label\n\na,3\n\n' '3'
reads 'quotes' 'path,label\n"b,c",3\n"d""e",4\n"a","5"\n' '3 4 5'
rejects 'text after the number' 'path,label\na,3\na,3x\n' 3
rejects 'a fraction' 'path,label\na,3.0\n' 2
rejects 'no number' 'path,label\na,cat\n' 2
rejects 'no label' 'path,label\na,\n' 2
rejects 'a number too large' 'path,label\na,9223372036854775808\n' 2
rejects 'one column' 'path,label\n\na\n' 3
rejects 'three columns' 'path,label\na,3,4\n' 2
rejects 'no path' 'path,label\n,4\n' 2
rejects 'blanks' 'path,label\n  \n' 2
rejects 'a quote that stays open' 'path,label\n"a,3\n' 2
rejects 'text after a quote' 'path,label\n"a"b,3\n' 2
rejects 'other columns' 'label,path\n3,a\n' 1
rejects 'no columns' 'a,3\n' 1
rejects 'columns alone' 'path,label\n' 1
rejects 'nothing' '' 0
exit $failed
