#include "cinch/snapshot/internal/emitter.h"

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cinch::snapshot::internal {
namespace {

class PickleEmitter final : public Emitter {
 public:
  PickleEmitter(AtomicFile& file, const trace::StackTable& stacks) : file_(file), stacks_(stacks) { put("\x80\x02"); }

  void begin_dict() override { begin('}'); }
  void end_dict() override { end('u'); }
  void begin_list() override { begin(']'); }
  void end_list() override { end('e'); }
  void key(std::string_view name) override {
    value();
    write_text(name);
  }
  void text(std::string_view text) override {
    item();
    write_text(text);
  }
  void number(std::int64_t number) override {
    item();
    write_number(number);
  }
  void real(double number) override {
    item();
    put("G");
    bytes(__builtin_bswap64(std::bit_cast<std::uint64_t>(number)), 8);
  }
  void truth(bool value) override {
    item();
    put(value ? "\x88" : "\x89");
  }
  void pair(std::int64_t first, std::int64_t second) override {
    item();
    write_number(first);
    write_number(second);
    put("\x86");
  }
  void stack(trace::StackId id) override {
    item();
    if (const auto known = stack_slots_.find(static_cast<std::uint32_t>(id)); known != stack_slots_.end()) {
      get(known->second);
      return;
    }
    stack_slots_.emplace(static_cast<std::uint32_t>(id), next_slot_);
    put("]");
    memoize();
    if (stacks_[id].empty()) return;
    put("(");
    for (const trace::Frame& frame : stacks_[id]) write_frame(frame);
    put("e");
  }
  void finish() override { put("."); }

 private:
  static constexpr std::size_t kBatch = 1000;  // As Python: who reads need not hold a whole list on his stack.

  struct Level {
    bool list = false;
    std::size_t items = 0;
  };

  void put(std::string_view code) { file_.write(code); }
  void bytes(std::uint64_t number, std::size_t count) {
    put(std::string_view(reinterpret_cast<const char*>(&number), count));
  }
  void begin(char code) {
    item();
    put({&code, 1});
    levels_.push_back({code == ']'});
  }
  void end(char code) {
    if (levels_.back().items > 0) put({&code, 1});
    levels_.pop_back();
  }
  // Before an item of a list, or a key.
  void value() {
    if (levels_.empty()) return;
    Level& level = levels_.back();
    if (level.items == 0) put("(");
    if (level.list && level.items > 0 && level.items % kBatch == 0) put("e(");
    ++level.items;
  }
  // Before a value; in a dict its key went first.
  void item() {
    if (!levels_.empty() && levels_.back().list) value();
  }
  void get(std::uint32_t slot) {
    put(slot < 256 ? "h" : "j");
    bytes(slot, slot < 256 ? 1 : 4);
  }
  void memoize() {
    const std::uint32_t slot = next_slot_++;
    put(slot < 256 ? "q" : "r");
    bytes(slot, slot < 256 ? 1 : 4);
  }
  void write_text(std::string_view text) {
    if (const auto known = text_slots_.find(std::string(text)); known != text_slots_.end()) {
      get(known->second);
      return;
    }
    text_slots_.emplace(text, next_slot_);
    put("X");
    bytes(text.size(), 4);
    put(text);
    memoize();
  }
  void write_number(std::int64_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    if (number >= 0 && number < 1 << 8) {
      put("K");
      bytes(bits, 1);
    } else if (number >= 0 && number < 1 << 16) {
      put("M");
      bytes(bits, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
      put("J");
      bytes(bits, 4);
    } else {
      const auto magnitude = number < 0 ? ~bits : bits;
      const auto count = static_cast<std::size_t>(std::bit_width(magnitude)) / 8 + 1;  // A bit for the sign.
      put("\x8a");
      bytes(count, 1);
      bytes(bits, count);
    }
  }
  void write_frame(const trace::Frame& frame) {
    const std::uint64_t names =
        static_cast<std::uint64_t>(frame.file) << 32 | static_cast<std::uint64_t>(frame.function);
    auto& lines = frame_slots_[names];
    if (const auto known = lines.find(frame.line); known != lines.end()) {
      get(known->second);
      return;
    }
    lines.emplace(frame.line, next_slot_);
    put("}");
    memoize();
    put("(");
    write_text("filename");
    write_text(stacks_.names()[frame.file]);
    write_text("line");
    write_number(frame.line);
    write_text("name");
    write_text(stacks_.names()[frame.function]);
    put("u");
  }

  AtomicFile& file_;
  const trace::StackTable& stacks_;
  std::vector<Level> levels_;
  std::uint32_t next_slot_ = 0;
  std::unordered_map<std::string, std::uint32_t> text_slots_;
  std::unordered_map<std::uint32_t, std::uint32_t> stack_slots_;
  std::unordered_map<std::uint64_t, std::unordered_map<std::uint32_t, std::uint32_t>>
      frame_slots_;  ///< By names, line.
};

class JsonEmitter final : public Emitter {
 public:
  JsonEmitter(AtomicFile& file, const trace::StackTable& stacks) : file_(file), stacks_(stacks) {}

  void begin_dict() override { begin("{"); }
  void end_dict() override { end("}"); }
  void begin_list() override { begin("["); }
  void end_list() override { end("]"); }
  void key(std::string_view name) override {
    separate();
    file_.write(json_text(name));
    file_.write(": ");
    after_key_ = true;
  }
  void text(std::string_view text) override { write(json_text(text)); }
  void number(std::int64_t number) override { write(std::to_string(number)); }
  void real(double number) override { write(std::isfinite(number) ? nlohmann::json(number).dump() : "0.0"); }
  void truth(bool value) override { write(value ? "true" : "false"); }
  void pair(std::int64_t first, std::int64_t second) override {
    write("[" + std::to_string(first) + ", " + std::to_string(second) + "]");
  }
  void stack(trace::StackId id) override {
    const auto [known, is_new] = texts_.try_emplace(static_cast<std::uint32_t>(id));
    if (is_new) known->second = frames(id);
    write(known->second);
  }
  void finish() override { file_.write("\n"); }

 private:
  void begin(std::string_view bracket) {
    write(bracket);
    levels_.push_back(0);
  }
  void end(std::string_view bracket) {
    levels_.pop_back();
    file_.write(bracket);
  }
  void separate() {
    if (std::exchange(after_key_, false) || levels_.empty()) return;
    if (levels_.back()++ > 0) file_.write(levels_.size() < 4 ? ",\n" : ", ");
  }
  void write(std::string_view text) {
    separate();
    file_.write(text);
  }
  std::string frames(trace::StackId id) const {
    std::string text = "[";
    for (const trace::Frame& frame : stacks_[id]) {
      if (text.size() > 1) text += ", ";
      text += R"({"filename": )" + json_text(stacks_.names()[frame.file]);
      text += R"(, "line": )" + std::to_string(frame.line);
      text += R"(, "name": )" + json_text(stacks_.names()[frame.function]) + "}";
    }
    return text + "]";
  }

  AtomicFile& file_;
  const trace::StackTable& stacks_;
  std::vector<std::size_t> levels_;  ///< Items so far.
  bool after_key_ = false;
  std::unordered_map<std::uint32_t, std::string> texts_;  ///< Of stacks.
};
}  // namespace

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::unique_ptr<Emitter> pickle_emitter(AtomicFile& file, const trace::StackTable& stacks) {
  return std::make_unique<PickleEmitter>(file, stacks);
}

std::unique_ptr<Emitter> json_emitter(AtomicFile& file, const trace::StackTable& stacks) {
  return std::make_unique<JsonEmitter>(file, stacks);
}
}  // namespace cinch::snapshot::internal
