#pragma once
// [model] of a job file.

#include <cstddef>

#include "cinch/job/internal/section.h"
#include "cinch/job/job.h"

namespace cinch::job::internal {

/// The model of the kind at `kind` of kModelKinds. Throws ConfigError: ranges, and what a default would be made of.
ModelConfig read_model(const Section& model, std::size_t kind);
}  // namespace cinch::job::internal
