#pragma once
// What lived before the recording began, for which there are no events and mostly no stacks.

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cinch/inspect/categories.h"
#include "cinch/inspect/internal/stack_facts.h"

namespace cinch::inspect::internal {

/// Tells parameters, optimizer state, gradients and the rest apart by their sizes: a gradient is as large as its
/// parameter, and so is each tensor that AdamW or SGD with momentum keeps for it.
class BeforeRecording {
 public:
  void add(trace::AllocationId id, std::int64_t bytes, const StackFacts& facts);
  /// `id` was freed in a stretch of that phase.
  void freed(trace::AllocationId id, trace::Phase phase);
  bool has(trace::AllocationId id) const { return static_cast<std::size_t>(id) < blocks_.size(); }

  /// A parameter that was made while the recording ran.
  void parameter_made(std::int64_t bytes) { ++sizes_[bytes]; }
  /// True if a parameter may have this size; also where no size of any is known.
  bool like_a_parameter(std::int64_t bytes) const { return sizes_.empty() || sizes_.contains(bytes); }
  bool sizes_known() const { return !sizes_.empty(); }

  /// A gradient, or a tensor of the optimizer, made while the recording ran.
  void gradient_made(std::int64_t bytes, std::uint32_t step);
  void state_made(std::int64_t bytes) { states_.insert({bytes, 0}).first->second++; }

  /// Sets the kinds of all that was added. `training`: there is a forward, backward or optimizer. `window`: the
  /// recording began earlier than what was played, so that activations may be among what lives.
  void decide(std::vector<Kind>& kinds, bool training, bool window) const;

 private:
  struct Block {
    std::int64_t bytes = 0;
    std::optional<Kind> kind;  ///< As its stack says.
    std::optional<trace::Phase> freed;
  };
  struct Gradients {
    std::uint32_t step = 0, count = 0, most = 0;
    std::uint32_t in_one_step() const { return most > count ? most : count; }
  };
  Kind kind_of_freed(const Block& block) const;
  Kind kind_of_other(const Block& block, bool few, bool training, bool window) const;
  bool matched(std::int64_t bytes) const { return gradients_.contains(bytes) || states_.contains(bytes); }
  std::int64_t tensors_per_parameter(const std::map<std::int64_t, std::int64_t>& counts) const;

  std::vector<Block> blocks_;  ///< By AllocationId: they come first.
  std::unordered_map<std::int64_t, std::uint32_t> sizes_;
  std::unordered_map<std::int64_t, Gradients> gradients_;
  std::unordered_map<std::int64_t, std::uint32_t> states_;
};
}  // namespace cinch::inspect::internal
