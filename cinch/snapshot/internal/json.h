#pragma once
// Reads a snapshot as JSON, as a stream: values are told as they are read, none is kept.

#include "cinch/snapshot/internal/input.h"
#include "cinch/snapshot/internal/recording.h"

namespace cinch::snapshot::internal {

/// Throws Problem (its offset is that of `input`) or IoError.
void read_json(Input& input, RecordingBuilder& builder);
}  // namespace cinch::snapshot::internal
