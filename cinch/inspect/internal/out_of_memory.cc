#include "cinch/inspect/internal/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "cinch/allocator/replay.h"
#include "cinch/core/text.h"
#include "cinch/inspect/internal/rerun.h"

namespace cinch::inspect::internal {
namespace {

using trace::Block;
using State = Block::State;

constexpr std::int64_t kSmallRequest = 1 << 20, kSmallSegment = 2 << 20, kLargeRequest = 10 << 20;

/// What the driver is asked for to serve a request.
Bytes segment_for(Bytes rounded, const allocator::Settings& settings) {
  if (rounded.count() <= kSmallRequest) return Bytes(kSmallSegment);
  if (rounded.count() < kLargeRequest) return settings.large_segment_size;
  return Bytes((rounded.count() + kSmallSegment - 1) / kSmallSegment * kSmallSegment);
}

/// The capacity is what may be reserved, whatever part of the card that is.
allocator::Machine machine_of(const allocator::Settings& settings, Bytes capacity) {
  allocator::Machine machine;
  machine.settings = settings;
  machine.settings.memory_fraction = 1;
  machine.device_memory = capacity;
  return machine;
}

std::optional<Failure> recorded_failure(const Meter::Totals& totals) {
  if (!totals.oom) return std::nullopt;
  Failure failure;
  failure.recorded = true;
  failure.asked = totals.oom->bytes;
  failure.free = totals.free_at_oom.value_or(Bytes(0));
  failure.reserved = totals.reserved_at_oom;
  failure.capacity = failure.reserved + failure.free;
  failure.event = totals.oom_event;
  return failure;
}

/// Without anything live the request would fit: that much must go.
Bytes live_sum(const std::vector<Moments::Allocation>& live) {
  Bytes sum;
  for (const Moments::Allocation& allocation : live) sum += allocation.bytes;
  return sum;
}

Bytes reserved_by(const std::vector<trace::Segment>& segments) {
  Bytes sum;
  for (const trace::Segment& segment : segments) sum += segment.total;
  return sum;
}

std::string why_not_served(const OutOfMemory& oom, bool tensors_alone) {
  if (tensors_alone) {
    return fmt::format("What lives and the request together are {} B; not a byte of that is waste.",
                       with_thousands((oom.capacity + oom.short_by).count()));
  }
  const Bytes scattered = oom.waste.stranded, missing = oom.asked - oom.largest_free_block;
  std::string text =
      fmt::format("The largest free block of its pool had {}, {} too little, and the device {} to get a segment from",
                  to_string(oom.largest_free_block), to_string(missing), to_string(oom.free));
  if (scattered > Bytes(0)) {
    text += fmt::format("; {} lie free in {} pieces beside blocks that live", to_string(scattered),
                        with_thousands(static_cast<std::int64_t>(oom.waste.stranded_blocks)));
  }
  return text + ".";
}

Tensor tensor_of(const snapshot::Snapshot& snapshot, const Kinds& kinds, const Moments::Allocation& allocation) {
  const bool unknown = allocation.stack == trace::StackId{};
  return {allocation.bytes, kinds.of[static_cast<std::size_t>(allocation.id)],
          unknown && allocation.before ? "(before the recording)"
                                       : to_string(call_path(snapshot.stacks(), allocation.stack))};
}

/// The first of the settings worth a try under which nothing fails; of a recorded failure, nothing up to it.
void try_settings(OutOfMemory& oom, const snapshot::Snapshot& snapshot, const snapshot::Device& device,
                  const allocator::Settings& settings) {
  const allocator::Machine machine = machine_of(settings, oom.capacity);
  for (const allocator::WhatIf& run : allocator::grid(snapshot, device, machine)) {
    if (run.failure && !(oom.recorded && run.failure->event > oom.event)) continue;
    oom.any_setting_helps = true;
    oom.setting = run.settings.to_string();
    oom.setting_needs = run.peak_reserved.high;
    return;
  }
}

/// Blocks that must go, of the layout in which the request failed, as tensors.
std::vector<Tensor> room_by_layout(const OutOfMemory& oom, const snapshot::Snapshot& snapshot, const Kinds& kinds,
                                   const allocator::Settings& settings, const Moments::Moment& moment,
                                   const std::vector<trace::Segment>& segments,
                                   const std::unordered_map<std::uint64_t, trace::AllocationId>& by_address) {
  std::unordered_map<std::uint32_t, const Moments::Allocation*> by_id;
  for (const Moments::Allocation& allocation : moment.live) {
    by_id[static_cast<std::uint32_t>(allocation.id)] = &allocation;
  }
  const Bytes rounded = round_request(oom.asked, settings);
  std::vector<Tensor> result;
  for (const Block& block :
       smallest_room(segments, rounded, segment_for(rounded, settings), oom.free, moment.stream, moment.pool)) {
    const auto id = by_address.find(block.address);
    if (id == by_address.end()) continue;
    const auto found = by_id.find(static_cast<std::uint32_t>(id->second));
    if (found != by_id.end()) result.push_back(tensor_of(snapshot, kinds, *found->second));
  }
  return result;
}

struct Room {
  Bytes bytes;
  std::vector<Block> blocks;
};

bool better(const Room& left, const Room& right) {
  return std::pair(left.bytes, left.blocks.size()) < std::pair(right.bytes, right.blocks.size());
}

/// The cheapest run of neighbours in one segment that is long enough.
std::optional<Room> run_in(const trace::Segment& segment, Bytes needed) {
  std::optional<Room> best;
  Bytes length, cost;
  std::size_t begin = 0;
  const auto& blocks = segment.blocks;
  const auto price = [](const Block& block) { return block.state == State::kInactive ? Bytes(0) : block.size; };
  std::size_t best_begin = 0, best_end = 0;
  for (std::size_t end = 0; end < blocks.size(); ++end) {
    length += blocks[end].size;
    cost += price(blocks[end]);
    while (length - blocks[begin].size >= needed) {
      length -= blocks[begin].size;
      cost -= price(blocks[begin++]);
    }
    if (length >= needed && (!best || cost < best->bytes)) {
      best = Room{cost, {}};
      best_begin = begin;
      best_end = end + 1;
    }
  }
  if (!best) return std::nullopt;
  best->bytes = Bytes(0);
  for (std::size_t i = best_begin; i < best_end; ++i) {
    if (blocks[i].state == State::kInactive) continue;
    best->blocks.push_back(blocks[i]);
    best->bytes += blocks[i].requested;
  }
  return best;
}

/// Segments emptied, those with least in them first, until the driver has enough.
std::optional<Room> emptied(std::vector<const trace::Segment*> segments, Bytes needed) {
  const auto held = [](const trace::Segment* segment) {
    Bytes sum;
    for (const Block& block : segment->blocks) sum += block.state == State::kInactive ? Bytes(0) : block.size;
    return sum;
  };
  std::stable_sort(segments.begin(), segments.end(), [&](const auto* left, const auto* right) {
    return static_cast<double>(held(left).count()) / static_cast<double>(left->total.count()) <
           static_cast<double>(held(right).count()) / static_cast<double>(right->total.count());
  });
  Room room;
  Bytes got;
  for (const trace::Segment* segment : segments) {
    if (got >= needed) break;
    got += segment->total;
    for (const Block& block : segment->blocks) {
      if (block.state == State::kInactive) continue;
      room.blocks.push_back(block);
      room.bytes += block.requested;
    }
  }
  return got >= needed ? std::optional(room) : std::nullopt;
}
}  // namespace

std::optional<Failure> find_failure(const snapshot::Snapshot& snapshot, const snapshot::Device& device,
                                    const allocator::Settings& settings, const Meter::Totals& totals,
                                    std::optional<Bytes> capacity, std::int64_t& retries) {
  if (!capacity) return recorded_failure(totals);
  const allocator::WhatIf run = allocator::what_if(snapshot, device, machine_of(settings, *capacity));
  Failure failure;
  failure.capacity = *capacity;
  if (totals.over_event) {
    failure.event = *totals.over_event;
    failure.asked = totals.over_asked;
    failure.tensors_alone = true;
    if (run.failure && run.failure->event < device.first_event + failure.event) failure.already_at = run.failure->event;
    return failure;
  }
  retries = run.alloc_retries;
  if (!run.failure) return std::nullopt;
  failure.event = run.failure->event - device.first_event;
  failure.asked = run.failure->asked;
  failure.free = run.failure->why.free_on_device;
  failure.largest_free_block = run.failure->why.largest_free_block;
  failure.reserved = *capacity - failure.free;
  return failure;
}

void explain(OutOfMemory& oom, const Failure& failure, const snapshot::Snapshot& snapshot,
             const snapshot::Device& device, const allocator::Settings& settings, const Moments::Moment& moment,
             const Kinds& kinds) {
  oom.recorded = failure.recorded;
  oom.capacity = failure.capacity;
  oom.event = device.first_event + failure.event;
  oom.asked = failure.asked;
  oom.free = failure.free;
  oom.reserved = failure.reserved;
  oom.already_at = failure.already_at;
  // A recorded failure has allocated nothing; what would have failed elsewhere was served here and lives.
  std::vector<Moments::Allocation> live = moment.live;
  if (moment.action == trace::Action::kAlloc && !live.empty()) live.pop_back();
  const Bytes needed = live_sum(live) + failure.asked;
  oom.short_by = std::max(needed - oom.capacity, Bytes(0));
  const bool alone = oom.short_by > Bytes(0);
  if (alone && !failure.recorded) oom.free = std::max(oom.capacity - live_sum(live), Bytes(0));  // At best.
  oom.largest_free_block = failure.recorded ? oom.waste.largest_free : failure.largest_free_block;
  oom.why = why_not_served(oom, alone);
  if (alone) {
    for (const auto& allocation : smallest_set(live, oom.short_by)) {
      oom.make_room.push_back(tensor_of(snapshot, kinds, allocation));
    }
    return;
  }
  if (failure.recorded) {
    std::unordered_map<std::uint64_t, trace::AllocationId> by_address;
    for (const Moments::Allocation& allocation : moment.live) by_address[allocation.address] = allocation.id;
    oom.make_room = room_by_layout(oom, snapshot, kinds, settings, moment, moment.segments, by_address);
  } else {
    Rerun rerun(machine_of(settings, oom.capacity), device);
    snapshot.play(device, rerun);
    if (rerun.failed_at() == failure.event) {
      const auto segments = rerun.segments();
      oom.waste = fragmentation(segments, settings, moment.stream);
      oom.reserved = reserved_by(segments);
      oom.make_room = room_by_layout(oom, snapshot, kinds, settings, moment, segments, rerun.by_address());
      oom.why = why_not_served(oom, false);
    }
  }
  try_settings(oom, snapshot, device, settings);
}

std::vector<Moments::Allocation> smallest_set(std::vector<Moments::Allocation> live, Bytes needed) {
  std::stable_sort(live.begin(), live.end(),
                   [](const auto& left, const auto& right) { return left.bytes > right.bytes; });
  std::vector<Moments::Allocation> chosen;
  for (std::size_t i = 0; i < live.size() && needed > Bytes(0); ++i) {
    // The largest, until one alone is enough: then the smallest that is.
    if (live[i].bytes >= needed) {
      while (i + 1 < live.size() && live[i + 1].bytes >= needed) ++i;
    }
    chosen.push_back(live[i]);
    needed -= live[i].bytes;
  }
  if (needed > Bytes(0)) chosen.clear();
  return chosen;
}

std::vector<trace::Block> smallest_room(const std::vector<trace::Segment>& segments, Bytes rounded, Bytes segment,
                                        Bytes free, trace::StreamId stream, trace::PoolId pool) {
  const bool large = rounded.count() > kSmallRequest;
  std::optional<Room> best;
  std::vector<const trace::Segment*> all;
  for (const trace::Segment& candidate : segments) {
    if (!candidate.expandable) all.push_back(&candidate);
    if (candidate.stream != stream || candidate.pool != pool || candidate.large != large) continue;
    if (auto room = run_in(candidate, rounded); room && (!best || better(*room, *best))) best = std::move(room);
  }
  if (auto room = emptied(std::move(all), segment - free); room && (!best || better(*room, *best)))
    best = std::move(room);
  return best ? best->blocks : std::vector<Block>{};
}
}  // namespace cinch::inspect::internal
