#pragma once
// Reads pickles of protocols 0 to 5 that hold data alone. A pickle is a program for a stack machine; see
// pickletools.py.
//
// An event of a trace is packed as soon as its dict is complete, a stack as soon as its event is, so that what is kept
// as general values is the segments, the settings and the annotations.

#include "cinch/snapshot/internal/input.h"
#include "cinch/snapshot/internal/recording.h"

namespace cinch::snapshot::internal {

/// Throws Problem (its offset is that of `input`) or IoError.
void read_pickle(Input& input, RecordingBuilder& builder);
}  // namespace cinch::snapshot::internal
