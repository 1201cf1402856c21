#include "cinch/trace/address_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace cinch::trace {
namespace {

TEST(AddressMap, IsAMap) {
  std::mt19937_64 random(2);
  AddressMap<std::uint32_t> map;
  std::map<std::uint64_t, std::uint32_t> plain;
  const auto any_address = [&] {
    const int shifts[] = {0, 9, 21, 40};
    return random() % 500 << shifts[random() % 4];
  };
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    const std::uint64_t address = any_address();
    if (random() % 2 == 0) {
      map[address] = i;
      plain[address] = i;
    } else {
      map.erase(address);
      plain.erase(address);
    }
    ASSERT_EQ(map.size(), plain.size());
    const std::uint64_t other = any_address();
    const auto wanted = plain.find(other);
    const std::uint32_t* found = map.find(other);
    ASSERT_EQ(found != nullptr, wanted != plain.end());
    if (found != nullptr) {
      ASSERT_EQ(*found, wanted->second);
    }
  }
  std::size_t visited = 0;
  map.for_each([&](std::uint64_t address, std::uint32_t value) {
    ++visited;
    EXPECT_EQ(plain.at(address), value);
  });
  EXPECT_EQ(visited, plain.size());
}
}  // namespace
}  // namespace cinch::trace
