#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Packs and unpacks the initial inputs of the fuzz targets, an archive of <target>/<entry> files.
#
#   bash tests/fuzz/corpus.sh unpack FOLDER   replaces FOLDER by the content of tests/fuzz/corpus.tar.gz
#   bash tests/fuzz/corpus.sh pack FOLDER     writes the archive; equal files give equal bytes
set -euo pipefail
archive=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/corpus.tar.gz
case ${1:-}:$# in
  -h:1 | --help:1) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" ;;
  unpack:2)
    rm -rf "$2"
    mkdir -p "$2"
    tar -xzf "$archive" -C "$2"
    ;;
  pack:2)
    (cd "$2" && find . -type f -printf '%P\0' | LC_ALL=C sort -z |
      tar --null --files-from=- --format=ustar --mode=0644 --mtime=@0 --owner=0 --group=0 \
        --numeric-owner -cf -) | gzip -9n >"$archive.new"
    mv "$archive.new" "$archive"
    ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
