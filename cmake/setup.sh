# SPDX-License-Identifier: BSL-1.0
# shellcheck shell=bash
# Shell functions that tests/run.sh and examples/run.sh share; to be sourced by bash.

penstock_say() { printf '== %s\n' "$*"; }

penstock_die() {
  printf '== error: %s\n' "$*" >&2
  exit 1
}

# penstock_jobs: how many jobs to run at once.
penstock_jobs() { echo "${PENSTOCK_JOBS:-$(nproc)}"; }

# penstock_install PACKAGE...: installs Debian packages, as root or by sudo. Asks for nothing.
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

# penstock_setup ROOT PART...: installs what building these parts (TESTS, ALL_TESTS, BENCH,
# EXAMPLES) needs and lacks.
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
    # Most of them are of one component or test, which is left out without its library.
    (penstock_install "${missing[@]}") || penstock_say "left out is what needs: ${missing[*]}"
  fi
}

# penstock_no_aslr: prints the command to run sanitized programs under. Empty almost everywhere;
# some kernels randomise addresses by more bits than ThreadSanitizer can map ("unexpected memory
# mapping"), and setarch turns that off for one program and its children.
penstock_no_aslr() {
  local dir status=0
  dir=$(mktemp -d)
  echo 'int main() {}' >"$dir/probe.cpp"
  if "${CXX:-g++}" -fsanitize=thread "$dir/probe.cpp" -o "$dir/probe" 2>/dev/null; then
    # Randomised: one good run says little.
    for _ in 1 2 3 4 5 6 7 8; do "$dir/probe" >/dev/null 2>&1 || status=1; done
    if [ $status -ne 0 ] && setarch "$(uname -m)" -R "$dir/probe" >/dev/null 2>&1; then
      echo "setarch $(uname -m) -R"
    fi
  fi
  rm -rf "$dir"
}
