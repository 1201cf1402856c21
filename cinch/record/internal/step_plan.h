#pragma once
// What one step asks of the allocator, and places for it in one block of memory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cinch/core/bytes.h"

namespace cinch::record::internal {

/// In front of a tensor's data lies what is known about it; kernels want the data itself on such a boundary.
inline constexpr std::size_t kAlignment = 64;
/// What a tensor of `bytes` takes where it is placed.
inline std::size_t block_size(std::size_t bytes) {
  return kAlignment + (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The requests of one step in order. Time counts the events of the step.
class StepRecord {
 public:
  static constexpr std::uint32_t kOutlives = 0xffffffffu;
  struct Request {
    std::size_t bytes = 0;
    std::uint32_t made = 0, freed = kOutlives;
    friend bool operator==(const Request&, const Request&) = default;
  };

  /// Returns its position.
  std::uint32_t made(std::size_t bytes);
  void freed(std::uint32_t position) noexcept { requests_[position].freed = clock_++; }
  const std::vector<Request>& requests() const noexcept { return requests_; }
  void clear() noexcept;
  friend bool operator==(const StepRecord&, const StepRecord&) = default;

 private:
  std::vector<Request> requests_;
  std::uint32_t clock_ = 0;
};

/// A place for each request of a step that is freed before the step ends.
class StepPlan {
 public:
  explicit StepPlan(const StepRecord& step);

  /// What all places together need.
  std::size_t height() const noexcept { return height_; }
  /// The most bytes that were live in them at once, as requested.
  Bytes load() const noexcept { return load_; }

  /// A step begins anew.
  void rewind() noexcept { next_ = 0; }
  struct Answer {
    bool known = false;                 ///< The step does as it did.
    std::optional<std::size_t> offset;  ///< None for what outlives the step.
  };
  /// The next request. One that is not the expected one may be a few places further on; nothing is taken for granted
  /// about the place that is found: whether it is free must be checked.
  Answer next(std::size_t bytes) noexcept;

 private:
  struct Slot {
    std::size_t bytes;
    std::optional<std::size_t> offset;
  };
  std::vector<Slot> slots_;
  std::size_t height_ = 0, next_ = 0;
  Bytes load_;
};
}  // namespace cinch::record::internal
