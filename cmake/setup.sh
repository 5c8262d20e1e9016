# SPDX-License-Identifier: BSL-1.0
# shellcheck shell=bash Shell functions that tests/run.sh, examples/run.sh and other scripts share.
# Source this file from bash.

penstock_say() { printf '== %s\n' "$*"; }

penstock_die() {
  printf '== error: %s\n' "$*" >&2
  exit 1
}

# penstock_jobs: prints the number of parallel jobs.
penstock_jobs() { echo "${PENSTOCK_JOBS:-$(nproc)}"; }

# penstock_install PACKAGE...: installs Debian packages, as root or with sudo. Never prompts.
penstock_install() {
  local as_root=()
  command -v apt-get >/dev/null ||
    penstock_die "missing: $*. These are Debian's names; there is no apt-get here, so install them by hand."
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      penstock_die "missing: $*. Neither root nor sudo without a password:" \
        "run 'apt-get install $*' as root, then this again."
    fi
    as_root=(sudo -n)
  fi
  penstock_say "installing: $*"
  "${as_root[@]}" apt-get update -qq || penstock_say "apt-get update failed, going on with the old lists"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null </dev/null ||
    penstock_die "could not install: $*"
}

# penstock_setup ROOT PART...: installs the missing packages that are required to build these parts
# (TESTS, ALL_TESTS, BENCH, EXAMPLES).
penstock_setup() {
  local root=$1 part probe output missing=() options=()
  shift
  command -v "${CXX:-g++}" >/dev/null || missing+=(g++)
  command -v cmake >/dev/null || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  [ ${#missing[@]} -eq 0 ] || penstock_install "${missing[@]}"

  for part in "$@"; do options+=("-DPENSTOCK_BUILD_$part=ON"); done
  probe=$(mktemp -d)
  output=$(cmake -G Ninja -S "$root/cmake/probe" -B "$probe" "${options[@]}" 2>&1) || {
    rm -rf "$probe"
    printf '%s\n' "$output" >&2
    penstock_die "cmake could not look for the libraries, see above"
  }
  rm -rf "$probe"
  mapfile -t missing < <(sed -n 's/^missing: //p' <<<"$output")
  if [ ${#missing[@]} -eq 0 ]; then
    penstock_say "nothing to install"
  else
    # Most packages belong to a single component or test, which the build omits if its library is
    # missing.
    (penstock_install "${missing[@]}") || penstock_say "left out is what needs: ${missing[*]}"
  fi
}

# penstock_bare_path ROOT FOLDER PART...: fills FOLDER with links to the tools of a minimal Debian
# and of the packages that penstock_setup installs for these parts. Using FOLDER as PATH hides all
# other tools.
penstock_bare_path() {
  local root=$1 folder=$2 part packages options=(-DPENSTOCK_LIST_ALL=ON)
  shift 2
  for part in "$@"; do options+=("-DPENSTOCK_BUILD_$part=ON"); done
  mapfile -t packages < <(cmake -G Ninja -S "$root/cmake/probe" -B "$folder/probe" "${options[@]}" 2>&1 |
    sed -n 's/^missing: //p')
  rm -rf "$folder/probe"
  mapfile -t packages < <(
    dpkg-query -W -f '${Priority} ${Essential} ${Package}\n' | sed -n 's/^required .* \|.* yes //p'
    apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts \
      --no-breaks --no-replaces --no-enhances g++ cmake ninja-build "${packages[@]}" | sed -n '/^[a-z]/p'
  )
  # No package lists the links of update-alternatives, so targets of links are accepted too.
  paste <(realpath -m /usr/bin/* /usr/sbin/*) <(ls -d /usr/bin/* /usr/sbin/*) >"$folder.tools"
  { dpkg -L "${packages[@]}" 2>/dev/null || true; } | sed 's|^/\(s\{0,1\}bin/\)|/usr/\1|' |
    awk 'NR == FNR {listed[$1]; next} $1 in listed || $2 in listed {print $2}' - "$folder.tools" |
    xargs ln -s -t "$folder"
  rm "$folder.tools"
  for part in g++ cmake ctest ninja; do # tools that are installed without a package
    [ -e "$folder/$part" ] || ln -s "$(command -v "$part")" "$folder"
  done
}

# penstock_no_aslr: prints the command under which sanitized programs must run. The output is empty
# on most machines. Some kernels randomize addresses with more bits than ThreadSanitizer can map
# ("unexpected memory mapping"); setarch disables randomization for a program and its children.
penstock_no_aslr() {
  local dir status=0
  dir=$(mktemp -d)
  echo 'int main() {}' >"$dir/probe.cpp"
  if "${CXX:-g++}" -fsanitize=thread "$dir/probe.cpp" -o "$dir/probe" 2>/dev/null; then
    # The addresses are random, so a single successful run proves little.
    for _ in 1 2 3 4 5 6 7 8; do "$dir/probe" >/dev/null 2>&1 || status=1; done
    if [ $status -ne 0 ] && setarch "$(uname -m)" -R "$dir/probe" >/dev/null 2>&1; then
      echo "setarch $(uname -m) -R"
    fi
  fi
  rm -rf "$dir"
}
