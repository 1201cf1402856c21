#include "cinch/trace/event.h"

namespace cinch::trace {
namespace {
// In the order of the enums.
constexpr std::array<std::string_view, kPhaseCount> kPhaseNames{"init",      "data",       "forward", "backward",
                                                                "optimizer", "evaluation", "save",    "other"};
constexpr std::array<std::string_view, kCategoryCount> kCategoryNames{
    "parameter", "gradient", "activation", "optimizer_state", "input", "buffer", "temporary", "unknown"};
}  // namespace

std::string_view name_of(Phase phase) { return kPhaseNames.at(static_cast<std::size_t>(phase)); }

std::string_view name_of(Category category) { return kCategoryNames.at(static_cast<std::size_t>(category)); }

Bytes CategoryBytes::sum() const {
  Bytes sum;
  for (Bytes bytes : bytes_) sum += bytes;
  return sum;
}
}  // namespace cinch::trace
