#pragma once
// Orders in which a driver could give out addresses. Which of equally large blocks is taken depends on them.
//
//   for (const AddressOrder order : all_address_orders()) { auto addresses = make_addresses(order); ... }

#include <cstdint>
#include <memory>
#include <span>

#include "cinch/core/bytes.h"

namespace cinch::allocator {

/// What the driver is asked for. Recorded addresses make a replay exact; made-up ones, in several orders, an interval.
class AddressSource {
 public:
  virtual ~AddressSource() = default;
  /// Where the next segment (or the address range of an expandable one) of so many bytes begins. Not 0, a multiple of
  /// 2 MiB. If it overlaps what is reserved it is asked again.
  virtual std::uint64_t reserve(Bytes bytes) = 0;
  virtual void release(std::uint64_t address, Bytes bytes) = 0;
};

/// Upwards, none twice.
class FreshAddresses final : public AddressSource {
 public:
  std::uint64_t reserve(Bytes bytes) override;
  void release(std::uint64_t /*address*/, Bytes /*bytes*/) override {}

 private:
  std::uint64_t next_ = std::uint64_t{1} << 32;
};

enum class AddressOrder : std::uint8_t {
  kDriver,      ///< As CUDA's driver in recorded runs: downwards in ranges of 32 MiB, what is left of them first.
  kAscending,   ///< FreshAddresses.
  kDescending,  ///< Downwards, none twice.
  kShuffled1,   ///< Anywhere, by three seeds.
  kShuffled2,
  kShuffled3
};
std::span<const AddressOrder> all_address_orders();
std::unique_ptr<AddressSource> make_addresses(AddressOrder order);
}  // namespace cinch::allocator
