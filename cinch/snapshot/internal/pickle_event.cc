// A whole event at once. Keys are told by the bytes that name them: an event has those of the one before it, as a rule.

#include <cstring>

#include "cinch/snapshot/internal/pickle_reader.h"

namespace cinch::snapshot::internal {
namespace {
// Longest key, value and memo slots that are read here; who has so much room need not ask for each byte.
constexpr std::ptrdiff_t kPairRoom = 2 * (2 + 255 + 5) + 8;

template <class Number>
inline Number load(const std::uint8_t* at) {
  Number number;
  std::memcpy(&number, at, sizeof number);
  return number;
}

inline bool is_opcode_of_memo(std::uint8_t opcode) { return opcode == 0x94 || opcode == 'q' || opcode == 'r'; }
}  // namespace

struct PickleReader::Scan {
  const std::uint8_t* at;
  const std::uint8_t* end;
  EventFields fields{};
  bool has_action = false;

  bool room() const { return end - at >= kPairRoom; }
};

// `q`, `r` or MEMOIZE in front of us: the slot that follows all others gets `ref`.
inline bool PickleReader::scan_memo(Scan& scan, Ref ref) {
  auto slot = static_cast<std::uint32_t>(memo_.size());
  const std::uint8_t opcode = *scan.at++;
  if (opcode == 'q') slot = *scan.at++;
  if (opcode == 'r') {
    slot = load<std::uint32_t>(scan.at);
    scan.at += 4;
  }
  if (slot != memo_.size() || slot >= Ref::kMaxId) return false;
  memo_.push_back(ref);
  ++memo_count_;
  return true;
}

inline bool PickleReader::scan_get(Scan& scan, Ref& ref) const {
  const bool is_short = *scan.at == 'h';
  if (!is_short && *scan.at != 'j') return false;
  const std::uint32_t slot = is_short ? scan.at[1] : load<std::uint32_t>(scan.at + 1);
  scan.at += is_short ? 2 : 5;
  if (slot >= memo_.size()) return false;
  ref = memo_[slot];
  if (ref.kind() == Kind::kObject) ref = objects_[ref.id()];
  return true;
}

bool PickleReader::scan_text(Scan& scan, std::uint32_t& text) {
  Ref ref;
  if (*scan.at == 'h' || *scan.at == 'j') {
    if (!scan_get(scan, ref) || ref.kind() != Kind::kText) return false;
    text = ref.id();
    return true;
  }
  std::size_t size = 0;
  if (*scan.at == 0x8c) {
    size = scan.at[1];
    scan.at += 2;
  } else if (*scan.at == 'X') {
    size = load<std::uint32_t>(scan.at + 1);
    scan.at += 5;
    if (size > 255) return false;
  } else {
    return false;
  }
  text = intern(reinterpret_cast<const char*>(scan.at), size);
  scan.at += size;
  return !is_opcode_of_memo(*scan.at) || scan_memo(scan, Ref(Kind::kText, text));
}

// The key at `position` of the dict.
inline bool PickleReader::scan_key(Scan& scan, std::size_t position, Key& key) {
  const auto word = load<std::uint64_t>(scan.at);
  ExpectedKey& expected = expected_[position % expected_.size()];
  if ((word & expected.mask) == expected.code) {
    key = expected.key;
    scan.at += expected.length;
    return true;
  }
  const std::uint8_t* const begin = scan.at;
  std::uint32_t text = 0;
  if (!scan_text(scan, text)) return false;
  key = texts_[text].key;
  if (*begin == 'h' || *begin == 'j') {
    const auto length = static_cast<std::uint8_t>(scan.at - begin);
    const std::uint64_t mask = (std::uint64_t{1} << (8 * length)) - 1;
    expected = {word & mask, mask, length, key};
  }
  return true;
}

// A list of known frames.
bool PickleReader::scan_frames(Scan& scan, Key key) {
  ++scan.at;  // ]
  const std::size_t slot = memo_.size();
  const bool memoized = is_opcode_of_memo(*scan.at);
  if (memoized && !scan_memo(scan, Ref())) return false;
  scratch_.clear();
  const bool many = *scan.at == '(';
  if (many) ++scan.at;
  while (*scan.at == 'h' || *scan.at == 'j') {
    if (!many && !scratch_.empty()) break;
    Ref ref;
    if (!scan.room() || !scan_get(scan, ref) || ref.kind() != Kind::kFrame) return false;
    scratch_.push_back(frames_[ref.id()]);
    if (!many && *scan.at++ != 'a') return false;
  }
  if (many && *scan.at++ != 'e') return false;
  const auto stack = static_cast<std::uint32_t>(out_.stacks().intern(scratch_));
  if (stack > Ref::kMaxId) return false;
  if (memoized) memo_[slot] = Ref(Kind::kStack, stack);
  return set_stack(scan, key, stack);
}

inline bool PickleReader::set_stack(Scan& scan, Key key, std::uint32_t stack) {
  if (key != Key::kFrames) return key == Key::kOther;
  scan.fields.stack = stack;
  return true;
}

inline bool PickleReader::set_text(Scan& scan, Key key, std::uint32_t text) {
  if (key != Key::kAction) return key == Key::kOther;
  const Texts::Entry& entry = texts_[text];
  if (!entry.action) return false;
  scan.fields.action = *entry.action;
  scan.has_action = true;
  return true;
}

inline bool PickleReader::set_number(Scan& scan, Key key, std::int64_t number) {
  switch (key) {
    case Key::kAddr:
    case Key::kDeviceFree:
      scan.fields.address = number;
      break;
    case Key::kSize:
      scan.fields.size = number;
      break;
    case Key::kStream:
      scan.fields.stream = number;
      break;
    case Key::kTimeUs:
      scan.fields.time_us = number;
      break;
    default:
      return key == Key::kOther;
  }
  scan.fields.mark(key);
  return true;
}

inline bool PickleReader::scan_value(Scan& scan, Key key) {
  const std::uint8_t* const at = scan.at;
  switch (*at) {
    case 'K':
      scan.at += 2;
      return set_number(scan, key, at[1]);
    case 'M':
      scan.at += 3;
      return set_number(scan, key, load<std::uint16_t>(at + 1));
    case 'J':
      scan.at += 5;
      return set_number(scan, key, load<std::int32_t>(at + 1));
    case 0x8a: {  // LONG1, sign-extended from its top byte
      const unsigned bytes = at[1];
      if (bytes == 0 || bytes > 8) return false;
      const unsigned unused = 64 - 8 * bytes;
      scan.at += 2 + bytes;
      return set_number(scan, key, static_cast<std::int64_t>(load<std::uint64_t>(at + 2) << unused) >> unused);
    }
    case 'h':
    case 'j': {
      Ref ref;
      if (!scan_get(scan, ref)) return false;
      if (ref.kind() == Kind::kStack) return set_stack(scan, key, ref.id());
      return ref.kind() == Kind::kText && set_text(scan, key, ref.id());
    }
    case 0x8c:
    case 'X': {
      std::uint32_t text = 0;
      return scan_text(scan, text) && set_text(scan, key, text);
    }
    case ']':
      return scan_frames(scan, key);
    default:
      return false;
  }
}

bool PickleReader::scan_event(Scan& scan) {
  if (*scan.at++ != '(') return false;
  for (std::size_t position = 0; *scan.at != 'u'; ++position) {
    Key key{};
    if (!scan.room() || !scan_key(scan, position, key) || !scan_value(scan, key) || !scan.room()) return false;
  }
  ++scan.at;
  const Key address = scan.fields.action == trace::Action::kOom ? Key::kDeviceFree : Key::kAddr;
  return scan.has_action && scan.fields.holds(Key::kSize) && scan.fields.holds(address);
}

bool PickleReader::try_event() {
  const std::size_t memo_before = memo_.size();
  if (memo_count_ != memo_before) return false;  // Slots were skipped: MEMOIZE and PUT do not agree.
  Scan scan{in_.cursor(), in_.limit()};
  if (!scan.room()) return false;
  const bool memoized = is_opcode_of_memo(*scan.at);
  if ((memoized && !scan_memo(scan, Ref())) || !scan_event(scan)) {
    memo_.resize(memo_before);
    memo_count_ = memo_before;
    expected_ = {};
    return false;
  }
  in_.advance_to(scan.at);
  const std::uint32_t event = out_.add_event(scan.fields);
  if (memoized) memo_[memo_before] = Ref(Kind::kEvent, event);
  push_event(event);
  return true;
}
}  // namespace cinch::snapshot::internal
