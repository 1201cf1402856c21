#pragma once
// What nlohmann's parser tells while it reads a snapshot, and where in the snapshot that is.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/snapshot/internal/input.h"
#include "cinch/snapshot/internal/recording.h"

namespace cinch::snapshot::internal {

/// Where in the snapshot the parser is.
enum class JsonPlace : std::uint8_t {
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

struct JsonLevel {
  JsonPlace in;
  bool object;
  Key key = Key::kOther;
};

/// What stands for a value of a dict: its type is checked where it is used.
struct JsonScalar {
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

class JsonHandler {
 public:
  explicit JsonHandler(RecordingBuilder& out) : out_(out) {}
  std::size_t values() const { return values_; }  ///< Changes with each callback.
  bool is_snapshot() const { return is_snapshot_; }

  // What nlohmann's parser calls; the names are its.
  bool null() { return scalar({}); }
  bool boolean(bool value) { return scalar({JsonScalar::Type::kBool, value ? 1 : 0}); }
  bool number_integer(std::int64_t value) { return scalar({JsonScalar::Type::kInt, value}); }
  bool number_unsigned(std::uint64_t value) {
    const bool fits = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return scalar({fits ? JsonScalar::Type::kInt : JsonScalar::Type::kHuge, static_cast<std::int64_t>(value)});
  }
  bool number_float(double value, const std::string& /*text*/) { return scalar({JsonScalar::Type::kFloat, 0, value}); }
  bool string(const std::string& value) { return scalar({JsonScalar::Type::kText, 0, 0, value}); }
  bool binary(const nlohmann::json::binary_t& /*value*/) { return true; }
  bool start_object(std::size_t /*elements*/) { return open(true); }
  bool start_array(std::size_t /*elements*/) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(const std::string& name) {
    ++values_;
    levels_.back().key = key_named(name);
    if (levels_.back().in == JsonPlace::kDivisions) division_ = name;
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const nlohmann::json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.…] parse error at line …"
    const std::size_t bracket = what.find("] ");
    std::string text(bracket == std::string_view::npos ? what : what.substr(bracket + 2));
    constexpr std::size_t kStart = 120, kEnd = 60;  // Where and what; between them is the file's own text.
    if (text.size() > kStart + kEnd) text.replace(kStart, text.size() - kStart - kEnd, " ... ");
    for (char& character : text) {
      if (character < ' ' || character > '~') character = '?';
    }
    throw Problem{std::move(text)};
  }

 private:
  bool open(bool object);
  bool close();
  bool scalar(const JsonScalar& value);
  JsonPlace child(bool object) const;
  void begin(JsonPlace in);
  void set_segment(Key key, const JsonScalar& value);
  void set_block(Key key, const JsonScalar& value);
  void set_frame(Key key, const JsonScalar& value);
  void set_event(Key key, const JsonScalar& value);
  void set_setting(Key key, const JsonScalar& value);
  void set_annotation(Key key, const JsonScalar& value);
  void add_frame();
  void set_stack(std::uint32_t stack);
  void finish_event();
  void finish_trace();
  BlockFields& block() { return segment_.blocks.back(); }

  RecordingBuilder& out_;
  std::vector<JsonLevel> levels_;
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
  bool is_snapshot_ = false;  ///< There were segments or traces.
  struct {
    std::string name, stage;
    std::int64_t device = 0, time_us = -1;
  } annotation_;
  std::string division_;
};

}  // namespace cinch::snapshot::internal
