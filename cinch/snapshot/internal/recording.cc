#include "cinch/snapshot/internal/recording.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <string>
#include <unordered_map>

#include "cinch/core/text.h"
#include "cinch/snapshot/internal/input.h"

namespace cinch::snapshot::internal {
namespace {
using trace::Action;
using trace::Block;
using trace::Segment;

constexpr std::size_t kMaxNameBytes = 1024;                    // Of an annotation: names are words, not documents.
constexpr std::int64_t kMaxDevice = 127;                       // c10::DeviceIndex is an int8_t.
constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;  // kSmallBuffer
constexpr std::size_t kDivisions = 16;

// Cut to `most` bytes, not within a character of UTF-8.
std::string_view shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return text.substr(0, end);
}

void add_block(Segment& segment, const BlockFields& fields, std::uint64_t& next) {
  if (!fields.state) throw Problem{"a block without a state"};
  Block block;
  block.size = Bytes(checked(fields.size, 1, kMaxSize, "the size of a block"));
  block.address = next;
  if (fields.address && static_cast<std::uint64_t>(*fields.address) != next) {
    throw Problem{"the block at " + std::to_string(*fields.address) +
                  " does not follow the one before it, which ends at " + std::to_string(next)};
  }
  next += static_cast<std::uint64_t>(fields.size);
  block.state = *fields.state;
  if (block.state != Block::State::kInactive) {
    const std::int64_t requested = fields.requested     ? *fields.requested
                                   : fields.has_history ? fields.history_size
                                                        : fields.size;
    block.requested = Bytes(checked(requested, 0, fields.size, "the requested size of a block"));
    block.stack = trace::StackId{fields.stack};
  }
  segment.blocks.push_back(block);
}
}  // namespace

// A gigabyte of events is touched for the first time in huge pages, where the system has them: a quarter of a million
// page faults are a tenth of the time of opening a file.
void EventPool::add_chunk() {
  constexpr std::size_t kBytes = kChunk * sizeof(PackedEvent);
  const bool huge = !chunks_.empty();
  std::unique_ptr<PackedEvent[], Free> chunk(
      static_cast<PackedEvent*>(huge ? std::aligned_alloc(kBytes, kBytes) : std::malloc(kBytes)));
  if (chunk == nullptr) throw std::bad_alloc();
  if (huge) ::madvise(chunk.get(), kBytes, MADV_HUGEPAGE);
  chunks_.push_back(std::move(chunk));
}

void EventPool::keep(const std::vector<std::pair<std::size_t, std::size_t>>& ranges) {
  std::vector<bool> needed(chunks_.size(), false);
  for (const auto& [first, count] : ranges) {
    if (count == 0) continue;
    for (std::size_t chunk = first / kChunk; chunk <= (first + count - 1) / kChunk; ++chunk) needed[chunk] = true;
  }
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (!needed[chunk]) chunks_[chunk].reset();
  }
}

Key key_named(std::string_view name) {
  static const std::unordered_map<std::string_view, Key> kKeys{
      {"segments", Key::kSegments},
      {"device_traces", Key::kDeviceTraces},
      {"allocator_settings", Key::kAllocatorSettings},
      {"external_annotations", Key::kExternalAnnotations},
      {"device", Key::kDevice},
      {"address", Key::kAddress},
      {"total_size", Key::kTotalSize},
      {"stream", Key::kStream},
      {"segment_type", Key::kSegmentType},
      {"segment_pool_id", Key::kSegmentPoolId},
      {"is_expandable", Key::kIsExpandable},
      {"frames", Key::kFrames},
      {"blocks", Key::kBlocks},
      {"size", Key::kSize},
      {"requested_size", Key::kRequestedSize},
      {"state", Key::kState},
      {"history", Key::kHistory},
      {"real_size", Key::kRealSize},
      {"action", Key::kAction},
      {"addr", Key::kAddr},
      {"device_free", Key::kDeviceFree},
      {"time_us", Key::kTimeUs},
      {"filename", Key::kFilename},
      {"line", Key::kLine},
      {"name", Key::kName},
      {"stage", Key::kStage},
      {"PYTORCH_CUDA_ALLOC_CONF", Key::kAllocConf},
      {"max_split_size", Key::kMaxSplitSize},
      {"garbage_collection_threshold", Key::kGarbageCollectionThreshold},
      {"expandable_segments", Key::kExpandableSegments},
      {"roundup_power2_divisions", Key::kRoundupDivisions},
  };
  const auto found = kKeys.find(name);
  return found == kKeys.end() ? Key::kOther : found->second;
}

