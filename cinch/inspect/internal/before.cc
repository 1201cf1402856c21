#include "cinch/inspect/internal/before.h"

#include <algorithm>

namespace cinch::inspect::internal {
namespace {

constexpr std::int64_t kMostPerParameter = 4;  // Itself and at most three of the optimizer.
constexpr std::int64_t kBufferShare = 16;      // Unmatched: buffers if at most one part in so many of the parameters.

std::optional<Kind> by_stack(const StackFacts& facts) {
  if (facts.cublas_workspace) return Kind::kCublasWorkspace;
  if (facts.cudnn_workspace) return Kind::kCudnnWorkspace;
  if (facts.bucket) return Kind::kGradientBucket;
  switch (facts.origin) {
    case Origin::kLoading:
      return Kind::kParameter;
    case Origin::kOptimizer:
      return Kind::kOptimizerState;
    case Origin::kBackward:
      return Kind::kGradient;
    case Origin::kForward:
      return facts.autocast ? Kind::kAutocastCopy : Kind::kBuffer;
    case Origin::kUnhinted:
      return facts.moves ? std::optional(Kind::kInput) : std::nullopt;
    case Origin::kNoStack:
      break;
  }
  return std::nullopt;
}
}  // namespace

void BeforeRecording::add(trace::AllocationId id, std::int64_t bytes, const StackFacts& facts) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= blocks_.size()) blocks_.resize(index + 1);
  blocks_[index] = {bytes, by_stack(facts), std::nullopt};
  ++sizes_[bytes];
}

void BeforeRecording::freed(trace::AllocationId id, trace::Phase phase) {
  blocks_[static_cast<std::size_t>(id)].freed = phase;
}

void BeforeRecording::gradient_made(std::int64_t bytes, std::uint32_t step) {
  Gradients& gradients = gradients_[bytes];
  if (gradients.step != step) {
    gradients.most = gradients.in_one_step();
    gradients.step = step;
    gradients.count = 0;
  }
  ++gradients.count;
}

Kind BeforeRecording::kind_of_freed(const Block& block) const {
  if (block.kind == Kind::kBuffer) return Kind::kActivation;  // Made in a forward, and gone.
  if (block.kind) return *block.kind;
  if (matched(block.bytes)) return Kind::kGradient;
  return block.freed == trace::Phase::kBackward ? Kind::kActivation : Kind::kUnknown;
}

/// How many of each size belong to one parameter: itself, and what an optimizer that had already stepped keeps.
std::int64_t BeforeRecording::tensors_per_parameter(const std::map<std::int64_t, std::int64_t>& counts) const {
  const bool first_step =
      std::any_of(states_.begin(), states_.end(), [&](const auto& state) { return counts.contains(state.first); });
  if (first_step) return 1;
  std::int64_t each = kMostPerParameter;
  for (const auto& [bytes, count] : counts) {
    const auto found = gradients_.find(bytes);
    if (found != gradients_.end()) each = std::min<std::int64_t>(each, count / found->second.in_one_step());
  }
  const auto divides = [&] {
    return std::all_of(counts.begin(), counts.end(), [&](const auto& size) { return size.second % each == 0; });
  };
  while (each > 1 && !divides()) --each;
  return std::max<std::int64_t>(each, 1);
}

/// Of one that stays, and has neither a stack that tells nor the size of a gradient. `few`: such are a small part.
Kind BeforeRecording::kind_of_other(const Block& block, bool few, bool training, bool window) const {
  if (block.kind) return window && *block.kind == Kind::kBuffer ? Kind::kActivation : *block.kind;
  if (window && !few) return Kind::kUnknown;
  if (gradients_.empty() && states_.empty()) return training ? Kind::kParameter : Kind::kUnknown;
  return few ? Kind::kBuffer : Kind::kFrozen;
}

void BeforeRecording::decide(std::vector<Kind>& kinds, bool training, bool window) const {
  std::map<std::int64_t, std::int64_t> counts;  // Of those that stay, of a size that gradients or states have.
  std::int64_t matched_bytes = 0, other_bytes = 0;
  for (const Block& block : blocks_) {
    if (block.freed || block.kind) continue;
    const bool parameter_size = matched(block.bytes);
    if (parameter_size) ++counts[block.bytes];
    (parameter_size ? matched_bytes : other_bytes) += block.bytes;
  }
  const std::int64_t each = tensors_per_parameter(counts);
  const bool few = other_bytes <= matched_bytes / kBufferShare;
  std::map<std::int64_t, std::int64_t> met;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.freed) {
      kinds[i] = kind_of_freed(block);
    } else if (!block.kind && matched(block.bytes)) {
      kinds[i] = met[block.bytes]++ < counts[block.bytes] / each ? Kind::kParameter : Kind::kOptimizerState;
    } else {
      kinds[i] = kind_of_other(block, few, training, window);
    }
  }
}
}  // namespace cinch::inspect::internal
