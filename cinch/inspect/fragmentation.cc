#include "cinch/inspect/fragmentation.h"

#include <algorithm>
#include <bit>
#include <map>

namespace cinch::inspect {
namespace {

using trace::Block;
using trace::PoolId;
using trace::Segment;
using trace::StreamId;
using State = Block::State;

constexpr std::int64_t kMinBlock = 512;
constexpr std::int64_t kSmallPage = 2 << 20;
constexpr std::size_t kHolders = 4;

StreamId busiest_stream(std::span<const Segment> segments) {
  std::map<StreamId, Bytes> requested;
  for (const Segment& segment : segments) {
    if (segment.pool != PoolId{0}) continue;
    Bytes& bytes = requested[segment.stream];
    for (const Block& block : segment.blocks) {
      if (block.state == State::kActiveAllocated) bytes += block.requested;
    }
  }
  StreamId best{};
  Bytes most{-1};
  for (const auto& [stream, bytes] : requested) {
    if (bytes > most) {
      best = stream;
      most = bytes;
    }
  }
  return best;
}

/// Of a free block: the part that can go back to the driver while the rest of its segment lives.
Bytes returnable(const Segment& segment, const Block& block, const allocator::Settings& settings) {
  if (segment.blocks.size() == 1) return block.size;
  if (!segment.expandable) return Bytes(0);
  const std::int64_t page = segment.large ? settings.large_segment_size.count() : kSmallPage;
  if (page <= 0) return Bytes(0);
  const auto begin = static_cast<std::int64_t>(block.address - segment.address), end = begin + block.size.count();
  const std::int64_t first = (begin + page - 1) / page * page, last = end / page * page;
  return Bytes(std::max<std::int64_t>(last - first, 0));
}

void add_live(Fragmentation& parts, const Block& block, const allocator::Settings& settings) {
  const Bytes rounded = std::min(round_request(block.requested, settings), block.size);
  parts.requested += block.requested;
  parts.rounding += rounded - block.requested;
  parts.unsplittable += block.size - rounded;
}

PinnedSegment pinned(const Segment& segment) {
  PinnedSegment result{segment.address, segment.total, Bytes(0), Bytes(0), {}, 0};
  for (const Block& block : segment.blocks) {
    if (block.state == State::kInactive) {
      result.free += block.size;
      result.largest_free = std::max(result.largest_free, block.size);
    } else {
      ++result.blocks;
      result.holders.push_back({block.address, block.requested, block.stack, {}});
    }
  }
  std::stable_sort(result.holders.begin(), result.holders.end(),
                   [](const auto& left, const auto& right) { return left.requested < right.requested; });
  if (result.holders.size() > kHolders) result.holders.resize(kHolders);
  return result;
}

/// Of a segment in the default pool of the stream that is looked at.
void add_free(Fragmentation& parts, const Segment& segment, const allocator::Settings& settings) {
  bool strands = false;
  for (const Block& block : segment.blocks) {
    if (block.state != State::kInactive) continue;
    const Bytes back = returnable(segment, block, settings), rest = block.size - back;
    parts.largest_free = std::max(parts.largest_free, block.size);
    parts.cached_segments += back;
    if (segment.blocks.size() == 1) ++parts.cached_segment_count;
    if (rest == Bytes(0)) continue;
    parts.stranded += rest;
    ++parts.stranded_blocks;
    strands = true;
  }
  if (strands) parts.pinned.push_back(pinned(segment));
}
}  // namespace

Bytes Fragmentation::wasted() const {
  return rounding + unsplittable + stranded + cached_segments + other_streams + private_pools + pending_frees;
}

Bytes round_request(Bytes requested, const allocator::Settings& settings) {
  const std::int64_t bytes = requested.count();
  if (bytes < kMinBlock) return Bytes(kMinBlock);
  const int log2 = std::bit_width(static_cast<std::uint64_t>(bytes)) - 1;
  const std::int64_t divisions =
      settings.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(log2 - 20, 0, 15))];
  if (divisions > 1 && bytes > kMinBlock * divisions) {
    if (std::has_single_bit(static_cast<std::uint64_t>(bytes))) return requested;
    const std::int64_t power = std::int64_t{1} << log2;
    const std::int64_t step = power >> (std::bit_width(static_cast<std::uint64_t>(divisions)) - 1);
    return step == 0 ? Bytes(2 * power) : Bytes((bytes + step - 1) / step * step);
  }
  return Bytes((bytes + kMinBlock - 1) / kMinBlock * kMinBlock);
}

Fragmentation fragmentation(std::span<const Segment> segments, const allocator::Settings& settings,
                            std::optional<StreamId> stream, std::size_t pinned_limit) {
  Fragmentation parts;
  parts.stream = stream ? *stream : busiest_stream(segments);
  for (const Segment& segment : segments) {
    parts.reserved += segment.total;
    Bytes free;
    for (const Block& block : segment.blocks) {
      if (block.state == State::kActiveAllocated) add_live(parts, block, settings);
      if (block.state == State::kActivePendingFree) parts.pending_frees += block.size;
      if (block.state == State::kInactive) free += block.size;
    }
    if (segment.pool != PoolId{0}) {
      parts.private_pools += free;
    } else if (segment.stream != parts.stream) {
      parts.other_streams += free;
    } else {
      add_free(parts, segment, settings);
    }
  }
  std::stable_sort(parts.pinned.begin(), parts.pinned.end(),
                   [](const auto& left, const auto& right) { return left.free > right.free; });
  if (parts.pinned.size() > pinned_limit) parts.pinned.resize(pinned_limit);
  return parts;
}
}  // namespace cinch::inspect
