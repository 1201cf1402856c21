#include "cinch/trace/stacks.h"

#include <algorithm>

namespace cinch::trace {
namespace {
std::size_t hash_of(std::span<const Frame> frames) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over 64-bit words
  const auto add = [&](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3; };
  for (const Frame& frame : frames) {
    add(static_cast<std::uint64_t>(frame.file) << 32 | static_cast<std::uint64_t>(frame.function));
    add(frame.line);
  }
  return hash;
}
}  // namespace

StackTable::StackTable() : begins_{0} { intern({}); }

StackId StackTable::intern(std::span<const Frame> frames) {
  const std::size_t hash = hash_of(frames);
  const auto [first, last] = ids_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    if (std::ranges::equal((*this)[known->second], frames)) return known->second;
  }
  const StackId id{static_cast<std::uint32_t>(size())};
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  begins_.push_back(frames_.size());
  ids_.emplace(hash, id);
  return id;
}

std::span<const Frame> StackTable::operator[](StackId id) const {
  const auto index = static_cast<std::size_t>(id);
  return std::span(frames_).subspan(begins_.at(index), begins_.at(index + 1) - begins_[index]);
}
}  // namespace cinch::trace
