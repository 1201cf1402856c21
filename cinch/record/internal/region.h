#pragma once
// Memory of its own, in huge pages where the system has them, and which parts of it are taken.

#include <cstddef>
#include <map>

namespace cinch::record::internal {

/// Not thread-safe.
class Region {
 public:
  /// Maps at least `bytes` > 0, in whole pages; the system gives each when it is first written. Throws std::bad_alloc.
  explicit Region(std::size_t bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// The `bytes` from `offset` on, taken; nullptr if one of them is taken already or lies outside.
  void* claim(std::size_t offset, std::size_t bytes);
  /// `block`: what claim() gave.
  void release(void* block) noexcept;
  bool idle() const noexcept { return taken_.empty(); }
  std::size_t size() const noexcept { return size_; }
  /// Bytes of the system's that are spoken for: all, but after give_back() those of the pages that are taken.
  std::size_t held() const noexcept { return held_; }
  /// The system may have the pages that are not taken for something else; they come back, as zeros, when written.
  void give_back() noexcept;
  /// They are about to be written again.
  void hold() noexcept { held_ = size_; }

 private:
  std::size_t size_, held_;
  char* begin_;
  std::map<std::size_t, std::size_t> taken_;  ///< First byte and the one after the last.
};
}  // namespace cinch::record::internal
