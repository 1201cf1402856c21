#pragma once
// What a reader makes of a file, whichever its format: events packed, stacks interned, the segments at the end.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cinch/snapshot/snapshot.h"

namespace cinch::snapshot::internal {

/// One event in 32 bytes: an hour of training is hundreds of millions of them.
struct PackedEvent {
  std::uint64_t address;  ///< Of kOom: what was free on the device.
  std::int64_t size;
  std::int64_t time_us;  ///< -1 if there is no clock.
  std::uint32_t stack;
  std::uint32_t action : 4;
  std::uint32_t left_out : 1;  ///< Contradicts those before it.
  std::uint32_t stream : 12;
  std::uint32_t pool : 15;  ///< Known once the trace was undone.
};
static_assert(sizeof(PackedEvent) == 32 && std::is_trivially_default_constructible_v<PackedEvent>);
inline constexpr std::size_t kMaxStreams = 1u << 12, kMaxPools = 1u << 15;

/// Append-only array that never moves: growing it needs no second copy.
class EventPool {
 public:
  std::size_t size() const { return size_; }
  PackedEvent& operator[](std::size_t i) { return chunks_[i / kChunk][i % kChunk]; }
  const PackedEvent& operator[](std::size_t i) const { return chunks_[i / kChunk][i % kChunk]; }
  void push_back(const PackedEvent& event) {
    if (size_ % kChunk == 0) add_chunk();
    chunks_.back()[size_ % kChunk] = event;
    ++size_;
  }
  /// Gives memory back: what lies outside all `ranges` (first, count; in order) may not be asked for any more.
  void keep(const std::vector<std::pair<std::size_t, std::size_t>>& ranges);

 private:
  void add_chunk();

  static constexpr std::size_t kChunk = 1u << 16;  ///< 2 MiB.
  struct Free {
    void operator()(PackedEvent* chunk) const { std::free(chunk); }
  };
  std::vector<std::unique_ptr<PackedEvent[], Free>> chunks_;
  std::size_t size_ = 0;
};

struct Recording {
  struct PerDevice {
    std::vector<trace::Segment> segments;  ///< At the end; by address.
    std::size_t first = 0, count = 0;      ///< Its events.
  };
  std::map<int, PerDevice> devices;
  EventPool events;
  trace::StackTable stacks;
  RecordedSettings settings;
  std::vector<Annotation> annotations;
  std::int64_t earliest_us = INT64_MAX;  ///< Time of the earliest event; as it is, if none has one.
  std::vector<std::uint64_t> streams{0};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pools{{0, 0}};
};

/// The keys that mean something; the others are skipped.
enum class Key : std::uint8_t {
  kOther,
  kSegments,
  kDeviceTraces,
  kAllocatorSettings,
  kExternalAnnotations,
  kDevice,
  kAddress,
  kTotalSize,
  kStream,
  kSegmentType,
  kSegmentPoolId,
  kIsExpandable,
  kFrames,
  kBlocks,
  kSize,
  kRequestedSize,
  kState,
  kHistory,
  kRealSize,
  kAction,
  kAddr,
  kDeviceFree,
  kTimeUs,
  kFilename,
  kLine,
  kName,
  kStage,
  kAllocConf,
  kMaxSplitSize,
  kGarbageCollectionThreshold,
  kExpandableSegments,
  kRoundupDivisions
};
inline constexpr std::size_t kKeyCount = 32;
Key key_named(std::string_view name);

/// Of "alloc", …; none for actions that are left aside.
std::optional<trace::Action> action_named(std::string_view name);

struct EventFields {
  std::uint32_t has = 0;  ///< A bit for each Key.
  trace::Action action{};
  std::int64_t address = 0, size = 0, stream = 0, time_us = -1;
  std::uint32_t stack = 0;

