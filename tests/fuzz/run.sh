#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Runs libFuzzer with AddressSanitizer and UBSan on every parser of files or text.
#
#   bash tests/fuzz/run.sh [SECONDS] [TARGET...]     default: 60 seconds for each target
#
# Environment: RUNS ends a target after that many executions, and BYTES after that many bytes of
# input, unless its time ends earlier. LEN_CONTROL=0 tries long inputs from the start, so that slow
# targets read many bytes. The script needs clang++ with its runtime (Debian: clang
# libclang-rt-14-dev) and the libraries that `bash tests/run.sh --all` installs. Findings and new
# corpus entries stay in build/fuzz/<target>/. The exit status is 1 if there is a finding.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
seconds=${1:-60}
case $seconds in
  -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  *[!0-9]* | '') echo "run.sh: '$seconds' is no number of seconds; see --help" >&2; exit 2 ;;
esac
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(idx_file gzip loader_state prioritized quarantine budget trials cpu_list cifar decode_end dlpack tar shard_index npy megatron token_windows length_cache text_lines tf_examples prefixed_records json_lines filter_file safetensors mds mds_index aws_config http_answer s3_list world arrow cache_block hdf5_chunk jpeg png webp zstd audio_clips unpack_files)
clang=$(command -v clang++-14 || command -v clang++) || {
  echo "run.sh: no clang++ here (Debian: clang libclang-rt-14-dev)" >&2
  exit 2
}

status=0
entries=$root/build/fuzz/corpus
bash "$root/tests/fuzz/corpus.sh" unpack "$entries"
for target in "${targets[@]}"; do
  source=$root/tests/fuzz/${target}_fuzz.cpp
  [ -f "$source" ] || { echo "run.sh: no target '$target'" >&2; exit 2; }
  work=$root/build/fuzz/$target
  mkdir -p "$work/corpus"
  libraries=()
  case $target in
    audio_clips) libraries=(-lsndfile) ;;
    cache_block) libraries=(-lxxhash) ;;
    json_lines) libraries=(-lsimdjson) ;;
    gzip) libraries=(-lz) ;;
    hdf5_chunk) libraries=(-ldeflate) ;;
    http_answer) libraries=(-lcrypto) ;;
    mds | mds_index) libraries=(-lcrypto -lxxhash) ;;
    s3_list) libraries=(-lpugixml) ;;
    jpeg) libraries=(-ljpeg) ;;
    png) libraries=(-lpng -lz) ;;
    unpack_files) libraries=(-lz -lzstd) ;;
    webp) libraries=(-lwebp) ;;
    zstd) libraries=(-lzstd) ;;
  esac
  flags=(-std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  "$clang" "${flags[@]}" -I "$root/include" -I "$root/tests" -c "$source" -o "$work/target.o" \
    -DLLVMFuzzerTestOneInput=penstock_counted_input
  "$clang" "${flags[@]}" "$work/target.o" "$root/tests/fuzz/counted.cpp" -o "$work/fuzz" \
    "${libraries[@]}"
  echo "== $target: $seconds s"
  (cd "$work" && ./fuzz -max_total_time="$seconds" -runs="${RUNS:--1}" -max_len=4096 \
    -len_control="${LEN_CONTROL:-100}" -print_final_stats=1 \
    corpus "$entries/$target" >fuzz.log 2>&1) || status=1
  grep -E 'DONE|fuzzed_bytes|number_of_executed_units|ERROR|does not hold|SUMMARY|Test unit written' "$work/fuzz.log" || true
done
exit $status