std::optional<Action> action_named(std::string_view name) {
  static const std::unordered_map<std::string_view, Action> kActions{
      {"alloc", Action::kAlloc},
      {"free_requested", Action::kFreeRequested},
      {"free_completed", Action::kFreeCompleted},
      {"segment_alloc", Action::kSegmentAlloc},
      {"segment_free", Action::kSegmentFree},
      {"segment_map", Action::kSegmentMap},
      {"segment_unmap", Action::kSegmentUnmap},
      {"snapshot", Action::kSnapshot},
      {"oom", Action::kOom},
  };
  const auto found = kActions.find(name);
  if (found == kActions.end()) return std::nullopt;
  return found->second;
}

std::int64_t checked(std::int64_t number, std::int64_t least, std::int64_t most, std::string_view what) {
  if (number < least || number > most) {
    throw Problem{std::string(what) + " is " + std::to_string(number) + ", outside " + std::to_string(least) + " to " +
                  std::to_string(most)};
  }
  return number;
}

Block::State state_named(std::string_view name) {
  if (name == "active_allocated") return Block::State::kActiveAllocated;
  if (name == "active_pending_free" || name == "active_awaiting_free") return Block::State::kActivePendingFree;
  if (name == "inactive") return Block::State::kInactive;
  throw Problem{"a block's state is none of active_allocated, active_pending_free, inactive"};
}

bool is_large(std::string_view segment_type) {
  if (segment_type != "large" && segment_type != "small") throw Problem{"a segment_type is neither small nor large"};
  return segment_type == "large";
}

void require_complete(const EventFields& fields) {
  const Key address = fields.action == Action::kOom ? Key::kDeviceFree : Key::kAddr;
  if (!fields.holds(Key::kSize) || !fields.holds(address)) throw Problem{"an event without size or address"};
}

std::uint32_t RecordingBuilder::stream_id(std::int64_t stream) {
  std::vector<std::uint64_t>& streams = recording_.streams;
  const auto pointer = static_cast<std::uint64_t>(stream);
  if (streams[last_stream_] == pointer) return last_stream_;
  const auto found = std::ranges::find(streams, pointer);
  last_stream_ = static_cast<std::uint32_t>(found - streams.begin());
  if (found == streams.end()) {
    if (streams.size() == kMaxStreams) throw Problem{"more than " + std::to_string(kMaxStreams) + " streams"};
    streams.push_back(pointer);
  }
  return last_stream_;
}

trace::PoolId RecordingBuilder::pool_id(std::pair<std::int64_t, std::int64_t> pool) {
  const std::pair<std::uint64_t, std::uint64_t> wanted(pool);
  const auto found = std::ranges::find(recording_.pools, wanted);
  const auto id = static_cast<std::uint16_t>(found - recording_.pools.begin());
  if (found == recording_.pools.end()) {
    if (recording_.pools.size() == kMaxPools) throw Problem{"more than " + std::to_string(kMaxPools) + " memory pools"};
    recording_.pools.push_back(wanted);
  }
  return trace::PoolId{id};
}

void RecordingBuilder::refuse(const EventFields& fields) {
  checked(fields.address, 0, kMaxAddress, "the address of an event");
  checked(fields.size, 0, kMaxSize, "the size of an event");
  if (fields.holds(Key::kTimeUs)) checked(fields.time_us, 0, kMaxTime, "the time of an event");
  throw Problem{"more than 268,435,455 events"};
}

