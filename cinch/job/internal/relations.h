#pragma once
// What must hold between the keys of a job.

#include "cinch/job/internal/section.h"
#include "cinch/job/job.h"

namespace cinch::job::internal {

/// Throws ConfigError at the key that is best changed.
void check_relations(const Job& job, const Section& model, const Section& data, const Section& train,
                     const Section& memory);
}  // namespace cinch::job::internal
