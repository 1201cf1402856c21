#include "cinch/snapshot/internal/pickle.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <string>

#include "cinch/snapshot/internal/pickle_reader.h"

namespace cinch::snapshot::internal {
namespace {
constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxIntegerBytes = 1024;
constexpr std::size_t kWindow = 1u << 16;

// Opcodes that call, or fetch what lies outside the pickle.
const char* forbidden(std::uint8_t opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 0x93:
      return "STACK_GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x82:
    case 0x83:
    case 0x84:
      return "EXT";
    case 'P':
    case 'Q':
      return "PERSID";
    case 0x97:
    case 0x98:
      return "NEXT_BUFFER";
    default:
      return nullptr;
  }
}

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18 & 0x07));
    out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

// A code point written as `digits` hexadecimal digits.
std::uint32_t hexadecimal(std::string_view text, std::size_t digits) {
  std::uint32_t code = 0;
  const char* const end = text.data() + digits;
  if (text.size() < digits || std::from_chars(text.data(), end, code, 16).ptr != end) {
    throw Problem{"a text has a broken escape"};
  }
  return code;
}

// Python's raw-unicode-escape: Latin-1, and \uXXXX or \UXXXXXXXX for the rest.
std::string decoded(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size() && (line[i + 1] == 'u' || line[i + 1] == 'U');
    if (!escape) {
      append_utf8(out, static_cast<unsigned char>(line[i]));
      continue;
    }
    const std::size_t digits = line[i + 1] == 'u' ? 4 : 8;
    append_utf8(out, hexadecimal(line.substr(i + 2), digits));
    i += 1 + digits;
  }
  return out;
}

// A Python 2 str as repr() writes it.
std::string unquoted(std::string_view line) {
  if (line.size() < 2 || line.front() != line.back() || (line.front() != '\'' && line.front() != '"')) {
    throw Problem{"a text without quotes"};
  }
  line = line.substr(1, line.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      out += line[i];
      continue;
    }
    const char escaped = line[++i];
    if (escaped == 'x') {
      out += static_cast<char>(hexadecimal(line.substr(i + 1), 2));
      i += 2;
    } else {
      out += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
    }
  }
  return out;
}
}  // namespace

void PickleReader::run() {
  for (;;) {
    if (in_.available() < kWindow) in_.fill(kWindow);
    const auto opcode = static_cast<std::uint8_t>(number(1));
    if (opcode == '.') break;
    if (opcode == '}' && try_event()) continue;
    if (!constant(opcode) && !text(opcode) && !memo(opcode) && !structure(opcode)) {
      in_.advance_to(in_.cursor() - 1);
      if (const char* name = forbidden(opcode)) {
        throw Problem{std::string("the pickle calls Python code (opcode ") + name + "): it is more than data",
                      "Read are the files of torch.cuda.memory._dump_snapshot(), which hold data alone."};
      }
      throw Problem{"there is no opcode " + std::to_string(opcode)};
    }
  }
  content(pop());
}

void PickleReader::need(std::size_t bytes) {
  if (!in_.fill(bytes)) throw Problem{"the pickle ends too early", "The file is cut off: copy it again."};
}

std::uint64_t PickleReader::number(std::size_t bytes) {
  need(bytes);
  std::uint64_t value = 0;
  std::memcpy(&value, in_.cursor(), bytes);  // Little-endian, as pickles are.
  in_.skip(bytes);
  return value;
}

std::string_view PickleReader::raw(std::uint64_t bytes) {
  if (bytes > kMaxTextBytes) throw Problem{"a text of " + std::to_string(bytes) + " bytes"};
  need(bytes);
  const std::string_view view(reinterpret_cast<const char*>(in_.cursor()), bytes);
  in_.skip(bytes);
  return view;
}

// Without the newline. Valid until the next read.
std::string_view PickleReader::line() {
  std::size_t seen = 0;
  for (;;) {
    need(seen + 1);
    const std::size_t have = in_.available();
    const void* end = std::memchr(in_.cursor() + seen, '\n', have - seen);
    if (end != nullptr) {
      const auto size = static_cast<std::size_t>(static_cast<const std::uint8_t*>(end) - in_.cursor());
      const std::string_view view(reinterpret_cast<const char*>(in_.cursor()), size);
      in_.skip(size + 1);
      return view;
    }
    seen = have;
    if (seen > kMaxTextBytes) throw Problem{"a line of more than 64 MiB"};
  }
}