void RecordingBuilder::add_segment(const SegmentFields& fields) {
  Segment segment;
  segment.address = static_cast<std::uint64_t>(checked(fields.address, 0, kMaxAddress, "the address of a segment"));
  segment.total = Bytes(checked(fields.total, 1, kMaxSize, "the total_size of a segment"));
  segment.stream = trace::StreamId{static_cast<std::uint16_t>(stream_id(fields.stream))};
  segment.pool = pool_id(fields.pool);
  segment.large = fields.large ? *fields.large : fields.total > kSmallSegment;
  segment.expandable = fields.expandable;
  segment.stack = trace::StackId{fields.stack};
  segment.blocks.reserve(fields.blocks.size());
  std::uint64_t next = segment.address;
  for (const BlockFields& block : fields.blocks) add_block(segment, block, next);
  if (next - segment.address != static_cast<std::uint64_t>(fields.total)) {
    throw Problem{"the blocks of the segment at " + std::to_string(fields.address) + " sum to " +
                  std::to_string(next - segment.address) + " B, not to its total_size of " +
                  std::to_string(fields.total)};
  }
  const auto device = static_cast<int>(checked(fields.device, 0, kMaxDevice, "the device of a segment"));
  recording_.devices[device].segments.push_back(std::move(segment));
}

void RecordingBuilder::add_trace(std::size_t device,
                                 const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ranges) {
  if (ranges.empty()) return;
  if (device > static_cast<std::size_t>(kMaxDevice)) throw Problem{"more than 128 devices"};
  Recording::PerDevice& recorded = recording_.devices[static_cast<int>(device)];
  if (ranges.size() == 1 && ranges[0].first >= claimed_) {
    recorded.first = ranges[0].first;
    recorded.count = ranges[0].second;
    claimed_ = recorded.first + recorded.count;
    return;
  }
  recorded.first = recording_.events.size();  // Told in another order than they were read in, or twice.
  for (const auto& [first, count] : ranges) {
    for (std::size_t i = first; i < std::size_t{first} + count; ++i) recording_.events.push_back(recording_.events[i]);
  }
  recorded.count = recording_.events.size() - recorded.first;
  claimed_ = recording_.events.size();
}

void RecordingBuilder::add_annotation(std::string_view name, std::string_view stage, std::int64_t device,
                                      std::int64_t time_us) {
  if (stage != "START" && stage != "END") throw Problem{"the stage of an annotation is neither START nor END"};
  Annotation& annotation = recording_.annotations.emplace_back();
  annotation.name = shortened(name, kMaxNameBytes);
  annotation.start = stage == "START";
  annotation.device = static_cast<int>(checked(device, -1, kMaxDevice, "the device of an annotation"));
  annotation.time_us = checked(time_us, 0, kMaxTime, "the time of an annotation");
}

void RecordingBuilder::set_max_split_size(std::int64_t bytes) {
  if (bytes < 0) {  // SIZE_MAX as int64: unlimited.
    settings().max_split_size.reset();
  } else {
    settings().max_split_size = Bytes(bytes);
  }
}

void RecordingBuilder::set_roundup_division(std::string_view megabytes, std::int64_t division) {
  std::uint32_t size = 0;
  const auto [end, error] = std::from_chars(megabytes.data(), megabytes.data() + megabytes.size(), size);
  if (error != std::errc() || end != megabytes.data() + megabytes.size() || size == 0 || (size & (size - 1)) != 0 ||
      size >= 1u << kDivisions) {
    throw Problem{"roundup_power2_divisions has a key that is no power of two up to 32768"};
  }
  settings().roundup_power2_divisions.resize(kDivisions, 0);
  settings().roundup_power2_divisions[static_cast<std::size_t>(__builtin_ctz(size))] =
      checked(division, 0, std::int64_t{1} << 30, "a division of roundup_power2_divisions");
}

void RecordingBuilder::finish() {
  std::ranges::stable_sort(recording_.annotations, {}, &Annotation::time_us);
  for (auto& [device, recorded] : recording_.devices) {
    std::vector<Segment>& segments = recorded.segments;
    std::ranges::sort(segments, {}, &Segment::address);
    for (std::size_t i = 1; i < segments.size(); ++i) {
      if (segments[i - 1].address + static_cast<std::uint64_t>(segments[i - 1].total.count()) > segments[i].address) {
        throw Problem{"the segments at " + std::to_string(segments[i - 1].address) + " and " +
                      std::to_string(segments[i].address) + " overlap"};
      }
    }
  }
  std::erase_if(recording_.devices,
                [](const auto& entry) { return entry.second.segments.empty() && entry.second.count == 0; });
}
}  // namespace cinch::snapshot::internal
