#pragma once
// What one call of a kernel does to memory: the allocations and frees inside it, and where its outputs lie.
// Made from a rule, or by a probe; played by the fallback.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/stack.h>

#include "cinch/core/bytes.h"

namespace cinch::dryrun::internal {

struct KernelScript {
  static constexpr std::size_t kNothing = static_cast<std::size_t>(-1);  ///< An allocation of 0 bytes.
  struct Step {
    bool allocates;
    std::size_t index;  ///< Of the allocation, dense from 0.
    Bytes bytes;
  };
  std::vector<Step> steps;
  /// As the kernel returned them, their tensors over other storages.
  std::vector<c10::IValue> outputs;
  /// Where an output tensor lies, in the order of for_each_tensor over `outputs`.
  struct Place {
    enum class Kind : std::uint8_t { kArgument, kViewOfArgument, kAllocation } kind;
    std::size_t index;  ///< Of the argument tensor in the order of for_each_tensor, or of the allocation.
  };
  std::vector<Place> places;
  /// Arguments that got other layouts in place, and those of them that grew: into which allocation.
  struct Relaid {
    std::size_t argument;
    at::Tensor layout;                     ///< On the Meta device.
    std::size_t allocation;                ///< kNothing: the memory is as it was.
  };
  std::vector<Relaid> relaid;

  Bytes peak() const;  ///< Above what was live when the call began.
  Bytes kept() const;  ///< Live when it returns.
};

/// The same call with nothing allocated but what it returns: a CPU kernel's layouts for another device.
KernelScript without_scratch(const KernelScript& script);
}  // namespace cinch::dryrun::internal
