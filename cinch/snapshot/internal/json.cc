#include "cinch/snapshot/internal/json.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "cinch/snapshot/internal/json_handler.h"

namespace cinch::snapshot::internal {
namespace {
using In = JsonPlace;

constexpr std::size_t kMaxTokenBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxDepth = 100;

/// The input, a character at a time, as nlohmann's parser wants it.
class Characters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  Characters() = default;
  Characters(Input& input, const JsonHandler& handler) : input_(&input), handler_(&handler) {}

  char operator*() const { return static_cast<char>(*input_->cursor()); }
  Characters& operator++() {
    input_->skip(1);
    if (handler_->values() != values_) {
      values_ = handler_->values();
      since_ = 0;
    } else if (++since_ > kMaxTokenBytes) {
      throw Problem{"a text of more than 64 MiB"};
    }
    return *this;
  }
  /// Only ever against the end.
  friend bool operator==(const Characters& left, const Characters& /*end*/) { return !left.input_->fill(1); }

 private:
  Input* input_ = nullptr;
  const JsonHandler* handler_ = nullptr;
  std::size_t values_ = 0, since_ = 0;
};
}  // namespace

// The place of an object or array that begins now.
JsonPlace JsonHandler::child(bool object) const {
  const auto wanted = [object](bool is, In in) {
    if (object != is) throw Problem{is ? "a list where an object is wanted" : "an object where a list is wanted"};
    return in;
  };
  if (levels_.empty()) return object ? In::kTop : In::kSegments;  // Long ago a snapshot was its segments alone.
  const JsonLevel& level = levels_.back();
  switch (level.in) {
    case In::kTop:
      if (level.key == Key::kSegments) return wanted(false, In::kSegments);
      if (level.key == Key::kDeviceTraces) return wanted(false, In::kTraces);
      if (level.key == Key::kAllocatorSettings) return wanted(true, In::kSettings);
      if (level.key == Key::kExternalAnnotations) return wanted(false, In::kAnnotations);
      return In::kSkip;
    case In::kSegments:
      return wanted(true, In::kSegment);
    case In::kSegment:
      if (level.key == Key::kBlocks) return wanted(false, In::kBlocks);
      if (level.key == Key::kFrames) return wanted(false, In::kFrames);
      if (level.key == Key::kSegmentPoolId) return wanted(false, In::kPool);
      return In::kSkip;
    case In::kBlocks:
      return wanted(true, In::kBlock);
    case In::kBlock:
      if (level.key == Key::kFrames) return wanted(false, In::kFrames);
      if (level.key == Key::kHistory) return wanted(false, In::kHistory);
      return In::kSkip;
    case In::kHistory:
      return wanted(true, In::kHistoryEntry);
    case In::kHistoryEntry:
    case In::kEvent:
      if (level.key == Key::kFrames) return wanted(false, In::kFrames);
      return In::kSkip;
    case In::kFrames:
      return wanted(true, In::kFrame);
    case In::kTraces:
      return wanted(false, In::kTrace);
    case In::kTrace:
      return wanted(true, In::kEvent);
    case In::kSettings:
      if (level.key == Key::kRoundupDivisions) return wanted(true, In::kDivisions);
      return In::kSkip;
    case In::kAnnotations:
      return wanted(true, In::kAnnotation);
    default:
      return In::kSkip;
  }
}

bool JsonHandler::open(bool object) {
  ++values_;
  if (levels_.size() == kMaxDepth) throw Problem{"nested more than " + std::to_string(kMaxDepth) + " deep"};
  const In in = child(object);
  is_snapshot_ |= in == In::kSegments || in == In::kTraces;
  levels_.push_back({in, object});
  begin(in);
  return true;
}

void JsonHandler::begin(In in) {
  switch (in) {
    case In::kSegment:
      segment_ = SegmentFields{};
      break;
    case In::kPool:
      pool_.clear();
      break;
    case In::kBlock:
      segment_.blocks.emplace_back();
      break;
    case In::kHistory:
      first_history_ = true;
      break;
    case In::kHistoryEntry:
      if (first_history_) block().history_size = block().size;
      break;
    case In::kFrames:
      frames_.clear();
      break;
    case In::kFrame:
      frame_ = {};
      frame_has_ = 0;
      break;
    case In::kTrace:
      trace_count_ = 0;
      break;
    case In::kEvent:
      event_ = EventFields{};
      event_has_action_ = event_is_known_ = false;
      break;
    case In::kAnnotation:
      annotation_ = {};
      break;
    default:
      break;
  }
}

bool JsonHandler::close() {
  ++values_;
  const In in = levels_.back().in;
  levels_.pop_back();
  switch (in) {
    case In::kSegment:
      out_.add_segment(segment_);
      break;
    case In::kPool:
      if (pool_.size() != 2) throw Problem{"segment_pool_id is no pair"};
      segment_.pool = {pool_[0], pool_[1]};
      break;
    case In::kHistoryEntry:
      if (first_history_) block().has_history = true;
      first_history_ = false;  // The newest comes first.
      break;
    case In::kFrame:
      add_frame();
      break;
    case In::kFrames:
      set_stack(static_cast<std::uint32_t>(out_.stacks().intern(frames_)));
      break;
    case In::kEvent:
      finish_event();
      break;
    case In::kTrace:
      finish_trace();
      break;
    case In::kAnnotation:
      out_.add_annotation(annotation_.name, annotation_.stage, annotation_.device, annotation_.time_us);
      break;
    default:
      break;
  }
  return true;
}

bool JsonHandler::scalar(const JsonScalar& value) {
  ++values_;
  if (levels_.empty()) throw Problem{"no memory snapshot: a single value"};
  const JsonLevel& level = levels_.back();
  switch (level.in) {
    case In::kSegment:
      set_segment(level.key, value);
      break;
    case In::kPool:
      if (pool_.size() < 3) pool_.push_back(value.integer("a part of segment_pool_id"));
      break;
    case In::kBlock:
      set_block(level.key, value);
      break;
    case In::kHistoryEntry:
      if (first_history_ && level.key == Key::kRealSize) block().history_size = value.integer("real_size");
      break;
    case In::kFrame:
      set_frame(level.key, value);
      break;
    case In::kEvent:
      set_event(level.key, value);
      break;
    case In::kSettings:
      set_setting(level.key, value);
      break;
    case In::kDivisions:
      out_.set_roundup_division(division_, value.integer("a division of roundup_power2_divisions"));
      break;
    case In::kAnnotation:
      set_annotation(level.key, value);
      break;
    case In::kTop:
      if (level.key != Key::kOther && value.type != JsonScalar::Type::kNull)
        throw Problem{"a value where a list is wanted"};
      break;
    case In::kSkip:
      break;
    default:
      throw Problem{"a value where an object or a list is wanted"};
  }
  return true;
}

void read_json(Input& input, RecordingBuilder& builder) {
  JsonHandler handler(builder);
  nlohmann::json::sax_parse(Characters(input, handler), Characters(), &handler);
  if (!handler.is_snapshot()) {
    throw Problem{"no memory snapshot: neither segments nor device_traces",
                  "Snapshots are written by torch.cuda.memory._dump_snapshot()."};
  }
}
}  // namespace cinch::snapshot::internal
