#include "cinch/allocator/addresses.h"

#include <array>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace cinch::allocator {
namespace {

constexpr std::uint64_t kGranule = 2u << 20;       // The driver's own for large allocations.
constexpr std::uint64_t kDriverRange = 32u << 20;  // It takes ranges of addresses of this size, or whole multiples.
constexpr std::uint64_t kTop = std::uint64_t{1} << 62;

std::uint64_t rounded(Bytes bytes, std::uint64_t granule) {
  return (static_cast<std::uint64_t>(bytes.count()) + granule - 1) / granule * granule;
}

class Descending final : public AddressSource {
 public:
  std::uint64_t reserve(Bytes bytes) override { return next_ -= rounded(bytes, kGranule); }
  void release(std::uint64_t /*address*/, Bytes /*bytes*/) override {}

 private:
  std::uint64_t next_ = kTop;
};

class Driver final : public AddressSource {
 public:
  std::uint64_t reserve(Bytes bytes) override {
    const std::uint64_t size = rounded(bytes, kGranule);
    const auto hole = by_size_.lower_bound({size, 0});
    if (hole != by_size_.end()) {
      const auto [room, address] = *hole;
      remove(address, room);
      if (room > size) add(address + size, room - size);
      return address;
    }
    const std::uint64_t range = rounded(bytes, kDriverRange);
    next_ -= range;
    if (range > size) add(next_ + size, range - size);
    return next_;
  }

  void release(std::uint64_t address, Bytes bytes) override {
    std::uint64_t size = rounded(bytes, kGranule);
    const auto after = holes_.find(address + size);
    if (after != holes_.end()) {
      size += after->second;
      remove(after->first, after->second);
    }
    const auto next = holes_.lower_bound(address);
    if (next != holes_.begin() && std::prev(next)->first + std::prev(next)->second == address) {
      const auto [before, room] = *std::prev(next);
      remove(before, room);
      address = before;
      size += room;
    }
    add(address, size);
  }

 private:
  void add(std::uint64_t address, std::uint64_t size) {
    holes_.emplace(address, size);
    by_size_.emplace(size, address);
  }
  void remove(std::uint64_t address, std::uint64_t size) {
    holes_.erase(address);
    by_size_.erase({size, address});
  }

  std::uint64_t next_ = kTop;
  std::map<std::uint64_t, std::uint64_t> holes_;               ///< Size by address.
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  ///< Size and address.
};

/// Upwards in one of many regions, which one by chance. A region holds whatever a machine's address range may ask for.
class Shuffled final : public AddressSource {
 public:
  explicit Shuffled(std::uint32_t seed) : random_(seed) {}
  std::uint64_t reserve(Bytes bytes) override {
    const std::uint64_t size = rounded(bytes, kGranule);
    std::size_t region = random_() % used_.size();
    while (kRegion - used_[region] < size) region = (region + 1) % used_.size();
    const std::uint64_t address = (region + 1) * kRegion + used_[region];
    used_[region] += size;
    return address;
  }
  void release(std::uint64_t /*address*/, Bytes /*bytes*/) override {}

 private:
  static constexpr std::uint64_t kRegion = std::uint64_t{1} << 52;
  std::mt19937 random_;
  std::array<std::uint64_t, 1024> used_{};
};
}  // namespace

std::uint64_t FreshAddresses::reserve(Bytes bytes) {
  const std::uint64_t address = next_;
  next_ += rounded(bytes, kGranule);
  return address;
}

std::span<const AddressOrder> all_address_orders() {
  static constexpr std::array kOrders{AddressOrder::kDriver,    AddressOrder::kAscending, AddressOrder::kDescending,
                                      AddressOrder::kShuffled1, AddressOrder::kShuffled2, AddressOrder::kShuffled3};
  return kOrders;
}

std::unique_ptr<AddressSource> make_addresses(AddressOrder order) {
  switch (order) {
    case AddressOrder::kDriver:
      return std::make_unique<Driver>();
    case AddressOrder::kAscending:
      return std::make_unique<FreshAddresses>();
    case AddressOrder::kDescending:
      return std::make_unique<Descending>();
    case AddressOrder::kShuffled1:
    case AddressOrder::kShuffled2:
    case AddressOrder::kShuffled3:
      break;
  }
  return std::make_unique<Shuffled>(static_cast<std::uint32_t>(order));
}
}  // namespace cinch::allocator
