#pragma once
// How much longer to look: steps, which are the same on every machine, and a deadline.

#include <chrono>
#include <cstdint>

namespace cinch::placement::internal {

class Budget {
 public:
  using Clock = std::chrono::steady_clock;

  Budget(std::chrono::milliseconds time, std::int64_t steps) : steps_(steps) {
    const auto now = Clock::now();
    const bool endless = time > std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
    deadline_ = endless ? Clock::time_point::max() : now + time;
  }
  /// Counts work done.
  void spend(std::int64_t steps) {
    steps_ -= steps;
    if ((unseen_ += steps) < kStepsPerLook) return;
    unseen_ = 0;
    late_ = late_ || Clock::now() >= deadline_;
  }
  bool spent() const { return steps_ <= 0 || late_; }

 private:
  static constexpr std::int64_t kStepsPerLook = 64;  ///< A step takes 1 to 100 us.
  std::int64_t steps_;
  std::int64_t unseen_ = 0;
  Clock::time_point deadline_;
  bool late_ = false;
};
}  // namespace cinch::placement::internal
