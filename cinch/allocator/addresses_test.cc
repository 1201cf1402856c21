#include "cinch/allocator/addresses.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace cinch::allocator {
namespace {

using namespace cinch::literals;

TEST(Addresses, NeverOverlapInAnyOrder) {
  for (const AddressOrder order : all_address_orders()) {
    const auto addresses = make_addresses(order);
    std::mt19937 random(7);
    std::map<std::uint64_t, Bytes> taken;
    for (int i = 0; i < 3000; ++i) {
      if (!taken.empty() && random() % 3 == 0) {
        const auto gone = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
        addresses->release(gone->first, gone->second);
        taken.erase(gone);
        continue;
      }
      const Bytes bytes(static_cast<std::int64_t>(1 + random() % 50) * (2 << 20));
      const std::uint64_t address = addresses->reserve(bytes);
      ASSERT_NE(address, 0u);
      ASSERT_EQ(address % (2 << 20), 0u);
      const auto after = taken.lower_bound(address);
      ASSERT_TRUE(after == taken.end() || address + static_cast<std::uint64_t>(bytes.count()) <= after->first);
      if (after != taken.begin()) {
        const auto& [before, size] = *std::prev(after);
        ASSERT_LE(before + static_cast<std::uint64_t>(size.count()), address);
      }
      taken.emplace(address, bytes);
    }
  }
}

// In recorded runs 20 MiB leave 12 MiB of a range of 32, which the next 10 MiB go to.
TEST(Addresses, TheDriverFillsWhatIsLeftOfARange) {
  const auto addresses = make_addresses(AddressOrder::kDriver);
  const std::uint64_t first = addresses->reserve(20_MiB), second = addresses->reserve(20_MiB);
  EXPECT_EQ(second, first - (32u << 20));
  const std::uint64_t filler = addresses->reserve(10_MiB);
  EXPECT_EQ(filler, second + (20u << 20));
  addresses->release(second, 20_MiB);
  addresses->release(filler, 10_MiB);
  EXPECT_EQ(addresses->reserve(32_MiB), second);  // One hole again.
}
}  // namespace
}  // namespace cinch::allocator
