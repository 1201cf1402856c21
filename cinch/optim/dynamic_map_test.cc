#include "cinch/optim/internal/dynamic_map.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>

namespace cinch::optim::internal {
namespace {

bool same_but_for_a_unit(float a, float b) { return a == b || std::nextafter(a, b) == b; }

/// What bitsandbytes 0.50, create_dynamic_map(signed), gives.
TEST(DynamicMap, HasThePublishedValues) {
  const auto& first = DynamicMap::of_first_moment().values();
  EXPECT_TRUE(same_but_for_a_unit(first[0], -0.992968738079071F));
  EXPECT_TRUE(same_but_for_a_unit(first[1], -0.9789062738418579F));
  EXPECT_TRUE(same_but_for_a_unit(first[126], -5.500000384017767e-07F));
  EXPECT_EQ(first[127], 0);
  EXPECT_TRUE(same_but_for_a_unit(first[128], 5.500000384017767e-07F));
  EXPECT_TRUE(same_but_for_a_unit(first[129], 3.250000190746505e-06F));
  EXPECT_TRUE(same_but_for_a_unit(first[191], 0.10703125596046448F));
  EXPECT_TRUE(same_but_for_a_unit(first[254], 0.992968738079071F));
  EXPECT_EQ(first[255], 1);
  const auto& second = DynamicMap::of_second_moment().values();
  EXPECT_EQ(second[0], 0);
  EXPECT_TRUE(same_but_for_a_unit(second[1], 3.2500003044333425e-07F));
  EXPECT_TRUE(same_but_for_a_unit(second[128], 0.11054687201976776F));
  EXPECT_TRUE(same_but_for_a_unit(second[191], 0.5535156726837158F));
  EXPECT_TRUE(same_but_for_a_unit(second[254], 0.9964843988418579F));
  EXPECT_EQ(second[255], 1);
  double sum = 0;
  for (const float value : second) sum += value;
  EXPECT_NEAR(sum, 75.1052632433869, 1e-5);
}

TEST(DynamicMap, IsSortedAndTheFirstOneSymmetric) {
  for (const auto* map : {&DynamicMap::of_first_moment(), &DynamicMap::of_second_moment()}) {
    EXPECT_EQ(map->values()[map->zero()], 0);
    for (int i = 1; i < 256; ++i) EXPECT_LT(map->values()[i - 1], map->values()[i]);
  }
  const auto& values = DynamicMap::of_first_moment().values();
  for (int i = 1; i <= 127; ++i) EXPECT_EQ(values[127 - i], -values[127 + i]);
}

void expect_nearest(const DynamicMap& map, float x) {
  const double x_exact = x;
  double least = 2;
  for (const float value : map.values()) least = std::min(least, std::abs(x_exact - static_cast<double>(value)));
  const std::uint8_t code = map.nearest(x);
  ASSERT_EQ(std::abs(x_exact - static_cast<double>(map.values()[code])), least) << x << " got code " << int{code};
}

TEST(DynamicMap, RoundsToTheNearestExactly) {
  for (const bool with_sign : {true, false}) {
    const auto& map = with_sign ? DynamicMap::of_first_moment() : DynamicMap::of_second_moment();
    const auto both = [&](float x) {
      expect_nearest(map, x);
      if (with_sign) expect_nearest(map, -x);
    };
    // Each bucket of the table: its ends and its middle.
    for (std::uint32_t bucket = 0; bucket < DynamicMap::kLastBucket; ++bucket) {
      for (const std::uint32_t rest : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0xffffu}) {
        both(std::bit_cast<float>((bucket << 16) | rest));
      }
    }
    both(1);
    // Each boundary between two values, and what lies close to it.
    for (int i = map.zero(); i < 255; ++i) {
      float x = static_cast<float>((static_cast<double>(map.values()[i]) + map.values()[i + 1]) / 2);
      for (int k = 0; k < 4; ++k) x = std::nextafter(x, 0.0F);
      for (int k = 0; k < 9; ++k, x = std::nextafter(x, 1.0F)) both(x);
    }
    std::mt19937 random(7);
    std::uniform_real_distribution<float> exponent(-8, 0);
    for (int i = 0; i < 20000; ++i) both(std::pow(10.0F, exponent(random)));
  }
}

TEST(DynamicMap, GivesEveryValueItsOwnCode) {
  for (const auto* map : {&DynamicMap::of_first_moment(), &DynamicMap::of_second_moment()}) {
    for (int code = 0; code < 256; ++code) EXPECT_EQ(map->nearest(map->values()[code]), code);
  }
}

/// Whatever a damaged state holds must not lead outside the table.
TEST(DynamicMap, AnyBitsHaveACode) {
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 0x1001) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    EXPECT_LE(DynamicMap::rank(DynamicMap::of_second_moment().ranks(), x), 255u);
    EXPECT_LE(DynamicMap::rank(DynamicMap::of_first_moment().ranks(), x), 128u);
  }
}
}  // namespace
}  // namespace cinch::optim::internal
