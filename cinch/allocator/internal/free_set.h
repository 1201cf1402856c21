#pragma once
// Free blocks of one pool and stream, by size, then address.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cinch::allocator::internal {

struct FreeEntry {
  std::uint64_t size = 0, address = 0;
  std::uint32_t block = 0;  ///< Index of its node; not part of the order.
  friend std::strong_ordering operator<=>(const FreeEntry& left, const FreeEntry& right) {
    if (const auto order = left.size <=> right.size; order != 0) return order;
    return left.address <=> right.address;
  }
  friend bool operator==(const FreeEntry& left, const FreeEntry& right) { return (left <=> right) == 0; }
};

/// An ordered set as a list of short sorted runs: a search and a move of some hundred bytes for each change, which is
/// what a replay spends its time on; a red-black tree takes three times as long. O(log n + n / 64) a change.
class FreeSet {
 public:
  /// Where an entry stands, until the next change. Past the last one: end().
  struct Position {
    std::size_t run = 0, at = 0;
    friend bool operator==(const Position&, const Position&) = default;
  };

  bool empty() const { return runs_.empty(); }
  std::size_t size() const { return size_; }
  Position begin() const { return {}; }
  Position end() const { return {runs_.size(), 0}; }
  Position next(Position position) const;
  /// Not of begin().
  Position previous(Position position) const;
  const FreeEntry& operator[](Position position) const { return runs_[position.run][position.at]; }

  /// The first entry that is not before (size, address).
  Position lower_bound(std::uint64_t size, std::uint64_t address) const;
  void insert(const FreeEntry& entry);  ///< Not there yet.
  void erase(Position position);
  void erase(std::uint64_t size, std::uint64_t address);  ///< It is there.

 private:
  static constexpr std::size_t kLongest = 64;

  std::size_t run_for(const FreeEntry& key) const;

  std::vector<std::vector<FreeEntry>> runs_;  ///< None is empty.
  std::vector<FreeEntry> last_;               ///< Of each run: what a search looks at first.
  std::size_t size_ = 0;
};
}  // namespace cinch::allocator::internal
