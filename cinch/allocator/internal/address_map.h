#pragma once
// Block of an address: a hash table with open addressing and linear probing.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cinch::allocator::internal {

/// Addresses are not 0.
class AddressMap {
 public:
  std::optional<std::uint32_t> find(std::uint64_t address) const {
    if (slots_.empty()) return std::nullopt;
    const Slot& slot = slots_[place_of(address)];
    return slot.address == address ? std::optional(slot.block) : std::nullopt;
  }

  void set(std::uint64_t address, std::uint32_t block) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place_of(address)];
    if (slot.address == 0) ++used_;
    slot = {address, block};
  }

  void erase(std::uint64_t address) {
    if (slots_.empty()) return;
    std::size_t hole = place_of(address);
    if (slots_[hole].address != address) return;
    --used_;
    // What follows without a gap moves up if it may stand there.
    for (std::size_t at = next(hole); slots_[at].address != 0; at = next(at)) {
      const std::size_t home = start_of(slots_[at].address);
      if (((at - home) & (slots_.size() - 1)) < ((at - hole) & (slots_.size() - 1))) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
  }

 private:
  struct Slot {
    std::uint64_t address = 0;
    std::uint32_t block = 0;
  };

  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  std::size_t start_of(std::uint64_t address) const {
    return static_cast<std::size_t>((address >> 9) * 0x9e3779b97f4a7c15u >> 20) & (slots_.size() - 1);
  }
  std::size_t place_of(std::uint64_t address) const {
    std::size_t at = start_of(address);
    while (slots_[at].address != 0 && slots_[at].address != address) at = next(at);
    return at;
  }
  void grow() {
    std::vector<Slot> before(slots_.empty() ? 64 : slots_.size() * 2);
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.address != 0) slots_[place_of(slot.address)] = slot;
    }
  }

  std::vector<Slot> slots_;  ///< A power of 2 of them, at most half of them used.
  std::size_t used_ = 0;
};
}  // namespace cinch::allocator::internal
