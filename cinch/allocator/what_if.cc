#include <algorithm>
#include <utility>

#include "cinch/allocator/internal/recorded_addresses.h"
#include "cinch/allocator/internal/source.h"
#include "cinch/core/error.h"

namespace cinch::allocator {
namespace internal {
namespace {

using trace::Action;

/// Hands the recorded addresses to the model just before it asks for them.
class Feed final : public trace::Sink {
 public:
  Feed(Replay& replay, RecordedAddresses& addresses) : replay_(replay), addresses_(addresses) {}
  void on_event(const trace::Event& event) override {
    const bool answers = event.action == Action::kSegmentAlloc || event.action == Action::kSegmentMap;
    if (answers && !event.before) addresses_.expect(event);
    replay_.on_event(event);
    if (event.action == Action::kAlloc || event.action == Action::kOom) addresses_.forget();
  }

 private:
  Replay& replay_;
  RecordedAddresses& addresses_;
};

WhatIf result_of(const Replay& replay, const Source& source, const Settings& settings) {
  const Stats stats = replay.stats();
  WhatIf run;
  run.settings = settings;
  run.peak_allocated = {stats.peak_allocated, stats.peak_allocated};
  run.peak_reserved = {stats.peak_reserved, stats.peak_reserved};
  run.end_reserved = {stats.reserved, stats.reserved};
  run.alloc_retries = stats.alloc_retries;
  run.failure = replay.failure();
  if (run.failure) run.failure->event += source.first_event;
  run.orders = 1;
  run.orders_failed = run.failure ? 1 : 0;
  return run;
}

/// The recorded state and the recorded addresses; `mattered`: others had to be made up, and made a difference.
WhatIf try_recorded(const Source& source, const Machine& machine, AddressOrder order, bool& mattered) {
  const auto made_up = make_addresses(order);
  RecordedAddresses addresses(*made_up);
  Replay replay(machine, addresses, nullptr, source.empties_cache);
  replay.restore(source.start);
  Feed feed(replay, addresses);
  source.play(feed);
  mattered = addresses.deviated() && replay.addresses_mattered();
  WhatIf run = result_of(replay, source, machine.settings);
  run.exact_start = true;
  return run;
}

/// The start packed anew.
WhatIf try_anew(const Source& source, const Machine& machine, AddressOrder order, bool& mattered) {
  const auto addresses = make_addresses(order);
  Replay replay(machine, *addresses, nullptr, source.empties_cache);
  source.play(replay);
  mattered = replay.addresses_mattered();
  return result_of(replay, source, machine.settings);
}

WhatIf try_order(const Source& source, const Machine& machine, AddressOrder order, bool& mattered) {
  const bool as_recorded = source.settings && *source.settings == machine.settings;
  return as_recorded ? try_recorded(source, machine, order, mattered) : try_anew(source, machine, order, mattered);
}

void widen(Interval& interval, const Interval& other) {
  interval.low = std::min(interval.low, other.low);
  interval.high = std::max(interval.high, other.high);
}

void add(WhatIf& run, const WhatIf& other) {
  widen(run.peak_allocated, other.peak_allocated);
  widen(run.peak_reserved, other.peak_reserved);
  widen(run.end_reserved, other.end_reserved);
  run.alloc_retries = std::max(run.alloc_retries, other.alloc_retries);
  run.orders += other.orders;
  run.orders_failed += other.orders_failed;
  if (other.failure && (!run.failure || other.failure->event < run.failure->event)) run.failure = other.failure;
}
}  // namespace

Source source_of(const snapshot::Snapshot& snapshot, const snapshot::Device& device) {
  const Settings settings = recorded_settings(snapshot.settings());
  return {.play = [&snapshot, &device](trace::Sink& sink) { snapshot.play(device, sink); },
          .first_event = device.first_event,
          // Where these pick what is given back, a recording does not tell their doing from the program's.
          .empties_cache = !settings.max_split_size && settings.garbage_collection_threshold == 0,
          .settings = settings,
          .start = device.start};
}

Source source_of(const trace::Trace& trace) {
  return {.play = [&trace](trace::Sink& sink) { trace.replay(sink); }};
}

WhatIf try_first(const Source& source, const Machine& machine, bool& mattered) {
  return try_order(source, machine, all_address_orders().front(), mattered);
}

void try_others(const Source& source, const Machine& machine, WhatIf& run) {
  for (const AddressOrder order : all_address_orders().subspan(1)) {
    bool mattered = false;
    add(run, try_order(source, machine, order, mattered));
  }
}

WhatIf try_orders(const Source& source, const Machine& machine) {
  bool mattered = false;
  WhatIf run = try_first(source, machine, mattered);
  if (mattered) try_others(source, machine, run);
  return run;
}
}  // namespace internal

Settings recorded_settings(const snapshot::RecordedSettings& recorded) {
  Settings settings;
  try {
    settings = Settings::parse(recorded.alloc_conf);
  } catch (const UsageError&) {
    settings = {};  // Of a version whose keys this one does not know: what is stated explicitly counts.
  }
  const double threshold = recorded.garbage_collection_threshold;
  settings.garbage_collection_threshold = threshold > 0 && threshold < 1 ? threshold : 0;
  settings.max_split_size = recorded.max_split_size > Bytes() ? recorded.max_split_size : std::nullopt;
  settings.expandable_segments = recorded.expandable_segments;
  for (std::size_t i = 0; i < recorded.roundup_power2_divisions.size() && i < settings.roundup_power2_divisions.size();
       ++i) {
    settings.roundup_power2_divisions[i] =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, recorded.roundup_power2_divisions[i]));
  }
  return settings;
}

WhatIf what_if(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Machine& machine) {
  return internal::try_orders(internal::source_of(snapshot, device), machine);
}

WhatIf what_if(const trace::Trace& trace, const Machine& machine) {
  return internal::try_orders(internal::source_of(trace), machine);
}
}  // namespace cinch::allocator
