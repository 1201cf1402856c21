#pragma once
// The trace-event format of Chrome and Perfetto.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

#include "cinch/core/atomic_file.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/trace.h"

namespace cinch::snapshot::internal {

/// A process for each device: its bytes as counters, the annotations as slices.
void write_chrome(const Snapshot& snapshot, AtomicFile& file);
/// Live bytes as a counter, phases as slices.
void write_chrome(const trace::Trace& trace, AtomicFile& file);
}  // namespace cinch::snapshot::internal
