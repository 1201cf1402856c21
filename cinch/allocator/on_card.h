#pragma once
// A dry run on a CUDA card, through the model of the caching allocator.

#include <cstdint>
#include <optional>
#include <string>

#include "cinch/allocator/settings.h"
#include "cinch/core/bytes.h"
#include "cinch/device/device_spec.h"
#include "cinch/trace/trace.h"

namespace cinch::allocator {

/// Peaks, each at its own time.
struct CardBytes {
  Bytes allocated;                                      ///< Blocks in use: rounded, with what could not be split off.
  Bytes reserved;                                       ///< Segments.
  Bytes context;                                        ///< The driver's.
  Bytes on_card() const { return reserved + context; }  ///< What nvidia-smi shows.
};

/// The request that a card could not serve.
struct OutOfMemoryPlace {
  Bytes asked;
  std::uint32_t step = 0;
  trace::Phase phase = trace::Phase::kOther;
  std::string module, op;
};

struct OnCard {
  /// Under `capacity` if it fits; else under the least memory that suffices, to 0.2 %: more than `capacity`.
  CardBytes bytes;
  std::optional<OutOfMemoryPlace> runs_out;
};
/// `capacity`: what the process may have, context included. O(events · log).
OnCard on_card(const trace::Trace& trace, const device::DeviceSpec& card, Bytes capacity,
               const Settings& settings = {});
}  // namespace cinch::allocator
