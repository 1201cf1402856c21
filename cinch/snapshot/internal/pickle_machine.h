#pragma once
// The stack machine's values and memory.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cinch/snapshot/internal/input.h"
#include "cinch/snapshot/internal/recording.h"
#include "cinch/snapshot/internal/texts.h"

namespace cinch::snapshot::internal {

enum class Kind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kHuge,  ///< An integer beyond 64 bits.
  kFloat,
  kText,
  kBytes,    ///< Skipped.
  kObject,   ///< A list, tuple or dict: Machine::objects.
  kList,     ///< What an object is: Machine::containers. Tuples and sets are lists here.
  kDict,     ///< The same; items are key, value, key, value.
  kEvent,    ///< Packed: Recording::events.
  kRun,      ///< `number` events, from `id` on.
  kIgnored,  ///< Was an event of an action that is left aside.
  kStack,    ///< Of the StackTable.
  kFrame,    ///< Machine::frames.
  kHole      ///< A memo entry that was never put.
};

struct Value {
  Kind kind = Kind::kNone;
  std::uint32_t id = 0;
  std::int64_t number = 0;  ///< Of kFloat: its bits.
};

/// A value in four bytes, for the memo, which has an entry for each event.
class Ref {
 public:
  Ref() = default;
  Ref(Kind kind, std::uint32_t id) : bits_(static_cast<std::uint32_t>(kind) << kIdBits | id) {}
  Kind kind() const { return static_cast<Kind>(bits_ >> kIdBits); }
  std::uint32_t id() const { return bits_ & kMaxId; }
  static constexpr int kIdBits = 28;
  static constexpr std::uint32_t kMaxId = (1u << kIdBits) - 1;

 private:
  std::uint32_t bits_ = static_cast<std::uint32_t>(Kind::kHole) << kIdBits;
};
static_assert(static_cast<int>(Kind::kHole) < 16);

struct Container {
  std::vector<Value> items;
  bool dict = false;
  bool used = false;  ///< Already became part of the recording: once is enough.
};

/// State of the machine, and what does not depend on opcodes.
class Machine {
 public:
  Machine(Input& input, RecordingBuilder& builder) : in_(input), out_(builder) {
    // Address space, not memory, for what a recording usually puts: growing in place spares touching it twice.
    constexpr std::uint64_t kBytesAnEntry = 24, kMostEntries = std::uint64_t{1} << 26;
    memo_.reserve(std::min(in_.size_hint() / kBytesAnEntry, kMostEntries));
  }

 protected:
  // Values.
  Value object(bool dict);
  /// What an object is by now; other values are themselves.
  Value resolved(Value value) const;
  Container& container(Value resolved) { return containers_[resolved.id]; }
  void append(Value list, Value item);
  void append_item(std::vector<Value>& items, Value item);
  void set_items(Value dict, std::size_t from);
  /// An event or a frame in place of a dict that is complete.
  bool convert(std::uint32_t object_id, bool is_complete);
  std::uint32_t stack_of(Value frames);
  bool frame_of(Value value, trace::Frame& frame);
  trace::NameId name_of(std::uint32_t text);

  // Stack.
  void push(Value value);
  void push_event(std::uint32_t event);
  Value pop();
  std::size_t pop_mark();
  void expand_runs(std::size_t from);

  // Memo.
  Ref packed(Value value);
  Value unpacked(Ref ref) const;
  void put(std::uint64_t slot, Value value);
  Value get(std::uint64_t slot) const;

  void charge(std::size_t values);

  Input& in_;
  RecordingBuilder& out_;
  Texts texts_;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Ref> memo_;
  std::size_t memo_count_ = 0;  ///< Entries that were put.
  std::vector<Ref> objects_;    ///< What each object is by now: a container, or what became of it.
  std::vector<Container> containers_;
  std::vector<std::uint32_t> free_containers_;
  std::vector<Value> others_;  ///< Memo entries that do not fit a Ref.
  std::vector<trace::Frame> frames_, scratch_;
  std::size_t charged_ = 0;  ///< Values in containers.

 private:
  void become(std::uint32_t object_id, Ref ref);
  bool convert_event(std::uint32_t object_id, const std::vector<Value>& items, bool is_complete);
  EventFields event_fields(const std::vector<Value>& items);
};
}  // namespace cinch::snapshot::internal
