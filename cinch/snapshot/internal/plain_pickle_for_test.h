#pragma once
// For tests: Python's values, pickled as many writers might, and read by a reader that does nothing clever.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cinch::snapshot::plain {

/// A Python value.
struct Node {
  enum class Type : std::uint8_t { kNone, kBool, kInt, kText, kList, kDict } type = Type::kNone;
  std::int64_t number = 0;
  std::string text;
  std::vector<std::shared_ptr<Node>> items;  ///< Of a dict: key, value, key, value.

  const Node& operator[](const std::string& key) const {
    for (std::size_t i = items.size(); i >= 2; i -= 2) {
      if (items[i - 2]->text == key) return *items[i - 1];
    }
    throw std::out_of_range(key);
  }
  bool has(const std::string& key) const {
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i]->text == key) return true;
    }
    return false;
  }
};
using Ref = std::shared_ptr<Node>;

inline Ref make(Node::Type type, std::int64_t number = 0, std::string text = {}) {
  return std::make_shared<Node>(Node{type, number, std::move(text), {}});
}
inline Ref integer(std::int64_t number) { return make(Node::Type::kInt, number); }
inline Ref text(const std::string& value) { return make(Node::Type::kText, 0, value); }
inline Ref list() { return make(Node::Type::kList); }
inline Ref dict(const std::vector<std::pair<std::string, Ref>>& entries) {
  Ref made = make(Node::Type::kDict);
  for (const auto& [key, value] : entries) {
    made->items.push_back(text(key));
    made->items.push_back(value);
  }
  return made;
}

