#include "cinch/snapshot/internal/json.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace cinch::snapshot::internal {
namespace {
using Json = nlohmann::json;

constexpr std::size_t kMaxTokenBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxDepth = 100;

/// Where in the snapshot the parser is.
enum class In : std::uint8_t {
  kTop,
  kSegments,
  kSegment,
  kPool,
  kBlocks,
  kBlock,
  kHistory,
  kHistoryEntry,
  kFrames,
  kFrame,
  kTraces,
  kTrace,
  kEvent,
  kSettings,
  kDivisions,
  kAnnotations,
  kAnnotation,
  kSkip
};

struct Level {
  In in;
  bool object;
  Key key = Key::kOther;
};

/// What stands for a value of a dict: its type is checked where it is used.
struct Scalar {
  enum class Type : std::uint8_t { kNull, kBool, kInt, kHuge, kFloat, kText } type = Type::kNull;
  std::int64_t number = 0;
  double real = 0;
  std::string_view text{};

  std::int64_t integer(const char* what) const {
    if (type != Type::kInt) throw Problem{std::string(what) + " is no integer of 64 bits"};
    return number;
  }
  bool truth(const char* what) const {
    if (type != Type::kInt && type != Type::kBool) throw Problem{std::string(what) + " is no bool"};
    return number != 0;
  }
  std::string_view word(const char* what) const {
    if (type != Type::kText) throw Problem{std::string(what) + " is no text"};
    return text;
  }
};

class Handler {
 public:
  explicit Handler(RecordingBuilder& out) : out_(out) {}
  std::size_t values() const { return values_; }  ///< Changes with each callback.

  // What nlohmann's parser calls; the names are its.
  bool null() { return scalar({}); }
  bool boolean(bool value) { return scalar({Scalar::Type::kBool, value ? 1 : 0}); }
  bool number_integer(std::int64_t value) { return scalar({Scalar::Type::kInt, value}); }
  bool number_unsigned(std::uint64_t value) {
    const bool fits = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return scalar({fits ? Scalar::Type::kInt : Scalar::Type::kHuge, static_cast<std::int64_t>(value)});
  }
  bool number_float(double value, const std::string& /*text*/) { return scalar({Scalar::Type::kFloat, 0, value}); }
  bool string(const std::string& value) { return scalar({Scalar::Type::kText, 0, 0, value}); }
  bool binary(const Json::binary_t& /*value*/) { return true; }
  bool start_object(std::size_t /*elements*/) { return open(true); }
  bool start_array(std::size_t /*elements*/) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(const std::string& name) {
    ++values_;
    levels_.back().key = key_named(name);
    if (levels_.back().in == In::kDivisions) division_ = name;
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.…] parse error at line …"
    const std::size_t bracket = what.find("] ");
    throw Problem{std::string(bracket == std::string_view::npos ? what : what.substr(bracket + 2))};
  }

 private:
  bool open(bool object);
  bool close();
  bool scalar(const Scalar& value);
  In child(bool object) const;
  void begin(In in);
  void set_segment(Key key, const Scalar& value);
  void set_block(Key key, const Scalar& value);
  void set_frame(Key key, const Scalar& value);
  void set_event(Key key, const Scalar& value);
  void set_setting(Key key, const Scalar& value);
  void set_annotation(Key key, const Scalar& value);
  void add_frame();
  void set_stack(std::uint32_t stack);
  void finish_event();
  void finish_trace();
  BlockFields& block() { return segment_.blocks.back(); }
  Level& above() { return levels_.back(); }

  RecordingBuilder& out_;
  std::vector<Level> levels_;
  std::size_t values_ = 0;
  SegmentFields segment_;
  std::vector<std::int64_t> pool_;
  std::vector<trace::Frame> frames_;
  trace::Frame frame_;
  unsigned frame_has_ = 0;
  EventFields event_;
  bool event_has_action_ = false, event_is_known_ = false;
  std::size_t device_ = 0;
  std::uint32_t trace_first_ = 0, trace_count_ = 0;
  bool first_history_ = true;
  struct {
    std::string name, stage;
    std::int64_t device = 0, time_us = -1;
  } annotation_;
  std::string division_;
};

