#include "cinch/report/internal/advice.h"

namespace cinch::report::internal {

std::string_view shrinks_by(trace::Category category) {
  using trace::Category;
  switch (category) {
    case Category::kActivation:
      return "checkpointing, micro-batches";
    case Category::kTemporary:
      return "micro-batches (of forward and backward)";
    case Category::kOptimizerState:
      return "SGD: half of AdamW's state, or none";
    case Category::kParameter:
      return "fewer or narrower layers";
    case Category::kGradient:
      return "fewer trained parameters";
    case Category::kInput:
      return "a smaller batch";
    case Category::kBuffer:
    case Category::kUnknown:
      break;
  }
  return "";
}
}  // namespace cinch::report::internal
