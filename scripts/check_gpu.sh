#!/usr/bin/env bash
# Builds and runs what needs a GPU, and prints one table: check, expected, measured, ok.
#   scripts/check_gpu.sh            exit 0: all hold; 1: some do not; 2: cannot be built or set up; 77: there is no GPU here
#   TORCH=2.11.0                    the LibTorch to build on
#   CINCH_TORCH_DIR=DIR             one that is there, with the CUDA libraries that it wants (a Python installation's torch)
# Some minutes to build, three to run. Kernels are compiled when they are first used: no CUDA compiler is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=${TORCH:-2.11.0}
say() { printf 'check_gpu: %s\n' "$*" >&2; }

if [ ! -e /dev/nvidiactl ] && ! nvidia-smi -L >/dev/null 2>&1; then
  say "there is no NVIDIA GPU on this machine (no /dev/nvidiactl, and nvidia-smi lists none): nothing was checked"
  exit 77
fi

if [ -n "${CINCH_TORCH_DIR:-}" ]; then
  flavour=own
  torch_dir=$CINCH_TORCH_DIR
else
  flavour=$torch
  torch_dir=$PWD/build/torch-$torch
fi
build=build/release-$flavour

# What cinch is built with is LibTorch alone; to run on a GPU it wants cuBLAS, cuDNN and the others that its wheel names.
fetch_cuda_libraries() {
  local wanted scratch=$torch_dir/.cuda
  mapfile -t wanted < <(sed -nE 's/^Requires-Dist: ((cuda-toolkit|nvidia-)[^;]*).*/\1/p' \
    "$torch_dir"/torch-*.dist-info/METADATA | tr -d ' ()' | sort -u)
  [ ${#wanted[@]} -gt 0 ] || { say "the wheel in $torch_dir names no CUDA libraries"; return 1; }
  say "fetching the CUDA libraries that LibTorch wants (2.5 GB): ${wanted[*]}"
  rm -rf "$scratch"
  python3 -m pip install --quiet --only-binary=:all: --no-cache-dir --disable-pip-version-check \
    --root-user-action=ignore --target "$scratch" "${wanted[@]}" || return 1
  cp -a "$scratch/nvidia/." "$torch_dir/nvidia/" && rm -rf "$scratch"
}

scripts/setup.sh test >&2 || exit 2
cmake --preset release -B "$build" -DCINCH_TORCH_DIR="$torch_dir" -DCINCH_TESTS=ON --log-level=WARNING >/dev/null || exit 2
say "building cuda_checks in $build"
targets=(cuda_checks cinch_optim_test)
grep -q 'cuda_record_on_oom:' "$build/build.ninja" && targets+=(cuda_record_on_oom)
cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" >&2 || exit 2

missing() { ldd "$torch_dir/torch/lib/libtorch_cuda.so" 2>/dev/null | grep -c 'not found' || true; }
if [ -z "${CINCH_TORCH_DIR:-}" ] && [ "$(missing)" -gt 0 ]; then
  fetch_cuda_libraries || { say "they could not be fetched: name a LibTorch that has them with CINCH_TORCH_DIR"; exit 2; }
fi

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || true
"$build/cinch_optim_test" --gtest_brief=1 --gtest_filter='CudaKernels*' >&2 || say "the kernels' tests on the CPU fail"
record_on_oom=()
[ -x "$build/tests/cuda/cuda_record_on_oom" ] && record_on_oom=("$build/tests/cuda/cuda_record_on_oom")
status=0
"$build/tests/cuda/cuda_checks" "${record_on_oom[@]}" || status=$?
exit $status
