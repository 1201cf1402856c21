#include "cinch/allocator/on_card.h"

#include <algorithm>
#include <utility>

#include "cinch/allocator/replay.h"

namespace cinch::allocator {
namespace {

struct Replayed {
  Stats stats;
  std::optional<std::size_t> failed_at;  ///< Event.
};

Replayed replay_on(const trace::Trace& trace, const Settings& settings, Bytes memory) {
  const auto addresses = make_addresses(AddressOrder::kDriver);
  Replay replay({.settings = settings, .device_memory = memory}, *addresses);
  Replayed result;
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    replay.on_event(trace.events()[i]);
    if (!replay.failure()) continue;
    result.failed_at = i;
    break;
  }
  result.stats = replay.stats();
  return result;
}

/// With the least memory that suffices, to 0.2 %: where memory is short the allocator gives its cache back before it
/// fails, so that less than `unlimited` took may do. `short_of`: what is too little.
Replayed smallest_that_suffices(const trace::Trace& trace, const Settings& settings, Replayed unlimited,
                                Bytes short_of) {
  constexpr std::int64_t kPart = 512;
  Bytes low = std::max(short_of, unlimited.stats.peak_requested);
  Bytes high = unlimited.stats.peak_reserved;
  while ((high - low).count() > high.count() / kPart) {
    const Bytes middle = low + Bytes((high - low).count() / 2);
    Replayed limited = replay_on(trace, settings, middle);
    if (limited.failed_at) {
      low = middle;
    } else {
      unlimited = std::move(limited);
      high = std::min(middle, unlimited.stats.peak_reserved);
    }
  }
  return unlimited;
}
}  // namespace

OnCard on_card(const trace::Trace& trace, const device::DeviceSpec& card, Bytes capacity, const Settings& settings) {
  const Bytes memory = capacity > card.context ? capacity - card.context : Bytes();
  OnCard result;
  result.bytes.context = card.context;
  Replayed replayed = replay_on(trace, settings, kUnlimitedMemory);
  if (replayed.stats.peak_reserved > memory) {
    Replayed limited = replay_on(trace, settings, memory);
    if (limited.failed_at) {
      const trace::Event& event = trace.events()[*limited.failed_at];
      result.runs_out = OutOfMemoryPlace{event.bytes, event.step, event.phase, std::string(trace.name(event.module)),
                                         std::string(trace.op_name(event.op))};
      replayed = smallest_that_suffices(trace, settings, std::move(replayed), memory);
      // Given less it may give back more, and then fail: what it took there is no answer.
      replayed.stats.peak_reserved = std::max(replayed.stats.peak_reserved, memory + Bytes(1));
    } else {
      replayed = std::move(limited);
    }
  }
  result.bytes.allocated = replayed.stats.peak_allocated;
  result.bytes.reserved = replayed.stats.peak_reserved;
  return result;
}
}  // namespace cinch::allocator
