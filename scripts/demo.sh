#!/usr/bin/env bash
# The main job from end to end: estimate, plan for half the memory that could be saved, train under that budget.
#   scripts/demo.sh CINCH [SETTING...]    e.g.  scripts/demo.sh build/release-2.11.0/bin/cinch train.steps=20
set -euo pipefail
cd "$(dirname "$0")/.."
cinch=$1
shift
job=examples/demo.toml
run=runs/demo

# The text to learn: the C++ headers of the LibTorch in use.
torch=${CINCH_TORCH_DIR:-build/torch-${TORCH:-2.11.0}}
[ -d "$torch/torch/include" ] && torch=$torch/torch
settings=(--set "data.path=[\"$torch/include\"]")
for setting in "$@"; do settings+=(--set "$setting"); done

# field FILE KEY...: one number of a JSON document.
field() {
  python3 -c 'import functools, json, sys; print(functools.reduce(lambda d, k: d[k], sys.argv[2:], json.load(open(sys.argv[1]))))' "$@"
}
show() { printf '\n$ cinch %s\n' "$*"; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

show estimate $job
"$cinch" estimate $job "${settings[@]}"
"$cinch" estimate $job "${settings[@]}" --json -q >"$scratch/estimate.json"
peak=$(field "$scratch/estimate.json" peak requested_bytes)

# A budget that cannot be met is answered with the least that can (exit code 3).
status=0
"$cinch" plan $job "${settings[@]}" --budget 1MiB --json -q >"$scratch/floor.json" || status=$?
[ $status -eq 3 ] || { echo "demo: a budget of 1 MiB should exit with 3, not $status" >&2; exit 1; }
floor=$(field "$scratch/floor.json" infeasible floor_bytes)
budget=$(((floor + peak) / 2))
printf '\nPlain training peaks at %s B, the least possible is %s B. The budget: half-way, %s B.\n' "$peak" "$floor" "$budget"

show plan $job --budget $budget
"$cinch" plan $job "${settings[@]}" --budget $budget --out "$scratch/plan.toml"

rm -rf "$run"  # An earlier demonstration's.
show train $job --budget $budget
"$cinch" train $job "${settings[@]}" --budget $budget
