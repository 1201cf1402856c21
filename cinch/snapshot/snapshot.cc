#include "cinch/snapshot/snapshot.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cinch/core/error.h"
#include "cinch/snapshot/internal/input.h"
#include "cinch/snapshot/internal/json.h"
#include "cinch/snapshot/internal/pickle.h"
#include "cinch/snapshot/internal/rebuild.h"
#include "cinch/snapshot/internal/recording.h"
#include "cinch/trace/address_map.h"

namespace cinch::snapshot {
namespace {
using internal::EventPool;
using internal::Input;
using internal::PackedEvent;
using internal::Problem;
using internal::Recording;
using internal::RecordingBuilder;
using trace::Action;

void read(Input& input, RecordingBuilder& builder) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf", kZip = "PK\x03\x04";
  input.fill(kZip.size());
  const std::string_view start(reinterpret_cast<const char*>(input.cursor()), std::min(input.available(), kZip.size()));
  if (start.empty()) throw Problem{"the file is empty"};
  if (start == kZip)
    throw Problem{"a zip archive, no memory snapshot", "torch.save() writes those: weights, not memory."};
  if (start.starts_with(kByteOrderMark)) input.skip(kByteOrderMark.size());
  constexpr std::string_view kPickle = "\x80()]}", kJson = "{[ \t\r\n\xef";
  if (kPickle.find(start[0]) != std::string_view::npos) {
    internal::read_pickle(input, builder);
  } else if (kJson.find(start[0]) != std::string_view::npos) {
    internal::read_json(input, builder);
  } else {
    throw Problem{"neither a pickle nor JSON", "Snapshots are written by torch.cuda.memory._dump_snapshot()."};
  }
  builder.finish();
}

// The window's events of one device.
internal::Range range_of(const EventPool& events, const Recording::PerDevice& recorded, const Window& window) {
  internal::Range range{std::min(window.first, recorded.count), std::min(window.last, recorded.count)};
  const auto time = [&](std::size_t i) {
    const std::int64_t us = events[recorded.first + i].time_us;
    if (us < 0) throw UsageError("a window of time needs a recording with times", "Name positions of events instead.");
    return us;
  };
  if (window.from_us) {
    while (range.first < range.last && time(range.first) < *window.from_us) ++range.first;
  }
  if (window.to_us) {
    std::size_t last = range.first;
    while (last < range.last && time(last) < *window.to_us) ++last;
    range.last = last;
  }
  range.last = std::max(range.first, range.last);
  return range;
}
}  // namespace

struct Snapshot::State {
  Recording recording;
  std::vector<Device> devices;

  void open(Input& input, const std::filesystem::path& name, const Window& window);
  const Recording::PerDevice& recorded(const Device& device) const;
};

void Snapshot::State::open(Input& input, const std::filesystem::path& name, const Window& window) {
  try {
    RecordingBuilder builder(recording);
    read(input, builder);
  } catch (const Problem& problem) {
    throw DataError(name, input.offset(), problem.text, problem.hint);
  }
  std::vector<std::pair<std::size_t, std::size_t>> needed;
  for (auto& [index, recorded] : recording.devices) {
    Device& device = devices.emplace_back();
    device.index = index;
    internal::rebuild(recording, recorded, range_of(recording.events, recorded, window), device);
    device.streams = recording.streams;
    device.pools = recording.pools;
    needed.emplace_back(recorded.first + device.first_event, device.events);
  }
  recording.events.keep(needed);
}

const Recording::PerDevice& Snapshot::State::recorded(const Device& device) const {
  const auto found = recording.devices.find(device.index);
  if (found == recording.devices.end()) throw UsageError("the snapshot has no such device");
  return found->second;
}

Snapshot::Snapshot(std::unique_ptr<State> state) : state_(std::move(state)) {}
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot& Snapshot::operator=(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;

Snapshot Snapshot::open(const std::filesystem::path& file, const Window& window) {
  auto state = std::make_unique<State>();
  Input input(file);
  state->open(input, file, window);
  return Snapshot(std::move(state));
}

Snapshot Snapshot::parse(std::string_view bytes, const std::filesystem::path& name, const Window& window) {
  auto state = std::make_unique<State>();
  Input input(bytes);
  state->open(input, name, window);
  return Snapshot(std::move(state));
}

std::span<const Device> Snapshot::devices() const { return state_->devices; }
const RecordedSettings& Snapshot::settings() const { return state_->recording.settings; }
std::span<const Annotation> Snapshot::annotations() const { return state_->recording.annotations; }
const trace::StackTable& Snapshot::stacks() const { return state_->recording.stacks; }
std::optional<std::int64_t> Snapshot::origin_us() const {
  const std::int64_t earliest = state_->recording.earliest_us;
  if (earliest == INT64_MAX) return std::nullopt;
  return earliest;
}

namespace {
/// Pushes events, with the ids of allocations.
class Player {
 public:
  Player(trace::Sink& sink, std::int64_t origin_us) : sink_(sink), origin_us_(origin_us) {}

  void push_start(const trace::Segment& segment) {
    trace::Event event;
    event.before = true;
    event.stream = segment.stream;
    event.pool = segment.pool;
    event.action = segment.expandable ? Action::kSegmentMap : Action::kSegmentAlloc;
    event.address = segment.address;
    event.bytes = segment.total;
    event.stack = segment.stack;
    sink_.on_event(event);
    event.action = Action::kAlloc;
    for (const trace::Block& block : segment.blocks) {
      if (block.state == trace::Block::State::kInactive) continue;
      event.address = block.address;
      event.bytes = block.requested;
      event.stack = block.stack;
      event.allocation = begin(block.address);
      sink_.on_event(event);
    }
  }

  void push(const PackedEvent& packed) {
    if (packed.left_out != 0) return;
    trace::Event event;
    event.action = static_cast<Action>(packed.action);
    event.stack = trace::StackId{packed.stack};
    event.stream = trace::StreamId{static_cast<std::uint16_t>(packed.stream)};
    event.pool = trace::PoolId{static_cast<std::uint16_t>(packed.pool)};
    event.bytes = Bytes(packed.size);
    event.address = packed.address;
    if (packed.time_us >= 0) event.time_ns = (packed.time_us - origin_us_) * 1000;
    if (event.action == Action::kAlloc) {
      event.allocation = begin(packed.address);
    } else if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted) {
      event.allocation = *live_.find(packed.address);  // Undoing the trace has made sure that it lives.
      if (event.action == Action::kFreeCompleted) live_.erase(packed.address);
    }
    sink_.on_event(event);
  }

 private:
  trace::AllocationId begin(std::uint64_t address) {
    const trace::AllocationId id{next_++};
    live_[address] = id;
    return id;
  }

  trace::Sink& sink_;
  std::int64_t origin_us_;
  trace::AddressMap<trace::AllocationId> live_;
  std::uint32_t next_ = 0;
};
}  // namespace

void Snapshot::play(const Device& device, trace::Sink& sink) const {
  const Recording& recording = state_->recording;
  trace::TraceHeader header;
  header.source = trace::TraceHeader::Source::kSnapshot;
  header.device_name = "cuda:" + std::to_string(device.index);
  header.alloc_conf = recording.settings.alloc_conf;
  sink.on_begin(header, recording.stacks.names());
  Player player(sink, recording.earliest_us);
  for (const trace::Segment& segment : device.start) player.push_start(segment);
  const std::size_t first = state_->recorded(device).first + device.first_event;
  for (std::size_t i = first; i < first + device.events; ++i) player.push(recording.events[i]);
}
}  // namespace cinch::snapshot
