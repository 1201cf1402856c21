#pragma once
// The allocations behind a recording's leaks.

#include "cinch/inspect/categories.h"
#include "cinch/inspect/leaks.h"
#include "cinch/snapshot/snapshot.h"

namespace cinch::inspect::internal {

/// Sets the kind of what was made where `leaks` were found: of what is kept, all that is never freed; of what is
/// replaced by something larger, all.
void mark_leaked(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Leaks& leaks, Kinds& kinds);
}  // namespace cinch::inspect::internal
