#!/usr/bin/env bash
# Installs what is missing (Debian), builds the examples for this machine and runs the main one: a network
# trained on MNIST, fed in four ways.
#
#   bash examples/run.sh                   plain MNIST, then with augmentation
#   bash examples/run.sh ARGUMENT...       once, with these arguments; --help lists them
#
# Environment: CXX the compiler; PENSTOCK_JOBS jobs at once; MNIST_DIR the folder of the MNIST files.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cmake/setup.sh
. "$root/cmake/setup.sh"

penstock_setup "$root" EXAMPLES
penstock_say "building the examples in build/examples"
(
  cd "$root"
  cmake --preset examples --log-level=NOTICE >/dev/null
  cmake --build --preset examples --parallel "$(penstock_jobs)" -- --quiet
)

# The caller's folder stays: --data and --json may be relative to it.
mlp=$root/build/examples/examples/mlp/penstock_mlp
if [ $# -gt 0 ]; then
  exec "$mlp" "$@"
fi
penstock_say "plain: reading is cheap"
"$mlp"
penstock_say "--augment: loading costs about as much as the step"
"$mlp" --augment
