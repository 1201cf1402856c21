#include "cinch/snapshot/write.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/core/atomic_file.h"
#include "cinch/core/error.h"
#include "cinch/snapshot/internal/chrome.h"
#include "cinch/snapshot/internal/emitter.h"
#include "cinch/snapshot/internal/phases.h"

namespace cinch::snapshot {
namespace {
using internal::Emitter;
using trace::Action;
using trace::Block;
using trace::Segment;
using trace::StackId;

std::string_view name_of(Action action) {
  static constexpr std::array<std::string_view, trace::kActionCount> kNames{
      "alloc",       "free_requested", "free_completed", "segment_alloc", "segment_free",
      "segment_map", "segment_unmap",  "snapshot",       "oom",           ""};
  return kNames[static_cast<std::size_t>(action)];
}

std::string_view name_of(Block::State state) {
  switch (state) {
    case Block::State::kActiveAllocated:
      return "active_allocated";
    case Block::State::kActivePendingFree:
      return "active_pending_free";
    default:
      return "inactive";
  }
}

/// One entry of a trace as recorders write it.
struct Entry {
  Action action{};
  std::uint64_t address = 0;
  Bytes size{};
  std::uint64_t stream = 0;
  std::int64_t time_us = -1;  ///< -1: none is written.
  StackId stack{};
};

void emit(Emitter& out, const Entry& entry) {
  out.begin_dict();
  out.entry("action", name_of(entry.action));
  out.entry(entry.action == Action::kOom ? "device_free" : "addr", static_cast<std::int64_t>(entry.address));
  out.entry("size", entry.size.count());
  out.entry("stream", static_cast<std::int64_t>(entry.stream));
  if (entry.time_us >= 0) out.entry("time_us", entry.time_us);
  if (entry.stack != StackId{}) {
    out.key("frames");
    out.stack(entry.stack);
  }
  out.end_dict();
}

void emit(Emitter& out, const Block& block) {
  out.begin_dict();
  out.entry("address", static_cast<std::int64_t>(block.address));
  out.entry("size", block.size.count());
  out.entry("requested_size", block.requested.count());
  out.entry("state", name_of(block.state));
  out.key("frames");
  out.stack(block.stack);
  out.end_dict();
}

void emit(Emitter& out, const Segment& segment, int device, std::uint64_t stream,
          const std::pair<std::uint64_t, std::uint64_t>& pool) {
  Bytes allocated, active, requested;
  for (const Block& block : segment.blocks) {
    if (block.state == Block::State::kInactive) continue;
    if (block.state == Block::State::kActiveAllocated) allocated += block.size;
    active += block.size;
    requested += block.requested;
  }
  out.begin_dict();
  out.entry("device", device);
  out.entry("address", static_cast<std::int64_t>(segment.address));
  out.entry("total_size", segment.total.count());
  out.entry("allocated_size", allocated.count());
  out.entry("active_size", active.count());
  out.entry("requested_size", requested.count());
  out.entry("stream", static_cast<std::int64_t>(stream));
  out.entry("segment_type", segment.large ? "large" : "small");
  out.key("segment_pool_id");
  out.pair(static_cast<std::int64_t>(pool.first), static_cast<std::int64_t>(pool.second));
  out.key("is_expandable");
  out.truth(segment.expandable);
  out.key("frames");
  out.stack(segment.stack);
  out.key("blocks");
  out.begin_list();
  for (const Block& block : segment.blocks) emit(out, block);
  out.end_list();
  out.end_dict();
}

void emit(Emitter& out, const RecordedSettings& settings) {
  out.begin_dict();
  out.entry("PYTORCH_CUDA_ALLOC_CONF", settings.alloc_conf);
  out.entry("max_split_size", settings.max_split_size ? settings.max_split_size->count() : -1);
  out.key("garbage_collection_threshold");
  out.real(settings.garbage_collection_threshold);
  out.key("expandable_segments");
  out.truth(settings.expandable_segments);
  if (!settings.roundup_power2_divisions.empty()) {
    out.key("roundup_power2_divisions");
    out.begin_dict();
    for (std::size_t i = 0; i < settings.roundup_power2_divisions.size(); ++i) {
      out.entry(std::to_string(std::uint64_t{1} << i), settings.roundup_power2_divisions[i]);
    }
    out.end_dict();
  }
  out.end_dict();
}

void emit_annotation(Emitter& out, std::string_view name, bool start, int device, std::int64_t time_us) {
  out.begin_dict();
  out.entry("name", name);
  out.entry("stage", start ? "START" : "END");
  out.entry("device", device);
  out.entry("time_us", time_us);
  out.end_dict();
}

/// Writes the events that a device plays.
class EventWriter final : public trace::Sink {
 public:
  EventWriter(Emitter& out, const Device& device, std::int64_t origin_us)
      : out_(out), device_(device), origin_us_(origin_us) {}
  void on_event(const trace::Event& event) override {
    if (event.before) return;
    Entry entry{event.action, event.address, event.bytes};
    entry.stream = device_.streams[static_cast<std::size_t>(event.stream)];
    if (event.time_ns >= 0) entry.time_us = origin_us_ + event.time_ns / 1000;
    entry.stack = event.stack;
    emit(out_, entry);
  }