// The place of an object or array that begins now.
In Handler::child(bool object) const {
  const auto wanted = [object](bool is, In in) {
    if (object != is) throw Problem{is ? "a list where an object is wanted" : "an object where a list is wanted"};
    return in;
  };
  if (levels_.empty()) return object ? In::kTop : In::kSegments;  // Long ago a snapshot was its segments alone.
  const Level& level = levels_.back();
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

bool Handler::open(bool object) {
  ++values_;
  if (levels_.size() == kMaxDepth) throw Problem{"nested more than " + std::to_string(kMaxDepth) + " deep"};
  const In in = child(object);
  levels_.push_back({in, object});
  begin(in);
  return true;
}

void Handler::begin(In in) {
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

bool Handler::close() {
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

bool Handler::scalar(const Scalar& value) {
  ++values_;
  if (levels_.empty()) throw Problem{"no memory snapshot: a single value"};
  const Level& level = levels_.back();
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
      if (level.key != Key::kOther && value.type != Scalar::Type::kNull)
        throw Problem{"a value where a list is wanted"};
      break;
    case In::kSkip:
      break;
    default:
      throw Problem{"a value where an object or a list is wanted"};
  }
  return true;
}

void Handler::set_segment(Key key, const Scalar& value) {
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

void Handler::set_block(Key key, const Scalar& value) {
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

void Handler::set_frame(Key key, const Scalar& value) {
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

void Handler::add_frame() {
  if (frame_has_ != 7u) throw Problem{"a frame of a stack has not filename, line and name"};
  frames_.push_back(frame_);
}

// Of whatever the list of frames, just closed, belongs to.
void Handler::set_stack(std::uint32_t stack) {
  switch (above().in) {
    case In::kEvent:
      event_.stack = stack;
      break;
    case In::kSegment:
      segment_.stack = stack;
      break;
    case In::kHistoryEntry:
      if (first_history_) block().stack = stack;
      break;
    default:
      block().stack = stack;
      break;
  }
}

void Handler::set_event(Key key, const Scalar& value) {
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

void Handler::finish_event() {
  if (!event_has_action_) throw Problem{"an event without an action"};
  if (!event_is_known_) return;
  const std::uint32_t index = out_.add_event(event_);
  if (trace_count_++ == 0) trace_first_ = index;
}

void Handler::finish_trace() {
  if (trace_count_ > 0) out_.add_trace(device_, {{trace_first_, trace_count_}});
  ++device_;
}

void Handler::set_setting(Key key, const Scalar& value) {
  switch (key) {
    case Key::kAllocConf:
      out_.settings().alloc_conf = value.word("PYTORCH_CUDA_ALLOC_CONF");
      break;
    case Key::kMaxSplitSize:
      out_.set_max_split_size(value.integer("max_split_size"));
      break;
    case Key::kGarbageCollectionThreshold:
      if (value.type != Scalar::Type::kFloat && value.type != Scalar::Type::kInt) {
        throw Problem{"garbage_collection_threshold is no number"};
      }
      out_.settings().garbage_collection_threshold =
          value.type == Scalar::Type::kFloat ? value.real : static_cast<double>(value.number);
      break;
    case Key::kExpandableSegments:
      out_.settings().expandable_segments = value.truth("expandable_segments");
      break;
    default:
      break;
  }
}

void Handler::set_annotation(Key key, const Scalar& value) {
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

/// The input, a character at a time, as nlohmann's parser wants it.
class Characters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  Characters() = default;
  Characters(Input& input, const Handler& handler) : input_(&input), handler_(&handler) {}

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
  const Handler* handler_ = nullptr;
  std::size_t values_ = 0, since_ = 0;
};
}  // namespace

void read_json(Input& input, RecordingBuilder& builder) {
  Handler handler(builder);
  Json::sax_parse(Characters(input, handler), Characters(), &handler);
}
}  // namespace cinch::snapshot::internal
