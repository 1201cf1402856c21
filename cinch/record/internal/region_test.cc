#include "cinch/record/internal/region.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace cinch::record::internal {
namespace {
constexpr std::size_t kPage = 4096;

TEST(Region, GivesWhatIsAskedWhereItIsAsked) {
  Region region(10 * kPage);
  auto* first = static_cast<char*>(region.claim(0, 100));
  auto* second = static_cast<char*>(region.claim(128, 64));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(second, first + 128);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % kPage, 0u);
}

TEST(Region, RefusesEveryOverlap) {
  Region region(10 * kPage);
  void* taken = region.claim(1000, 500);
  for (const auto& [offset, bytes] : {std::pair<std::size_t, std::size_t>{1000, 500},
                                      {999, 2},
                                      {1499, 1},
                                      {1200, 10},
                                      {0, kPage},
                                      {0, 1001},
                                      {1499, 5000}})
    EXPECT_EQ(region.claim(offset, bytes), nullptr) << offset << " + " << bytes;
  EXPECT_NE(region.claim(0, 1000), nullptr);
  EXPECT_NE(region.claim(1500, 1), nullptr);
  region.release(taken);
  EXPECT_NE(region.claim(1200, 300), nullptr);
  EXPECT_EQ(region.claim(1000, 500), nullptr);
}

TEST(Region, RefusesWhatLiesOutside) {
  Region region(kPage);
  ASSERT_EQ(region.size(), kPage);
  EXPECT_EQ(region.claim(0, kPage + 1), nullptr);
  EXPECT_EQ(region.claim(kPage, 1), nullptr);
  EXPECT_EQ(region.claim(kPage + 1, 1), nullptr);
  EXPECT_EQ(region.claim(64, SIZE_MAX), nullptr);
  EXPECT_EQ(region.claim(0, 0), nullptr);
  EXPECT_NE(region.claim(0, kPage), nullptr);
}

TEST(Region, BeginsOnAHugePageIfItHoldsOne) {
  Region region((5u << 20) + 1);
  EXPECT_EQ(region.size(), (5u << 20) + kPage);
  auto* begin = static_cast<char*>(region.claim(0, region.size()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % (2u << 20), 0u);
  std::memset(begin, 7, region.size());
  EXPECT_EQ(begin[region.size() - 1], 7);
}

TEST(Region, GivesBackThePagesThatAreNotTaken) {
  Region region(10 * kPage);
  auto* all = static_cast<char*>(region.claim(0, 10 * kPage));
  std::memset(all, 1, 10 * kPage);
  region.release(all);
  auto* kept = static_cast<char*>(region.claim(kPage + 100, kPage));  // Reaches into two pages.
  region.give_back();
  EXPECT_EQ(region.held(), 2 * kPage);
  EXPECT_EQ(kept[0], 1);
  EXPECT_EQ(kept[kPage - 1], 1);
  EXPECT_EQ(all[0], 0);
  EXPECT_EQ(all[5 * kPage], 0);
  region.release(kept);
  EXPECT_TRUE(region.idle());
  region.give_back();
  EXPECT_EQ(region.held(), 0u);
  region.hold();
  EXPECT_EQ(region.held(), 10 * kPage);
}
}  // namespace
}  // namespace cinch::record::internal