  void mark(Key key) { has |= 1u << static_cast<unsigned>(key); }
  bool holds(Key key) const { return (has >> static_cast<unsigned>(key) & 1u) != 0; }
};

/// Throws Problem if size or address are missing.
void require_complete(const EventFields& fields);

struct BlockFields {
  std::optional<std::int64_t> address, requested;  ///< Older recordings have neither.
  std::int64_t size = -1;
  std::optional<trace::Block::State> state;
  std::uint32_t stack = 0;
  bool has_history = false;
  std::int64_t history_size = -1;  ///< real_size of the newest entry of an older "history".
};

struct SegmentFields {
  std::int64_t device = 0, address = -1, total = -1, stream = 0;
  std::optional<bool> large;
  bool expandable = false;
  std::pair<std::int64_t, std::int64_t> pool{0, 0};
  std::uint32_t stack = 0;
  std::vector<BlockFields> blocks;
};

/// Of a block; throws Problem for one that nobody writes.
trace::Block::State state_named(std::string_view name);
/// "small" or "large"; throws Problem.
bool is_large(std::string_view segment_type);

/// `number`, if it lies within `least` and `most`; else throws Problem, which says what `what` is.
std::int64_t checked(std::int64_t number, std::int64_t least, std::int64_t most, std::string_view what);
inline constexpr std::int64_t kMaxAddress = std::int64_t{1} << 62, kMaxSize = std::int64_t{1} << 60;
inline constexpr std::int64_t kMaxTime = INT64_MAX / 2000;  ///< In nanoseconds it is still an int64.
inline constexpr std::size_t kMaxEvents = (std::size_t{1} << 28) - 1;

/// Checks what the readers found and puts it into a Recording. All of it throws Problem.
class RecordingBuilder {
 public:
  explicit RecordingBuilder(Recording& recording) : recording_(recording) {}

  /// Complete fields. Returns the index in Recording::events.
  std::uint32_t add_event(const EventFields& fields) {
    // One comparison each, as unsigned; the millionth event is as right as the first.
    const std::int64_t time_us = fields.holds(Key::kTimeUs) ? fields.time_us : 0;
    if (static_cast<std::uint64_t>(fields.address) > kMaxAddress ||
        static_cast<std::uint64_t>(fields.size) > kMaxSize || static_cast<std::uint64_t>(time_us) > kMaxTime ||
        recording_.events.size() == kMaxEvents) {
      refuse(fields);
    }
    if (recording_.streams[last_stream_] != static_cast<std::uint64_t>(fields.stream)) stream_id(fields.stream);
    PackedEvent event{};
    event.address = static_cast<std::uint64_t>(fields.address);
    event.size = fields.size;
    event.time_us = -1;
    if (fields.holds(Key::kTimeUs)) {
      event.time_us = fields.time_us;
      recording_.earliest_us = std::min(recording_.earliest_us, fields.time_us);
    }
    event.stack = fields.stack;
    event.action = static_cast<std::uint32_t>(fields.action);
    event.stream = last_stream_;
    recording_.events.push_back(event);
    return static_cast<std::uint32_t>(recording_.events.size() - 1);
  }
  void add_segment(const SegmentFields& fields);
  /// A device's trace: ranges (first, count) of events, in order.
  void add_trace(std::size_t device, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ranges);
  void add_annotation(std::string_view name, std::string_view stage, std::int64_t device, std::int64_t time_us);
  void set_max_split_size(std::int64_t bytes);
  /// `megabytes`: "1", "2", … "32768".
  void set_roundup_division(std::string_view megabytes, std::int64_t division);
  trace::StackTable& stacks() { return recording_.stacks; }
  RecordedSettings& settings() { return recording_.settings; }
  /// Sorts; checks what can be checked only now.
  void finish();

 private:
  [[noreturn]] static void refuse(const EventFields& fields);
  std::uint32_t stream_id(std::int64_t stream);
  trace::PoolId pool_id(std::pair<std::int64_t, std::int64_t> pool);

  Recording& recording_;
  std::uint32_t last_stream_ = 0;
  std::size_t claimed_ = 0;  ///< Events before this one are some device's.
};

}  // namespace cinch::snapshot::internal
