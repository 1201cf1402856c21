// Any bytes as a trace file: read or refused, and what was read answers every question and survives a round trip.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "cinch/core/error.h"
#include "cinch/trace/internal/format.h"
#include "cinch/trace/trace.h"

namespace {
using namespace cinch::trace;

void require(bool condition) {
  if (!condition) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  Trace trace;
  try {
    internal::read_trace(in, size, "fuzz", trace);
  } catch (const cinch::DataError& error) {
    require(error.offset() <= size);
    return 0;
  }
  require(trace.left_out() == 0);
  classify(trace);
  const Timeline timeline(trace);
  const Timeline::Peak peak = timeline.peak();
  require(timeline.live_by_category(peak.event).sum() == peak.bytes);
  phase_ends(trace);

  Trace copy;
  trace.replay(copy);
  require(copy.left_out() == 0);
  require(!first_divergence(trace, copy) && !compare_phase_ends(trace, copy));
  adopt_shapes(copy, trace);
  return 0;
}