/// A plain unpickler: for each opcode what pickletools says of it, on a stack of values.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  Ref read() {
    for (;;) {
      const auto opcode = static_cast<unsigned char>(bytes_.at(at_++));
      if (opcode == '.') return stack_.back();
      step(opcode);
    }
  }

 private:
  std::uint64_t take(std::size_t count) {
    std::uint64_t number = 0;
    std::memcpy(&number, bytes_.substr(at_, count).data(), count);
    at_ += count;
    return number;
  }
  std::string take_text(std::uint64_t size) {
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  Ref pop() {
    Ref top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<Ref> pop_to_mark() {
    std::vector<Ref> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void extend(const std::vector<Ref>& items) {
    stack_.back()->items.insert(stack_.back()->items.end(), items.begin(), items.end());
  }
  void step(unsigned char opcode) {
    switch (opcode) {
      case 0x80:
        take(1);
        break;
      case 0x95:
        take(8);
        break;
      case 'N':
        stack_.push_back(make(Node::Type::kNone));
        break;
      case 0x88:
      case 0x89:
        stack_.push_back(make(Node::Type::kBool, opcode == 0x88));
        break;
      case 'K':
        stack_.push_back(integer(static_cast<std::int64_t>(take(1))));
        break;
      case 'M':
        stack_.push_back(integer(static_cast<std::int64_t>(take(2))));
        break;
      case 'J':
        stack_.push_back(integer(static_cast<std::int32_t>(take(4))));
        break;
      case 0x8a: {
        const auto size = take(1);
        const auto shift = 64 - 8 * size;
        stack_.push_back(integer(static_cast<std::int64_t>(take(size) << shift) >> shift));
        break;
      }
      case 0x8c:
        stack_.push_back(text(take_text(take(1))));
        break;
      case 'X':
        stack_.push_back(text(take_text(take(4))));
        break;
      case 0x8d:
        stack_.push_back(text(take_text(take(8))));
        break;
      case '}':
        stack_.push_back(make(Node::Type::kDict));
        break;
      case ']':
      case ')':
        stack_.push_back(list());
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case 'e':
      case 'u':
        extend(pop_to_mark());
        break;
      case 'a':
        extend({pop()});
        break;
      case 's': {
        const Ref value = pop(), key = pop();
        extend({key, value});
        break;
      }
      case 0x86: {
        const Ref second = pop(), first = pop();
        stack_.push_back(list());
        extend({first, second});
        break;
      }
      case 0x94:
        memo_[memo_.size()] = stack_.back();
        break;
      case 'q':
        memo_[take(1)] = stack_.back();
        break;
      case 'r':
        memo_[take(4)] = stack_.back();
        break;
      case 'h':
        stack_.push_back(memo_.at(take(1)));
        break;
      case 'j':
        stack_.push_back(memo_.at(take(4)));
        break;
      default:
        throw std::runtime_error("opcode");
    }
  }

  const std::string& bytes_;
  std::size_t at_ = 0;
  std::vector<Ref> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, Ref> memo_;
};

/// Pickles a value as one of many writers might.
class Pickler {
 public:
  explicit Pickler(std::mt19937& random) : random_(random) {
    protocol_ = pick(2, 4);
    batch_ = pick(0, 1) == 0 ? 1'000'000 : pick(1, 40);
    memoizes_dicts_ = pick(0, 3) > 0;
    memoizes_texts_ = pick(0, 3) > 0;
    one_by_one_ = pick(0, 5) == 0;
  }
  std::string operator()(const Ref& value) {
    out_ = std::string("\x80") + static_cast<char>(protocol_);
    write(value);
    return out_ + ".";
  }

 private:
  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  void put(std::uint64_t number, std::size_t size) { out_.append(reinterpret_cast<const char*>(&number), size); }
  void memoize() {
    if (protocol_ == 4 && pick(0, 9) > 0) {
      out_ += '\x94';
    } else if (slots_ < 256) {
      out_ += 'q';
      put(slots_, 1);
    } else {
      out_ += 'r';
      put(slots_, 4);
    }
    ++slots_;
  }
  void get(std::uint64_t slot) {
    const bool is_short = slot < 256 && pick(0, 9) > 0;
    out_ += is_short ? 'h' : 'j';
    put(slot, is_short ? 1 : 4);
  }
  void write_text(const std::string& value) {
    if (const auto known = texts_.find(value); known != texts_.end() && pick(0, 49) > 0) {
      get(known->second);
      return;
    }
    if (protocol_ == 4 && value.size() < 256 && pick(0, 9) > 0) {
      out_ += '\x8c';
      put(value.size(), 1);
    } else if (protocol_ == 4 && pick(0, 9) == 0) {
      out_ += '\x8d';
      put(value.size(), 8);
    } else {
      out_ += 'X';
      put(value.size(), 4);
    }
    out_ += value;
    if (!memoizes_texts_) return;
    texts_.emplace(value, slots_);
    memoize();
  }
  void write_integer(std::int64_t number) {
    if (number >= 0 && number < 256 && pick(0, 9) > 0) {
      out_ += 'K';
      put(static_cast<std::uint64_t>(number), 1);
    } else if (number >= INT32_MIN && number <= INT32_MAX && pick(0, 9) > 0) {
      out_ += 'J';
      put(static_cast<std::uint64_t>(number), 4);
    } else {
      out_ += '\x8a';
      put(8, 1);
      put(static_cast<std::uint64_t>(number), 8);
    }
  }
  void write_items(const std::vector<Ref>& items, bool is_dict) {
    const std::size_t unit = is_dict ? 2 : 1;
    for (std::size_t i = 0; i < items.size();) {
      const std::size_t left = (items.size() - i) / unit;
      const bool single = one_by_one_ || (left == 1 && pick(0, 1) == 0);
      // A dict's entries come in one batch: recorders' dicts are small.
      const std::size_t count = single    ? 1
                                : is_dict ? left
                                          : std::min<std::size_t>(left, static_cast<std::size_t>(batch_));
      if (!single) out_ += '(';
      for (std::size_t k = 0; k < count * unit; ++k) write(items[i++]);
      out_ += single ? (is_dict ? 's' : 'a') : (is_dict ? 'u' : 'e');
    }
  }
  void write(const Ref& value) {
    switch (value->type) {
      case Node::Type::kNone:
        out_ += 'N';
        return;
      case Node::Type::kBool:
        out_ += value->number != 0 ? '\x88' : '\x89';
        return;
      case Node::Type::kInt:
        write_integer(value->number);
        return;
      case Node::Type::kText:
        write_text(value->text);
        return;
      default:
        break;
    }
    if (const auto known = objects_.find(value.get()); known != objects_.end()) {
      get(known->second);
      return;
    }
    const bool is_dict = value->type == Node::Type::kDict;
    out_ += is_dict ? '}' : ']';
    const bool memoizes = value.use_count() > 2 || (is_dict ? memoizes_dicts_ : pick(0, 1) == 0);
    if (memoizes) {
      objects_.emplace(value.get(), slots_);
      memoize();
    }
    write_items(value->items, is_dict);
  }

  std::mt19937& random_;
  std::int64_t protocol_, batch_;
  bool memoizes_dicts_, memoizes_texts_, one_by_one_;
  std::string out_;
  std::uint64_t slots_ = 0;
  std::map<std::string, std::uint64_t> texts_;
  std::map<const Node*, std::uint64_t> objects_;
};

}  // namespace cinch::snapshot::plain
