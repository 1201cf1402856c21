#pragma once
// A hash table from addresses to small values: the inner loop of everything that follows a trace.
//
//   AddressMap<AllocationId> live;
//   live[event.address] = event.allocation;  ...  if (AllocationId* id = live.find(address)) live.erase(address);

#include <cstdint>
#include <utility>
#include <vector>

#include "cinch/core/seeded_hash.h"

namespace cinch::trace {

/// Open addressing with linear probing; addresses below 2^64 - 1. Value is cheap to copy.
template <class Value>
class AddressMap {
 public:
  AddressMap() : slots_(kFirstSlots) {}

  std::size_t size() const { return size_; }
  /// Null if there is none. Valid until the next insertion or removal.
  Value* find(std::uint64_t address) {
    for (std::size_t at = home(address);; at = next(at)) {
      if (slots_[at].key == address + 1) return &slots_[at].value;
      if (slots_[at].key == 0) return nullptr;
    }
  }
  /// The value there, made if there is none.
  Value& operator[](std::uint64_t address) {
    if (2 * size_ >= slots_.size()) grow();
    for (std::size_t at = home(address);; at = next(at)) {
      if (slots_[at].key == address + 1) return slots_[at].value;
      if (slots_[at].key != 0) continue;
      slots_[at].key = address + 1;
      ++size_;
      return slots_[at].value;
    }
  }
  void erase(std::uint64_t address) {
    std::size_t hole = home(address);
    for (; slots_[hole].key != address + 1; hole = next(hole)) {
      if (slots_[hole].key == 0) return;
    }
    --size_;
    for (std::size_t at = next(hole); slots_[at].key != 0; at = next(at)) {  // Closes the gap: no tombstones.
      const std::size_t wanted = home(slots_[at].key - 1);
      if (((at - wanted) & (slots_.size() - 1)) >= ((at - hole) & (slots_.size() - 1))) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = Slot{};
  }
  /// Calls `visit(address, value)` for each, in no order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key != 0) visit(slot.key - 1, slot.value);
    }
  }

 private:
  static constexpr std::size_t kFirstSlots = 1u << 10;
  struct Slot {
    std::uint64_t key = 0;  ///< Address + 1; 0 is free.
    Value value{};
  };

  std::size_t home(std::uint64_t address) const { return mix_hash(address, 0) & (slots_.size() - 1); }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key == 0) continue;
      std::size_t at = home(slot.key - 1);
      while (slots_[at].key != 0) at = next(at);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};
}  // namespace cinch::trace
