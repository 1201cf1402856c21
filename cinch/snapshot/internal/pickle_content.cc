#include <array>
#include <bit>
#include <string>

#include "cinch/snapshot/internal/pickle_reader.h"

namespace cinch::snapshot::internal {

/// The values of a dict by key.
struct PickleReader::Fields {
  std::array<Value, kKeyCount> values;
  std::uint32_t has = 0;

  bool holds(Key key) const { return (has >> static_cast<unsigned>(key) & 1u) != 0; }
  Value operator[](Key key) const { return values[static_cast<std::size_t>(key)]; }
  std::int64_t number(Key key, const char* what) const {
    const Value value = (*this)[key];
    if (value.kind != Kind::kInt) throw Problem{std::string(what) + " is no integer of 64 bits"};
    return value.number;
  }
  std::int64_t number_or(Key key, const char* what, std::int64_t other) const {
    return holds(key) ? number(key, what) : other;
  }
  bool truth_or(Key key, const char* what, bool other) const {
    if (!holds(key)) return other;
    const Value value = (*this)[key];
    if (value.kind != Kind::kBool && value.kind != Kind::kInt) throw Problem{std::string(what) + " is no bool"};
    return value.number != 0;
  }
};

PickleReader::Fields PickleReader::fields_of(Value value) {
  const Value dict = resolved(value);
  if (dict.kind != Kind::kDict) throw Problem{"a dict is wanted where something else is"};
  if (container(dict).used) throw Problem{"a dict is used twice"};
  container(dict).used = true;
  Fields fields;
  const std::vector<Value>& items = container(dict).items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].kind != Kind::kText) continue;
    const Key key = texts_[items[i].id].key;
    fields.values[static_cast<std::size_t>(key)] = items[i + 1];
    fields.has |= 1u << static_cast<unsigned>(key);
  }
  return fields;
}

template <class Each>
void PickleReader::for_each(Value value, const char* what, const Each& each) {
  const Value list = resolved(value);
  if (list.kind == Kind::kStack && list.id == 0) return;  // An empty list that once was an event's stack.
  if (list.kind != Kind::kList) throw Problem{std::string(what) + " is no list"};
  if (container(list).used && !container(list).items.empty()) throw Problem{std::string(what) + " is used twice"};
  container(list).used = true;
  for (const Value& item : container(list).items) each(item);
}

std::string_view PickleReader::text_of(Value value, const char* what) const {
  if (value.kind != Kind::kText) throw Problem{std::string(what) + " is no text"};
  return texts_[value.id].text;
}

void PickleReader::segment(Value value) {
  const Fields fields = fields_of(value);
  SegmentFields segment;
  segment.device = fields.number_or(Key::kDevice, "the device of a segment", 0);
  segment.address = fields.number(Key::kAddress, "the address of a segment");
  segment.total = fields.number(Key::kTotalSize, "the total_size of a segment");
  segment.stream = fields.number_or(Key::kStream, "the stream of a segment", 0);
  segment.expandable = fields.truth_or(Key::kIsExpandable, "is_expandable", false);
  if (fields.holds(Key::kSegmentType)) segment.large = is_large(text_of(fields[Key::kSegmentType], "segment_type"));
  if (fields.holds(Key::kFrames)) segment.stack = stack_of(fields[Key::kFrames]);
  if (fields.holds(Key::kSegmentPoolId)) {
    const Value pair = resolved(fields[Key::kSegmentPoolId]);  // Several segments may share one.
    if (pair.kind != Kind::kList || container(pair).items.size() != 2) throw Problem{"segment_pool_id is no pair"};
    const Value first = container(pair).items[0], second = container(pair).items[1];
    if (first.kind != Kind::kInt || second.kind != Kind::kInt) throw Problem{"segment_pool_id holds no integers"};
    segment.pool = {first.number, second.number};
  }
  for_each(fields[Key::kBlocks], "blocks of a segment", [&](const Value& item) {
    const Fields parts = fields_of(item);
    BlockFields& block = segment.blocks.emplace_back();
    block.size = parts.number(Key::kSize, "the size of a block");
    if (parts.holds(Key::kAddress)) block.address = parts.number(Key::kAddress, "the address of a block");
    if (parts.holds(Key::kRequestedSize)) block.requested = parts.number(Key::kRequestedSize, "requested_size");
    block.state = state_named(text_of(parts[Key::kState], "the state of a block"));
    if (parts.holds(Key::kFrames)) block.stack = stack_of(parts[Key::kFrames]);
    if (!parts.holds(Key::kHistory)) return;
    for_each(parts[Key::kHistory], "the history of a block", [&](const Value& entry) {
      if (block.has_history) return;  // The newest comes first.
      const Fields history = fields_of(entry);
      block.has_history = true;
      block.history_size = history.number_or(Key::kRealSize, "real_size", block.size);
      if (history.holds(Key::kFrames)) block.stack = stack_of(history[Key::kFrames]);
    });
  });
  out_.add_segment(segment);
}

