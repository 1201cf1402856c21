// The fields of a JSON snapshot's objects.

#include <algorithm>
#include <limits>

#include "cinch/snapshot/internal/json_handler.h"

namespace cinch::snapshot::internal {

void JsonHandler::set_segment(Key key, const JsonScalar& value) {
  switch (key) {
    case Key::kDevice:
      segment_.device = value.integer("the device of a segment");
      break;
    case Key::kAddress:
      segment_.address = value.integer("the address of a segment");
      break;
    case Key::kTotalSize:
      segment_.total = value.integer("the total_size of a segment");
      break;
    case Key::kStream:
      segment_.stream = value.integer("the stream of a segment");
      break;
    case Key::kSegmentType:
      segment_.large = is_large(value.word("segment_type"));
      break;
    case Key::kIsExpandable:
      segment_.expandable = value.truth("is_expandable");
      break;
    default:
      break;
  }
}

void JsonHandler::set_block(Key key, const JsonScalar& value) {
  switch (key) {
    case Key::kAddress:
      block().address = value.integer("the address of a block");
      break;
    case Key::kSize:
      block().size = value.integer("the size of a block");
      break;
    case Key::kRequestedSize:
      block().requested = value.integer("requested_size");
      break;
    case Key::kState:
      block().state = state_named(value.word("the state of a block"));
      break;
    default:
      break;
  }
}

void JsonHandler::set_frame(Key key, const JsonScalar& value) {
  trace::NameTable& names = out_.stacks().names();
  switch (key) {
    case Key::kFilename:
      frame_.file = names.intern(value.word("filename"));
      frame_has_ |= 1u;
      break;
    case Key::kName:
      frame_.function = names.intern(value.word("the name of a frame"));
      frame_has_ |= 2u;
      break;
    case Key::kLine:
      frame_.line = static_cast<std::uint32_t>(
          std::clamp<std::int64_t>(value.integer("the line of a frame"), 0, std::numeric_limits<std::uint32_t>::max()));
      frame_has_ |= 4u;
      break;
    default:
      break;
  }
}

void JsonHandler::add_frame() {
  if (frame_has_ != 7u) throw Problem{"a frame of a stack has not filename, line and name"};
  frames_.push_back(frame_);
}

// Of whatever the list of frames, just closed, belongs to.
void JsonHandler::set_stack(std::uint32_t stack) {
  switch (levels_.back().in) {
    case JsonPlace::kEvent:
      event_.stack = stack;
      break;
    case JsonPlace::kSegment:
      segment_.stack = stack;
      break;
    case JsonPlace::kHistoryEntry:
      if (first_history_) block().stack = stack;
      break;
    default:
      block().stack = stack;
      break;
  }
}

void JsonHandler::set_event(Key key, const JsonScalar& value) {
  switch (key) {
    case Key::kAction: {
      const auto action = action_named(value.word("the action of an event"));
      event_has_action_ = true;
      event_is_known_ = action.has_value();
      if (action) event_.action = *action;
      return;
    }
    case Key::kAddr:
    case Key::kDeviceFree:
      event_.address = value.integer("the address of an event");
      break;
    case Key::kSize:
      event_.size = value.integer("the size of an event");
      break;
    case Key::kStream:
      event_.stream = value.integer("the stream of an event");
      break;
    case Key::kTimeUs:
      event_.time_us = value.integer("the time of an event");
      break;
    default:
      return;
  }
  event_.mark(key);
}

void JsonHandler::finish_event() {
  if (!event_has_action_) throw Problem{"an event without an action"};
  if (!event_is_known_) return;
  require_complete(event_);
  const std::uint32_t index = out_.add_event(event_);
  if (trace_count_++ == 0) trace_first_ = index;
}

void JsonHandler::finish_trace() {
  if (trace_count_ > 0) out_.add_trace(device_, {{trace_first_, trace_count_}});
  ++device_;
}

void JsonHandler::set_setting(Key key, const JsonScalar& value) {
  switch (key) {
    case Key::kAllocConf:
      out_.settings().alloc_conf = value.word("PYTORCH_CUDA_ALLOC_CONF");
      break;
    case Key::kMaxSplitSize:
      out_.set_max_split_size(value.integer("max_split_size"));
      break;
    case Key::kGarbageCollectionThreshold:
      if (value.type != JsonScalar::Type::kFloat && value.type != JsonScalar::Type::kInt) {
        throw Problem{"garbage_collection_threshold is no number"};
      }
      out_.settings().garbage_collection_threshold =
          value.type == JsonScalar::Type::kFloat ? value.real : static_cast<double>(value.number);
      break;
    case Key::kExpandableSegments:
      out_.settings().expandable_segments = value.truth("expandable_segments");
      break;
    default:
      break;
  }
}

void JsonHandler::set_annotation(Key key, const JsonScalar& value) {
  switch (key) {
    case Key::kName:
      annotation_.name = value.word("the name of an annotation");
      break;
    case Key::kStage:
      annotation_.stage = value.word("the stage of an annotation");
      break;
    case Key::kDevice:
      annotation_.device = value.integer("the device of an annotation");
      break;
    case Key::kTimeUs:
      annotation_.time_us = value.integer("the time of an annotation");
      break;
    default:
      break;
  }
}
}  // namespace cinch::snapshot::internal
