#pragma once
// Call stacks, each kept once.

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cinch/trace/event.h"
#include "cinch/trace/sink.h"

namespace cinch::trace {

/// A line of a stack. Python's have a file ending in ".py"; C++'s often have "??" and line 0.
struct Frame {
  NameId file{}, function{};  ///< Of StackTable::names().
  std::uint32_t line = 0;
  friend bool operator==(const Frame&, const Frame&) = default;
};

/// Interned stacks, innermost frame first. Ids are dense from 0 and stay valid; 0 is the empty stack.
class StackTable {
 public:
  StackTable();
  NameTable& names() { return names_; }
  const NameTable& names() const { return names_; }

  StackId intern(std::span<const Frame> frames);
  std::span<const Frame> operator[](StackId id) const;
  std::size_t size() const { return begins_.size() - 1; }

 private:
  NameTable names_;
  std::vector<Frame> frames_;
  std::vector<std::size_t> begins_;                    ///< Of each stack in frames_, and the end.
  std::unordered_multimap<std::size_t, StackId> ids_;  ///< By hash.
};
}  // namespace cinch::trace
