// Is linked, on a machine with LibTorch's CUDA libraries; runs where there is a GPU: fails an allocation and has a
// snapshot of it. Elsewhere it says that there is none.
//   record_on_oom FILE
#include <ATen/ops/empty.h>

#include <cstdio>
#include <filesystem>

#include "cinch/record/cuda/record_on_oom.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    cinch::record_on_oom(argv[1]);
  } catch (const cinch::UnsupportedError& error) {
    std::printf("%s\n", error.what());
    return 77;
  }
  try {
    const auto small = at::empty({1 << 20}, at::device(at::kCUDA));
    const auto impossible = at::empty({std::int64_t{1} << 46}, at::device(at::kCUDA));
    return 1;
  } catch (const c10::OutOfMemoryError&) {
    return std::filesystem::file_size(argv[1]) > 0 ? 0 : 1;
  }
}
