#!/usr/bin/env bash
# clang-tidy over the sources that differ from origin/main (or, on main itself, from the commit before).
#   scripts/tidy.sh BUILD_FOLDER [FILE...]
# A file that includes LibTorch takes a minute, so the time is bounded: TIDY_SECONDS=240 in all, smallest files first.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
budget=${TIDY_SECONDS:-240}

command -v clang-tidy >/dev/null || { echo "tidy: skipped, clang-tidy is not installed"; exit 0; }
if [ $# -gt 0 ]; then
  files=("$@")
else
  git rev-parse --git-dir >/dev/null 2>&1 || { echo "tidy: skipped, not a git checkout"; exit 0; }
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse --verify --quiet HEAD~1 || true)
  [ -n "$base" ] || { echo "tidy: skipped, there is no commit to compare with"; exit 0; }
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- 'cinch/*.cc' | xargs -r ls -Sr)
fi

# The compile commands, without g++'s precompiled header, which clang cannot read.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sed -E "s|-include [^ ]*cinch_std_pch\\.dir/cmake_pch\\.hxx||; s|-include [^ ]*cmake_pch\\.hxx|-include $PWD/cmake/torch_pch.h|; s/-fpch-preprocess|-Winvalid-pch//g" \
  "$build/compile_commands.json" >"$scratch/compile_commands.json"

started=$SECONDS checked=0
for file in "${files[@]}"; do
  grep -Fq "$PWD/$file\"" "$scratch/compile_commands.json" || continue  # Not of this build.
  left=$((budget - (SECONDS - started)))
  [ "$left" -gt 0 ] || break
  status=0
  timeout "$left" clang-tidy --quiet -p "$scratch" "$file" >"$scratch/log" 2>&1 || status=$?
  [ $status -ne 124 ] || break  # Out of time.
  [ $status -eq 0 ] || { cat "$scratch/log"; echo "tidy: $file: see above" >&2; exit 1; }
  checked=$((checked + 1))
done
echo "tidy: $checked of ${#files[@]} changed files clean in $((SECONDS - started)) s"
