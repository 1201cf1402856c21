#!/usr/bin/env bash
# Installs cinch from a build folder into a temporary prefix, then configures, builds and runs the outside project.
#   run.sh BUILD_FOLDER CXX_COMPILER [FLAGS]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/prefix" >/dev/null
"$scratch/prefix/bin/cinch" --version
cmake -G Ninja -S "$here" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$2" \
  -DCMAKE_CXX_FLAGS="${3:-}" -DCMAKE_PREFIX_PATH="$scratch/prefix"
cmake --build "$scratch/build"
"$scratch/build/outside"
