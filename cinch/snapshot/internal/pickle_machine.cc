#include "cinch/snapshot/internal/pickle_machine.h"

#include <algorithm>
#include <limits>

namespace cinch::snapshot::internal {
namespace {
// What lies outside events, stacks and frames: 2^25 values of 16 bytes are half a gigabyte.
constexpr std::size_t kMaxValues = std::size_t{1} << 25;
constexpr std::size_t kContainerCost = 4;  // An empty one, in values.

bool is_event(Kind kind) { return kind == Kind::kEvent || kind == Kind::kRun; }
}  // namespace

void Machine::charge(std::size_t values) {
  charged_ += values;
  if (charged_ + stack_.size() + marks_.size() >= kMaxValues) {
    throw Problem{"holds more than 33,554,432 values besides its events"};
  }
}

Value Machine::object(bool dict) {
  charge(kContainerCost);
  std::uint32_t storage = 0;
  if (free_containers_.empty()) {
    storage = static_cast<std::uint32_t>(containers_.size());
    containers_.emplace_back();
  } else {
    storage = free_containers_.back();
    free_containers_.pop_back();
  }
  containers_[storage].dict = dict;
  if (objects_.size() > Ref::kMaxId) throw Problem{"holds more than 268,435,455 objects"};
  objects_.emplace_back(dict ? Kind::kDict : Kind::kList, storage);
  return {Kind::kObject, static_cast<std::uint32_t>(objects_.size() - 1)};
}

Value Machine::resolved(Value value) const {
  if (value.kind != Kind::kObject) return value;
  const Ref ref = objects_[value.id];
  return {ref.kind(), ref.id()};
}

// The object turns into something smaller; its storage is free again.
void Machine::become(std::uint32_t object_id, Ref ref) {
  const std::uint32_t storage = objects_[object_id].id();
  Container& old = containers_[storage];
  charged_ -= kContainerCost + old.items.size();
  if (old.items.capacity() > 256) old.items.shrink_to_fit();
  old.items.clear();
  old.used = false;
  free_containers_.push_back(storage);
  objects_[object_id] = ref;
}

// Events that follow one another share an item.
void Machine::append_item(std::vector<Value>& items, Value item) {
  if (item.kind == Kind::kIgnored) return;
  if (is_event(item.kind)) {
    const std::uint32_t count = item.kind == Kind::kRun ? static_cast<std::uint32_t>(item.number) : 1;
    Value* last = items.empty() ? nullptr : &items.back();
    const auto joins = [&](std::uint32_t length) { return last->id + length == item.id; };
    if (last != nullptr && last->kind == Kind::kRun && joins(static_cast<std::uint32_t>(last->number))) {
      last->number += count;
      return;
    }
    if (last != nullptr && last->kind == Kind::kEvent && joins(1)) {
      last->kind = Kind::kRun;
      last->number = 1 + static_cast<std::int64_t>(count);
      return;
    }
  }
  charge(1);
  items.push_back(item);
}

void Machine::append(Value list, Value item) {
  if (item.kind == Kind::kObject && objects_[item.id].kind() == Kind::kDict) convert(item.id, true);
  const Value resolved_item = resolved(item);
  const bool packed_by_now = is_event(resolved_item.kind) || resolved_item.kind == Kind::kIgnored;
  const Value target = resolved(list);
  if (target.kind != Kind::kList) throw Problem{"something is appended to what is no list, or no longer one"};
  append_item(container(target).items, packed_by_now ? resolved_item : item);
}

void Machine::set_items(Value dict, std::size_t from) {
  expand_runs(from);
  if ((stack_.size() - from) % 2 != 0) throw Problem{"a key without a value"};
  const Value target = resolved(dict);
  if (target.kind != Kind::kDict) throw Problem{"a key is set in what is no dict, or no longer one"};
  std::vector<Value>& items = container(target).items;
  charge(stack_.size() - from);
  items.insert(items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
}

trace::NameId Machine::name_of(std::uint32_t text) {
  Texts::Entry& entry = texts_[text];
  if (!entry.name) entry.name = out_.stacks().names().intern(entry.text);
  return *entry.name;
}

// False for what is no frame.
bool Machine::frame_of(Value value, trace::Frame& frame) {
  value = resolved(value);
  if (value.kind == Kind::kFrame) {
    frame = frames_[value.id];
    return true;
  }
  if (value.kind != Kind::kDict) return false;
  const std::vector<Value>& items = container(value).items;
  bool has_file = false, has_line = false, has_name = false;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].kind != Kind::kText) continue;
    const Value& item = items[i + 1];
    switch (texts_[items[i].id].key) {
      case Key::kFilename:
        if (item.kind != Kind::kText) return false;
        frame.file = name_of(item.id);
        has_file = true;
        break;
      case Key::kName:
        if (item.kind != Kind::kText) return false;
        frame.function = name_of(item.id);
        has_name = true;
        break;
      case Key::kLine:
        if (item.kind != Kind::kInt) return false;
        frame.line = static_cast<std::uint32_t>(
            std::clamp<std::int64_t>(item.number, 0, std::numeric_limits<std::uint32_t>::max()));
        has_line = true;
        break;
      default:
        break;
    }
  }
  return has_file && has_line && has_name;
}

