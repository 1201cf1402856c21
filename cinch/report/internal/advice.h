#pragma once
// What makes a kind of tensor smaller.

#include <string_view>

#include "cinch/trace/event.h"

namespace cinch::report::internal {

/// "checkpointing, micro-batches"; "" where there is nothing to say.
std::string_view shrinks_by(trace::Category category);
}  // namespace cinch::report::internal