void PickleReader::trace(Value value, std::size_t device) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  for_each(value, "the trace of a device", [&](Value item) {
    item = resolved(item);
    if (item.kind == Kind::kEvent) {
      ranges.emplace_back(item.id, 1);
    } else if (item.kind == Kind::kRun) {
      ranges.emplace_back(item.id, static_cast<std::uint32_t>(item.number));
    } else {
      throw Problem{"a trace holds something that is no event: a dict with action, size and addr"};
    }
  });
  out_.add_trace(device, ranges);
}

void PickleReader::annotation(Value value) {
  const Fields fields = fields_of(value);
  out_.add_annotation(text_of(fields[Key::kName], "the name of an annotation"),
                      text_of(fields[Key::kStage], "the stage of an annotation"),
                      fields.number_or(Key::kDevice, "the device of an annotation", 0),
                      fields.number(Key::kTimeUs, "the time of an annotation"));
}

void PickleReader::settings(Value value) {
  const Fields fields = fields_of(value);
  if (fields.holds(Key::kAllocConf)) {
    out_.settings().alloc_conf = text_of(fields[Key::kAllocConf], "PYTORCH_CUDA_ALLOC_CONF");
  }
  if (fields.holds(Key::kMaxSplitSize)) out_.set_max_split_size(fields.number(Key::kMaxSplitSize, "max_split_size"));
  if (fields.holds(Key::kGarbageCollectionThreshold)) {
    const Value threshold = fields[Key::kGarbageCollectionThreshold];
    if (threshold.kind != Kind::kFloat && threshold.kind != Kind::kInt) {
      throw Problem{"garbage_collection_threshold is no number"};
    }
    out_.settings().garbage_collection_threshold = threshold.kind == Kind::kFloat
                                                       ? std::bit_cast<double>(threshold.number)
                                                       : static_cast<double>(threshold.number);
  }
  out_.settings().expandable_segments = fields.truth_or(Key::kExpandableSegments, "expandable_segments", false);
  if (!fields.holds(Key::kRoundupDivisions)) return;
  const Value divisions = resolved(fields[Key::kRoundupDivisions]);
  if (divisions.kind != Kind::kDict) throw Problem{"roundup_power2_divisions is no dict"};
  const std::vector<Value>& items = container(divisions).items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i + 1].kind != Kind::kInt) throw Problem{"a division of roundup_power2_divisions is no integer"};
    out_.set_roundup_division(text_of(items[i], "a key of roundup_power2_divisions"), items[i + 1].number);
  }
}

void PickleReader::content(Value top) {
  if (resolved(top).kind == Kind::kList) {  // Long ago a snapshot was its segments alone.
    for_each(top, "the snapshot", [&](const Value& item) { segment(item); });
    return;
  }
  const Fields fields = fields_of(top);
  if (!fields.holds(Key::kSegments) && !fields.holds(Key::kDeviceTraces)) {
    throw Problem{"no memory snapshot: neither segments nor device_traces",
                  "Snapshots are written by torch.cuda.memory._dump_snapshot()."};
  }
  if (fields.holds(Key::kSegments)) {
    for_each(fields[Key::kSegments], "segments", [&](const Value& item) { segment(item); });
  }
  if (fields.holds(Key::kDeviceTraces)) {
    std::size_t device = 0;
    for_each(fields[Key::kDeviceTraces], "device_traces", [&](const Value& item) { trace(item, device++); });
  }
  if (fields.holds(Key::kExternalAnnotations)) {
    for_each(fields[Key::kExternalAnnotations], "external_annotations", [&](const Value& item) { annotation(item); });
  }
  if (fields.holds(Key::kAllocatorSettings)) settings(fields[Key::kAllocatorSettings]);
}
}  // namespace cinch::snapshot::internal
