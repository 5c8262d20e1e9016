#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Downloads a well-known set of images and checks the SHA-256 of its files.
#
#   bash examples/get_data.sh mnist DIR      then: MNIST_DIR=DIR bash examples/run.sh
#   bash examples/get_data.sh fashion DIR    Fashion-MNIST, in files of the same form
#   bash examples/get_data.sh cifar10 DIR    CIFAR-10, and unpacks it: data_batch_1.bin and so on
#   bash examples/get_data.sh cifar100 DIR   CIFAR-100: train.bin, test.bin
#
# The script needs curl or wget. Correct files are kept, and partial downloads are resumed. If a
# mirror fails or has a different file, the script tries the next mirror. The name of a file ends in
# .part until the file is complete and correct. Exit status: 0 if all files are there, 1 if a file
# could not be downloaded, 2 for invalid arguments.
#
# Environment: DATA_MIRRORS lists addresses of folders, separated by blanks, that replace the public
# mirrors; file:///... works with curl.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac

say() { printf 'get_data: %s\n' "$*" >&2; }
fail() {
  say "$@"
  exit 1
}
usage() {
  say "usage: bash examples/get_data.sh mnist|fashion|cifar10|cifar100 DIR"
  exit 2
}

# Downloads the missing rest of file $2 from address $1. Status 33 or 36 means that this mirror
# cannot resume.
fetch() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --connect-timeout 15 --speed-limit 1 \
      --speed-time 60 --continue-at - --output "$2" "$1"
  else
    wget --no-verbose --tries=2 --timeout=30 --continue --output-document="$2" "$1"
  fi
}

is_right() { # is_right FILE SHA256
  [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$2  -" ]
}

# Downloads the file $1, with $2 bytes and the SHA-256 $3, to the folder.
bring() {
  local name=$1 bytes=$2 sum=$3 target=$folder/$1 part=$folder/$1.part
  local mirror start said status why=''
  if is_right "$target" "$sum"; then
    say "$name: is there"
    return
  fi
  # A file of full length cannot be resumed.
  if [ -f "$part" ] && [ "$(stat --format=%s "$part")" -ge "$bytes" ]; then rm -f -- "$part"; fi
  for mirror in "${mirrors[@]}"; do
    for start in rest anew; do
      if [ $start = anew ]; then
        rm -f -- "$part"
      elif [ ! -s "$part" ]; then
        continue
      fi
      status=0
      said=$(fetch "${mirror%/}/$name" "$part" 2>&1) || status=$?
      if [ $status -eq 0 ] && is_right "$part" "$sum"; then
        mv -f -- "$part" "$target"
        say "$name: fetched from ${mirror%/}"
        return
      elif [ $status -eq 0 ]; then
        # The partial file may belong to another version, so the download is repeated without it.
        rm -f -- "$part"
        said="not the file that is expected (SHA-256)"
      fi
      # Keeps a partial file after a network error, so that the next run can resume it.
      case $status in 0 | 33 | 36) ;; *) break ;; esac
    done
    why+="; ${mirror%/}: ${said##*$'\n'}"
  done
  [ -s "$part" ] || rm -f -- "$part"
  fail "$name could not be fetched${why/;/:}"
}

if [ $# -ne 2 ] || [ -z "$2" ] || [[ $2 == -* ]]; then usage; fi
set_name=$1
case $set_name in mnist | fashion | cifar10 | cifar100) ;; *) usage ;; esac
if ! command -v curl >/dev/null && ! command -v wget >/dev/null; then
  fail "neither curl nor wget is here (Debian: apt-get install curl)"
fi
folder=$2
mkdir -p -- "$folder"

case $set_name in
mnist)
  mirrors=(
    https://storage.googleapis.com/cvdf-datasets/mnist
    https://ossci-datasets.s3.amazonaws.com/mnist
  )
  files="\
train-images-idx3-ubyte.gz 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
train-labels-idx1-ubyte.gz 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
  ;;
fashion)
  mirrors=(
    https://storage.googleapis.com/tensorflow/tf-keras-datasets
    http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
  )
  files="\
train-images-idx3-ubyte.gz 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
train-labels-idx1-ubyte.gz 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
t10k-images-idx3-ubyte.gz 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
t10k-labels-idx1-ubyte.gz 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
  ;;
*)
  mirrors=(https://www.cs.toronto.edu/~kriz)
  files="cifar-10-binary.tar.gz 170052171 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
  [ $set_name = cifar10 ] ||
    files="cifar-100-binary.tar.gz 168513733 58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
  ;;
esac
if [ -n "${DATA_MIRRORS:-}" ]; then read -r -a mirrors <<<"$DATA_MIRRORS"; fi

while read -r name bytes sum; do
  bring "$name" "$bytes" "$sum"
  case $name in
  *.tar.gz)
    tar -xzf "$folder/$name" -C "$folder" --strip-components=1 --no-same-owner
    say "$name: unpacked"
    ;;
  esac
done <<<"$files"
say "all is in $folder"
