#pragma once
// The checks that need a GPU: one program, one table (scripts/check_gpu.sh). It links nothing of CUDA and includes
// nothing of it, so that it is built wherever cinch is; LibTorch's CUDA library is loaded when it starts.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace cinch::tests {

class Table {
 public:
  void section(const std::string& name);
  void row(const std::string& check, const std::string& expected, const std::string& measured, bool ok);
  int wrong() const { return wrong_; }

 private:
  int wrong_ = 0;
};

std::string with_digits(double number, int digits);  ///< Behind the point.

void wait_for_gpu();
double seconds_of(const auto& work) {
  wait_for_gpu();
  const auto begin = std::chrono::steady_clock::now();
  work();
  wait_for_gpu();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Keeps both copy engines busy for some tenths of a second, on a stream of its own: copies that are enqueued after it
/// come late, and what does not wait for them reads garbage.
void delay_copies();

struct Peaks {
  std::int64_t requested = 0, allocated = 0, reserved = 0;
};
void reset_peaks();  ///< Cached memory is given back.
Peaks peaks();

void check_optimizers(Table& table);
void check_scaler(Table& table);
void check_activations(Table& table);
void check_state(Table& table);
/// In processes of its own, `program` again.
void check_peaks(Table& table, const std::string& program);
/// Of one case: "predict CASE CAPABILITY" without CUDA, or "measure CASE" with it. Prints three numbers.
int predict_peaks(const std::string& name, int capability);
int measure_peaks(const std::string& name);
std::vector<std::string> peak_cases();
}  // namespace cinch::tests