/// Of a list of frames, which becomes the stack: it is not needed as a list any more.
std::uint32_t Machine::stack_of(Value frames) {
  const Value list = resolved(frames);
  if (list.kind == Kind::kNone) return 0;
  if (list.kind == Kind::kStack) return list.id;
  if (list.kind != Kind::kList) throw Problem{"the frames of a stack are no list"};
  if (container(list).used && !container(list).items.empty()) {  // It is being walked: it must stay what it is.
    throw Problem{"the frames of a stack are used twice, as something else before"};
  }
  scratch_.clear();
  for (const Value& item : container(list).items) {
    trace::Frame frame;
    if (!frame_of(item, frame)) throw Problem{"a frame of a stack has not filename, line and name"};
    scratch_.push_back(frame);
  }
  const auto id = static_cast<std::uint32_t>(out_.stacks().intern(scratch_));
  if (id > Ref::kMaxId) throw Problem{"more than 268,435,455 stacks"};
  if (frames.kind == Kind::kObject) become(frames.id, Ref(Kind::kStack, id));
  return id;
}

EventFields Machine::event_fields(const std::vector<Value>& items) {
  EventFields fields;
  const auto number = [](const Value& value) {
    if (value.kind != Kind::kInt) throw Problem{"a number of an event is no integer of 64 bits"};
    return value.number;
  };
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const Value& value = items[i + 1];
    const Key key = items[i].kind == Kind::kText ? texts_[items[i].id].key : Key::kOther;
    switch (key) {
      case Key::kAddr:
      case Key::kDeviceFree:
        fields.address = number(value);
        break;
      case Key::kSize:
        fields.size = number(value);
        break;
      case Key::kStream:
        fields.stream = number(value);
        break;
      case Key::kTimeUs:
        fields.time_us = number(value);
        break;
      case Key::kFrames:
        fields.stack = stack_of(value);
        break;
      default:
        continue;
    }
    fields.mark(key);
  }
  return fields;
}

bool Machine::convert_event(std::uint32_t object_id, const std::vector<Value>& items, bool is_complete) {
  bool size = false, address = false;
  std::uint32_t action = 0;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const Key key = items[i].kind == Kind::kText ? texts_[items[i].id].key : Key::kOther;
    size |= key == Key::kSize;
    address |= key == Key::kAddr || key == Key::kDeviceFree;
    if (key == Key::kAction) {
      if (items[i + 1].kind != Kind::kText) throw Problem{"the action of an event is no text"};
      action = items[i + 1].id;
    }
  }
  if (action == 0 || (!is_complete && !(size && address))) return false;
  if (!texts_[action].action) {
    become(object_id, Ref(Kind::kIgnored, 0));
    return true;
  }
  EventFields fields = event_fields(items);
  fields.action = *texts_[action].action;
  require_complete(fields);
  become(object_id, Ref(Kind::kEvent, out_.add_event(fields)));
  return true;
}