 private:
  Emitter& out_;
  const Device& device_;
  std::int64_t origin_us_;
};

void emit(Emitter& out, const Snapshot& snapshot) {
  out.begin_dict();
  out.key("segments");
  out.begin_list();
  for (const Device& device : snapshot.devices()) {
    for (const Segment& segment : device.end) {
      emit(out, segment, device.index, device.streams[static_cast<std::size_t>(segment.stream)],
           device.pools[static_cast<std::size_t>(segment.pool)]);
    }
  }
  out.end_list();
  out.key("device_traces");
  out.begin_list();
  int next = 0;
  for (const Device& device : snapshot.devices()) {
    for (; next <= device.index; ++next) {  // A device that has none has an empty trace: the position is the number.
      out.begin_list();
      EventWriter writer(out, device, snapshot.origin_us().value_or(0));
      if (next == device.index) snapshot.play(device, writer);
      out.end_list();
    }
  }
  out.end_list();
  out.key("allocator_settings");
  emit(out, snapshot.settings());
  out.key("external_annotations");
  out.begin_list();
  for (const Annotation& annotation : snapshot.annotations()) {
    emit_annotation(out, annotation.name, annotation.start, annotation.device, annotation.time_us);
  }
  out.end_list();
  out.end_dict();
  out.finish();
}

/// A trace without addresses as a recording: each allocation has a segment of its own, at an address of its own.
class TraceWriter {
 public:
  TraceWriter(const trace::Trace& trace, const std::vector<StackId>& stack_of)
      : trace_(trace), stack_of_(stack_of), addresses_(trace.allocations().size()) {
    std::uint64_t next = kFirstAddress;
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      addresses_[i] = next;
      next += static_cast<std::uint64_t>(block_size(trace.allocations()[i].bytes).count());
    }
  }

  void emit_all(Emitter& out) const {
    out.begin_dict();
    out.key("segments");
    out.begin_list();
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      if (trace_.allocations()[i].freed_at == trace::kAfterTrace) emit(out, segment(i), 0, 0, {0, 0});
    }
    out.end_list();
    out.key("device_traces");
    out.begin_list();
    out.begin_list();
    for (std::size_t i = 0; i < trace_.events().size(); ++i) emit_event(out, i);
    out.end_list();
    out.end_list();
    out.key("allocator_settings");
    emit(out, RecordedSettings{});
    out.key("external_annotations");
    out.begin_list();
    for (const internal::PhaseRun& run : internal::phases_of(trace_)) {
      emit_annotation(out, run.name, true, 0, run.begin_us);
      emit_annotation(out, run.name, false, 0, run.end_us);
    }
    out.end_list();
    out.end_dict();
    out.finish();
  }

 private:
  static constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 40;

  static Bytes block_size(Bytes requested) {
    constexpr std::int64_t kMinBlock = 512;
    return Bytes(std::max<std::int64_t>((requested.count() + kMinBlock - 1) / kMinBlock, 1) * kMinBlock);
  }