void PickleReader::skip(std::uint64_t bytes) {
  while (bytes > 0) {
    need(1);
    const std::uint64_t step = std::min<std::uint64_t>(bytes, in_.available());
    in_.skip(step);
    bytes -= step;
  }
}

Value PickleReader::integer(std::uint64_t bytes) {
  if (bytes > kMaxIntegerBytes) throw Problem{"an integer of " + std::to_string(bytes) + " bytes"};
  const std::string_view digits = raw(bytes);
  Value value{Kind::kInt};
  if (bytes == 0) return value;
  const bool negative = (static_cast<unsigned char>(digits.back()) & 0x80u) != 0;
  std::uint64_t low = negative ? ~std::uint64_t{0} : 0;
  std::memcpy(&low, digits.data(), std::min<std::size_t>(bytes, 8));
  value.number = static_cast<std::int64_t>(low);
  const char fill = negative ? '\xff' : '\0';
  const bool fits = bytes <= 8 || ((value.number < 0) == negative &&
                                   digits.substr(8).find_first_not_of(fill) == std::string_view::npos);
  if (!fits) value.kind = Kind::kHuge;
  return value;
}

Value PickleReader::decimal(std::string_view text) {
  if (text == "00" || text == "01") return {Kind::kBool, 0, text == "01"};
  if (!text.empty() && text.back() == 'L') text.remove_suffix(1);
  Value value{Kind::kInt};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.number);
  if (end != text.data() + text.size() || text.empty()) throw Problem{"an integer is no number"};
  if (error == std::errc::result_out_of_range) value.kind = Kind::kHuge;
  return value;
}

bool PickleReader::constant(std::uint8_t opcode) {
  const auto push_integer = [&](std::int64_t value) { push({Kind::kInt, 0, value}); };
  switch (opcode) {
    case 0x80:  // PROTO
      if (const std::uint64_t protocol = number(1); protocol > 5) {
        throw Problem{"pickle protocol " + std::to_string(protocol) + " is unknown"};
      }
      return true;
    case 0x95:  // FRAME: reads in another rhythm, no other meaning
      number(8);
      return true;
    case 'N':
      push({});
      return true;
    case 0x88:
    case 0x89:
      push({Kind::kBool, 0, opcode == 0x88});
      return true;
    case 'K':
      push_integer(static_cast<std::int64_t>(number(1)));
      return true;
    case 'M':
      push_integer(static_cast<std::int64_t>(number(2)));
      return true;
    case 'J':
      push_integer(static_cast<std::int32_t>(number(4)));
      return true;
    case 0x8a:  // LONG1
      push(integer(number(1)));
      return true;
    case 0x8b:  // LONG4
      push(integer(number(4)));
      return true;
    case 'I':
    case 'L':
      push(decimal(line()));
      return true;
    case 'G': {
      Value value{Kind::kFloat};
      value.number = static_cast<std::int64_t>(__builtin_bswap64(number(8)));
      push(value);
      return true;
    }
    case 'F': {
      Value value{Kind::kFloat};
      const std::string_view text = line();
      double real = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), real).ptr != text.data() + text.size()) {
        throw Problem{"a floating-point number is none"};
      }
      value.number = std::bit_cast<std::int64_t>(real);
      push(value);
      return true;
    }
    default:
      return false;
  }
}

void PickleReader::push_text(std::string_view text) { push({Kind::kText, intern(text.data(), text.size())}); }

std::uint32_t PickleReader::intern(const char* data, std::size_t size) {
  const std::uint32_t id = texts_.intern(data, size);
  if (id > Ref::kMaxId) throw Problem{"more than 268,435,455 different texts"};
  return id;
}

bool PickleReader::text(std::uint8_t opcode) {
  switch (opcode) {
    case 0x8c:  // SHORT_BINUNICODE
    case 'U':   // SHORT_BINSTRING
      push_text(raw(number(1)));
      return true;
    case 'X':  // BINUNICODE
    case 'T':  // BINSTRING
      push_text(raw(number(4)));
      return true;
    case 0x8d:  // BINUNICODE8
      push_text(raw(number(8)));
      return true;
    case 'V':
      push_text(decoded(line()));
      return true;
    case 'S':
      push_text(unquoted(line()));
      return true;
    case 'C':  // SHORT_BINBYTES
      skip(number(1));
      break;
    case 'B':  // BINBYTES
      skip(number(4));
      break;
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      skip(number(8));
      break;
    default:
      return false;
  }
  push({Kind::kBytes});
  return true;
}

