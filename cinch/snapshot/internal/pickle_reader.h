#pragma once
// The opcodes of a pickle.

#include <array>
#include <cstdint>
#include <string_view>

#include "cinch/snapshot/internal/pickle_machine.h"

namespace cinch::snapshot::internal {

class PickleReader final : private Machine {
 public:
  using Machine::Machine;
  void run();

 private:
  // Arguments.
  void need(std::size_t bytes);
  std::uint64_t number(std::size_t bytes);
  std::string_view raw(std::uint64_t bytes);
  std::string_view line();
  void skip(std::uint64_t bytes);
  Value integer(std::uint64_t bytes);
  static Value decimal(std::string_view text);

  // Families of opcodes; false for one of another family.
  bool constant(std::uint8_t opcode);
  bool text(std::uint8_t opcode);
  bool memo(std::uint8_t opcode);
  bool structure(std::uint8_t opcode);

  void push_text(std::string_view text);
  std::uint32_t intern(const char* data, std::size_t size);
  void tuple(std::size_t size);
  void append_marked(Value list, std::size_t from);
  Value& below(std::size_t position);
  void finish_dict();

  // pickle_event.cc: a whole event at once, without stack and containers, if it is written as recorders write it.
  // False, and nothing changed, for anything else.
  bool try_event();
  struct Scan;
  bool scan_event(Scan& scan);
  bool scan_key(Scan& scan, std::size_t position, Key& key);
  bool scan_value(Scan& scan, Key key);
  bool scan_frames(Scan& scan, Key key);
  bool scan_text(Scan& scan, std::uint32_t& text);
  bool scan_memo(Scan& scan, Ref ref);
  bool scan_get(Scan& scan, Ref& ref) const;
  bool set_stack(Scan& scan, Key key, std::uint32_t stack);
  bool set_text(Scan& scan, Key key, std::uint32_t text);
  bool set_number(Scan& scan, Key key, std::int64_t number);

  // pickle_content.cc: from the value at the end to the recording.
  struct Fields;
  void content(Value top);
  Fields fields_of(Value dict);
  template <class Each>
  void for_each(Value list, const char* what, const Each& each);
  void segment(Value value);
  void trace(Value value, std::size_t device);
  void annotation(Value value);
  void settings(Value value);
  std::string_view text_of(Value value, const char* what) const;

  /// How the event before wrote its key at some position: a read of the memo, as `length` bytes. Memo slots keep their
  /// texts: who overwrites one makes us forget.
  struct ExpectedKey {
    std::uint64_t code = 1, mask = 0;  ///< Matches nothing.
    std::uint8_t length = 0;
    Key key{};
  };
  std::array<ExpectedKey, 16> expected_;
};
}  // namespace cinch::snapshot::internal