  Segment segment(std::size_t allocation) const {
    const Bytes requested = trace_.allocations()[allocation].bytes;
    Segment segment;
    segment.address = addresses_[allocation];
    segment.total = block_size(requested);
    segment.large = segment.total > Bytes(std::int64_t{1} << 20);
    segment.blocks.push_back(
        {segment.address, segment.total, requested, Block::State::kActiveAllocated, stack_of_[allocation]});
    return segment;
  }

  void emit_event(Emitter& out, std::size_t position) const {
    const trace::Event& event = trace_.events()[position];
    Entry entry;
    entry.time_us = internal::time_us_of(event, position);
    const auto push = [&](Action action, Bytes size) {
      entry.action = action;
      entry.size = size;
      emit(out, entry);
    };
    if (event.action == Action::kOom) {
      push(Action::kOom, event.bytes);
      return;
    }
    if (event.action != Action::kAlloc && event.action != Action::kFreeCompleted) return;
    const auto allocation = static_cast<std::size_t>(event.allocation);
    entry.address = addresses_[allocation];
    entry.stack = stack_of_[allocation];
    if (event.action == Action::kAlloc) {
      push(Action::kSegmentAlloc, block_size(event.bytes));
      push(Action::kAlloc, event.bytes);
    } else {
      push(Action::kFreeRequested, event.bytes);
      push(Action::kFreeCompleted, event.bytes);
      push(Action::kSegmentFree, block_size(event.bytes));
    }
  }

  const trace::Trace& trace_;
  const std::vector<StackId>& stack_of_;
  std::vector<std::uint64_t> addresses_;
};

/// What a trace knows of its allocations, as stacks: what it is, which op made it, in which module and phase.
std::vector<StackId> stacks_of(const trace::Trace& trace, trace::StackTable& stacks) {
  std::vector<StackId> result;
  std::vector<trace::Frame> frames;
  const auto add = [&](std::string_view kind, const std::string& what) {
    if (!what.empty()) frames.push_back({stacks.names().intern(kind), stacks.names().intern(what), 0});
  };
  for (const trace::Allocation& made : trace.allocations()) {
    frames.clear();
    add(trace::name_of(made.category), std::string(trace.name(made.name)));
    add("op", std::string(trace.op_name(made.op)));
    add("module", std::string(trace.name(made.module)));
    add("phase", std::string(trace::name_of(made.phase)) + (made.recompute ? ", recomputation" : ""));
    result.push_back(stacks.intern(frames));
  }
  return result;
}
}  // namespace

Format format_of(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (name.ends_with(".pickle") || name.ends_with(".pkl")) return Format::kPickle;
  if (name.ends_with(".chrome.json") || name.ends_with(".trace.json")) return Format::kChrome;
  if (name.ends_with(".json")) return Format::kJson;
  throw UsageError("the name of " + file.string() + " does not say in which format to write it",
                   "Let it end in .pickle, .json (the same keys) or .chrome.json (for Perfetto).");
}

void write(const Snapshot& snapshot, const std::filesystem::path& path, Format format) {
  AtomicFile file(path);
  if (format == Format::kChrome) {
    internal::write_chrome(snapshot, file);
  } else {
    const auto emitter = format == Format::kPickle ? internal::pickle_emitter(file, snapshot.stacks())
                                                   : internal::json_emitter(file, snapshot.stacks());
    emit(*emitter, snapshot);
  }
  file.commit();
}

void write(const trace::Trace& trace, const std::filesystem::path& path, Format format) {
  if (trace.header().source == trace::TraceHeader::Source::kSnapshot) {
    throw UsageError("a trace of a snapshot has no stacks any more", "Write the snapshot itself.");
  }
  AtomicFile file(path);
  if (format == Format::kChrome) {
    internal::write_chrome(trace, file);
  } else {
    trace::StackTable stacks;
    const std::vector<StackId> stack_of = stacks_of(trace, stacks);
    const auto emitter =
        format == Format::kPickle ? internal::pickle_emitter(file, stacks) : internal::json_emitter(file, stacks);
    TraceWriter(trace, stack_of).emit_all(*emitter);
  }
  file.commit();
}
}  // namespace cinch::snapshot
