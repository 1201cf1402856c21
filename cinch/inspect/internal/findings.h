#pragma once
// An Inspection in sentences.

#include <vector>

#include "cinch/inspect/inspect.h"

namespace cinch::inspect::internal {

/// Fills in the sentences of an out of memory.
void describe(const Inspection& inspection, OutOfMemory& oom);

/// Most important first: what failed, the peak, what is wasted, what leaks, what could be smaller.
std::vector<Finding> findings(const Inspection& inspection);
}  // namespace cinch::inspect::internal