bool Machine::convert(std::uint32_t object_id, bool is_complete) {
  constexpr std::size_t kMostItems = 64;  // Events and frames have a dozen keys; larger dicts are something else.
  const Value dict = resolved({Kind::kObject, object_id});
  const std::vector<Value>& items = container(dict).items;
  if (items.size() > kMostItems) return false;
  trace::Frame frame;
  if (frame_of(dict, frame)) {
    if (frames_.size() > Ref::kMaxId) throw Problem{"more than 268,435,455 frames"};
    frames_.push_back(frame);
    become(object_id, Ref(Kind::kFrame, static_cast<std::uint32_t>(frames_.size() - 1)));
    return true;
  }
  return convert_event(object_id, items, is_complete);
}

void Machine::push(Value value) {
  if (stack_.size() == stack_.capacity()) charge(0);
  stack_.push_back(value);
}

// The events of a list that was begun by a mark wait on the stack, millions of them: all but the newest, which the next
// opcode may ask for, are one value.
void Machine::push_event(std::uint32_t event) {
  const std::size_t base = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() > base && stack_.back().kind == Kind::kEvent && stack_.back().id + 1 == event) {
    Value* run = stack_.size() > base + 1 ? &stack_[stack_.size() - 2] : nullptr;
    if (run != nullptr && run->kind == Kind::kRun && run->id + static_cast<std::uint64_t>(run->number) + 1 == event) {
      ++run->number;
      stack_.back().id = event;
      return;
    }
    stack_.back().kind = Kind::kRun;
    stack_.back().number = 1;
  }
  push({Kind::kEvent, event});
}

Value Machine::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw Problem{"an opcode finds too little on the stack"};
  Value& top = stack_.back();
  if (top.kind == Kind::kRun && top.number > 1) {
    --top.number;
    return {Kind::kEvent, top.id + static_cast<std::uint32_t>(top.number)};
  }
  Value value = top;
  stack_.pop_back();
  if (value.kind == Kind::kRun) value.kind = Kind::kEvent;
  return value;
}

std::size_t Machine::pop_mark() {
  if (marks_.empty()) throw Problem{"an opcode needs a mark, and there is none"};
  const std::size_t mark = marks_.back();
  marks_.pop_back();
  return mark;
}

void Machine::expand_runs(std::size_t from) {
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(from);
  if (std::none_of(begin, stack_.end(), [](const Value& value) { return value.kind == Kind::kRun; })) return;
  const std::vector<Value> old(begin, stack_.end());
  stack_.resize(from);
  for (const Value& value : old) {
    const std::uint32_t count = value.kind == Kind::kRun ? static_cast<std::uint32_t>(value.number) : 1;
    for (std::uint32_t i = 0; i < count; ++i) {
      push(value.kind == Kind::kRun ? Value{Kind::kEvent, value.id + i} : value);
    }
  }
}

Ref Machine::packed(Value value) {
  switch (value.kind) {
    case Kind::kText:
    case Kind::kObject:
    case Kind::kEvent:
    case Kind::kStack:
    case Kind::kIgnored:
      return {value.kind, value.id};
    case Kind::kRun:
      return {Kind::kEvent, value.id + static_cast<std::uint32_t>(value.number) - 1};
    default:  // Nobody puts numbers into the memo.
      charge(1);
      others_.push_back(value);
      return {Kind::kNone, static_cast<std::uint32_t>(others_.size() - 1)};
  }
}

Value Machine::unpacked(Ref ref) const {
  return ref.kind() == Kind::kNone ? others_[ref.id()] : Value{ref.kind(), ref.id()};
}

void Machine::put(std::uint64_t slot, Value value) {
  // Slots are given in order: one beyond what the file can have filled so far is a lie.
  if (slot > memo_.size() && slot > in_.offset()) throw Problem{"a memo slot is out of range"};
  if (slot >= Ref::kMaxId) throw Problem{"more than 268,435,455 memo slots"};
  if (slot >= memo_.size()) memo_.resize(slot + 1);
  memo_count_ += memo_[slot].kind() == Kind::kHole ? 1 : 0;
  memo_[slot] = packed(value);
}

Value Machine::get(std::uint64_t slot) const {
  if (slot >= memo_.size() || memo_[slot].kind() == Kind::kHole)
    throw Problem{"a memo slot is read that was never put"};
  return unpacked(memo_[slot]);
}
}  // namespace cinch::snapshot::internal
