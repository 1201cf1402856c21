// cuda_checks [RECORD_ON_OOM]: all checks, as a table. 0: all hold; 1: some do not; 77: no GPU, or no LibTorch for it.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <ATen/ATen.h>

#include "tests/cuda/check.h"

namespace cinch::tests {

void Table::section(const std::string& name) {
  std::printf("\n%s\n", name.c_str());
  std::fflush(stdout);
}

void Table::row(const std::string& check, const std::string& expected, const std::string& measured, bool ok) {
  wrong_ += ok ? 0 : 1;
  std::printf("  %-52s %-30s %-34s %s\n", check.c_str(), expected.c_str(), measured.c_str(), ok ? "ok" : "WRONG");
  std::fflush(stdout);
}

std::string with_digits(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

void wait_for_gpu() { c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(0); }

void delay_copies() {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  constexpr int kCopies = 24;
  static const auto pinned = at::empty({2, kBytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  static const auto there = at::zeros({2, kBytes}, at::TensorOptions(at::kByte).device(at::kCUDA));
  static const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  static const c10::Stream up = guard.getStreamFromGlobalPool(there.device()),
                           down = guard.getStreamFromGlobalPool(there.device());
  wait_for_gpu();
  for (int i = 0; i < kCopies; ++i) {
    {
      const c10::StreamGuard on(up);
      there[0].copy_(pinned[0], /*non_blocking=*/true);
    }
    const c10::StreamGuard on(down);
    pinned[1].copy_(there[1], /*non_blocking=*/true);
  }
}

namespace {
c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(at::kCUDA); }
std::int64_t peak_of(const c10::CachingAllocator::StatArray& stat) {
  return stat[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}
}  // namespace

void reset_peaks() {
  wait_for_gpu();
  allocator().emptyCache();
  allocator().resetPeakStats(0);
}

Peaks peaks() {
  const auto stats = allocator().getDeviceStats(0);
  return {peak_of(stats.requested_bytes), peak_of(stats.allocated_bytes), peak_of(stats.reserved_bytes)};
}

namespace {
constexpr int kNoGpu = 77;

/// Why there is no GPU to check; empty if there is one.
std::string load_cuda() {
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* reason = ::dlerror();
    return std::string("LibTorch's CUDA library cannot be loaded: ") + (reason != nullptr ? reason : "no reason given");
  }
  if (!at::detail::getCUDAHooks().hasCUDA() || at::detail::getCUDAHooks().deviceCount() == 0)
    return "LibTorch finds no GPU.";
  return "";
}

void check_record_on_oom(Table& table, const std::string& program) {
  const auto file = std::filesystem::temp_directory_path() / ("cinch-oom-" + std::to_string(::getpid()));
  const int status = std::system((program + " " + file.string()).c_str());
  std::filesystem::remove(file);
  table.row("record_on_oom writes a snapshot", "0", std::to_string(WEXITSTATUS(status)), status == 0);
}

void check(Table& table, const std::string& name, const auto& work) {
  table.section(name);
  try {
    work();
  } catch (const std::exception& error) {
    table.row(name, "", std::string("threw: ") + error.what(), false);
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[1] == "predict") return predict_peaks(arguments[2], std::stoi(arguments[3]));
  if (const auto fault = load_cuda(); !fault.empty()) {
    std::printf("%s\n", fault.c_str());
    return kNoGpu;
  }
  if (arguments.size() == 3 && arguments[1] == "measure") return measure_peaks(arguments[2]);
  std::printf("  %-52s %-30s %-34s\n", "check", "expected", "measured");
  Table table;
  check(table, "Optimizers on CUDA against the CPU, 5 steps", [&] { check_optimizers(table); });
  check(table, "GradScaler on CUDA", [&] { check_scaler(table); });
  check(table, "Activations to the host", [&] { check_activations(table); });
  check(table, "Optimizer state to the host and to disk", [&] { check_state(table); });
  check(table, "Peaks of two steps of a GPT, bytes: predicted, measured", [&] { check_peaks(table, arguments[0]); });
  if (arguments.size() == 2) check(table, "Recording", [&] { check_record_on_oom(table, arguments[1]); });
  std::printf("\n%s\n", table.wrong() == 0 ? "All checks hold."
                                           : (std::to_string(table.wrong()) + " checks do not hold.").c_str());
  return table.wrong() == 0 ? 0 : 1;
}
}  // namespace
}  // namespace cinch::tests

int main(int argc, char** argv) {
  try {
    return cinch::tests::run({argv, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_checks: %s\n", error.what());
    return 1;
  }
}
