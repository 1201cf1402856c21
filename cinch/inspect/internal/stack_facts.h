#pragma once
// What a stack gives away about the allocation made under it.

#include <cstdint>
#include <vector>

#include "cinch/trace/stacks.h"

namespace cinch::inspect::internal {

/// What the program was doing, as the stack says.
enum class Origin : std::uint8_t {
  kNoStack,   ///< None was recorded.
  kUnhinted,  ///< A stack in which nothing is known.
  kLoading,   ///< A module is made, moved or loaded.
  kForward,
  kBackward,
  kOptimizer
};

struct StackFacts {
  Origin origin = Origin::kNoStack;
  bool in_backward = false;  ///< Also of an optimizer that steps inside backward.
  bool recompute = false;    ///< A forward inside backward: activation checkpointing.
  bool accumulates = false;  ///< Into a .grad.
  bool bucket = false;       ///< Of DistributedDataParallel.
  bool autocast = false;     ///< A copy that autocast makes.
  bool moves = false;        ///< A tensor to the device: the outermost op is a copy to one.
  bool cublas_workspace = false, cudnn_workspace = false, communication = false;
};

/// Facts of every stack of a table, each found once.
class StackReader {
 public:
  explicit StackReader(const trace::StackTable& stacks) : stacks_(stacks), facts_(stacks.size()) {}
  const StackFacts& operator[](trace::StackId stack);
  /// True if it has a frame with a file or a function.
  bool says_something(trace::StackId stack) const;

 private:
  struct Entry {
    bool known = false;
    StackFacts facts;
  };
  StackFacts read(trace::StackId stack);
  std::uint32_t file_bits(trace::NameId file);
  std::uint32_t function_bits(trace::NameId function);

  const trace::StackTable& stacks_;
  std::vector<Entry> facts_;
  std::vector<std::uint32_t> file_bits_, function_bits_;  ///< By NameId; 0: not looked at yet.
};
}  // namespace cinch::inspect::internal