bool PickleReader::memo(std::uint8_t opcode) {
  const auto put_top = [this](std::uint64_t slot) {
    if (stack_.empty()) throw Problem{"an opcode finds too little on the stack"};
    if (slot < memo_.size()) expected_ = {};
    put(slot, stack_.back());
  };
  const auto slot = [&] {
    const Value value = decimal(line());
    if (value.kind != Kind::kInt || value.number < 0) throw Problem{"a memo slot is out of range"};
    return static_cast<std::uint64_t>(value.number);
  };
  switch (opcode) {
    case 0x94:
      put_top(memo_count_);
      return true;
    case 'q':
      put_top(number(1));
      return true;
    case 'r':
      put_top(number(4));
      return true;
    case 'p':
      put_top(slot());
      return true;
    case 'h':
      push(get(number(1)));
      return true;
    case 'j':
      push(get(number(4)));
      return true;
    case 'g':
      push(get(slot()));
      return true;
    default:
      return false;
  }
}

void PickleReader::tuple(std::size_t size) {
  const Value made = object(false);
  std::vector<Value> items(size);
  for (std::size_t i = size; i-- > 0;) items[i] = pop();
  for (const Value& item : items) append_item(container(resolved(made)).items, item);
  push(made);
}

// Those above the newest mark.
void PickleReader::append_marked(Value list, std::size_t from) {
  for (std::size_t i = from; i < stack_.size(); ++i) append(list, stack_[i]);
  stack_.resize(from);
}

Value& PickleReader::below(std::size_t position) {
  if (position <= (marks_.empty() ? 0 : marks_.back())) throw Problem{"an opcode finds too little on the stack"};
  return stack_[position - 1];
}

// A dict that is an event by now waits on the stack as one.
void PickleReader::finish_dict() {
  const Value dict = stack_.back();
  if (dict.kind != Kind::kObject || !convert(dict.id, false)) return;
  const Value made = resolved(dict);
  if (made.kind == Kind::kFrame) return;
  stack_.pop_back();
  if (made.kind == Kind::kEvent) {
    push_event(made.id);
  } else {
    push(made);
  }
}

bool PickleReader::structure(std::uint8_t opcode) {
  switch (opcode) {
    case '(':
      if (marks_.size() == marks_.capacity()) charge(0);
      marks_.push_back(stack_.size());
      return true;
    case '0':  // POP
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    case '1':  // POP_MARK
      stack_.resize(pop_mark());
      return true;
    case '2': {  // DUP
      const Value value = pop();
      push(value);
      push(value);
      return true;
    }
    case '}':
      push(object(true));
      return true;
    case ']':
    case ')':
    case 0x8f:  // EMPTY_SET
      push(object(false));
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      tuple(opcode - 0x84u);
      return true;
    case 't':
    case 'l':
    case 0x91: {  // FROZENSET
      const std::size_t from = pop_mark();
      const Value made = object(false);
      append_marked(made, from);
      push(made);
      return true;
    }
    case 'd': {
      const std::size_t from = pop_mark();
      const Value made = object(true);
      set_items(made, from);
      push(made);
      finish_dict();
      return true;
    }
    case 'a': {
      const Value item = pop();
      append(below(stack_.size()), item);
      return true;
    }
    case 'e':     // APPENDS
    case 0x90: {  // ADDITEMS
      const std::size_t from = pop_mark();
      append_marked(below(from), from);
      return true;
    }
    case 's': {
      const Value item = pop(), key = pop(), dict = below(stack_.size());
      push(key);
      push(item);
      set_items(dict, stack_.size() - 2);
      return true;
    }
    case 'u': {
      const std::size_t from = pop_mark();
      set_items(below(from), from);
      finish_dict();
      return true;
    }
    default:
      return false;
  }
}

void read_pickle(Input& input, RecordingBuilder& builder) { PickleReader(input, builder).run(); }
}  // namespace cinch::snapshot::internal
