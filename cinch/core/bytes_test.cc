#include "cinch/core/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cinch/core/error.h"

namespace cinch {
namespace {
using namespace literals;
using testing::HasSubstr;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

TEST(BytesParse, ReadsEveryUnit) {
  EXPECT_EQ(Bytes::parse("1024").count(), 1024);
  EXPECT_EQ(Bytes::parse("7B").count(), 7);
  EXPECT_EQ(Bytes::parse("2 KiB").count(), 2048);
  EXPECT_EQ(Bytes::parse("3MiB").count(), 3 << 20);
  EXPECT_EQ(Bytes::parse("1TiB").count(), std::int64_t{1} << 40);
  EXPECT_EQ(Bytes::parse("1kB").count(), 1'000);
  EXPECT_EQ(Bytes::parse("1KB").count(), 1'000);
  EXPECT_EQ(Bytes::parse("500MB").count(), 500'000'000);
  EXPECT_EQ(Bytes::parse("2GB").count(), 2'000'000'000);
  EXPECT_EQ(Bytes::parse("1TB").count(), 1'000'000'000'000);
  EXPECT_EQ(Bytes::parse("  4 GiB \n"), 4_GiB);
  EXPECT_EQ(Bytes::parse("0"), 0_B);
}

TEST(BytesParse, FractionsAreExactAndRoundDown) {
  EXPECT_EQ(Bytes::parse("1.5GiB").count(), 1'610'612'736);
  EXPECT_EQ(Bytes::parse("0.1KiB").count(), 102);  // 102.4
  EXPECT_EQ(Bytes::parse("1.9").count(), 1);
  // One byte is 2^-40 TiB, forty digits long: no floating-point number in between may lose it.
  EXPECT_EQ(Bytes::parse("0.0000000000009094947017729282379150390625TiB").count(), 1);
  EXPECT_EQ(Bytes::parse("0.0000000000009094947017729282379150390624TiB").count(), 0);
}

TEST(BytesParse, GoesToTheLargestNumberAndNoFurther) {
  EXPECT_EQ(Bytes::parse("9223372036854775807").count(), kMost);
  EXPECT_THROW(Bytes::parse("9223372036854775808"), UsageError);
  EXPECT_THROW(Bytes::parse("8388608TiB"), UsageError);
  EXPECT_EQ(Bytes::parse("8388607.9TiB").count(), (std::int64_t{8388607} << 40) + 989'560'464'998);
}

TEST(BytesParse, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "-1", "+1", "12XB", "nan", "inf", "1e999GiB", "1e3", "1.GiB", ".5GiB", "1.5.5GiB",
                           "GiB", "1gib", "0x10", "1,000", "99999999999999999999TiB", "1 2"}) {
    try {
      Bytes::parse(text);
      ADD_FAILURE() << text << " was read";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("\"" + std::string(text) + "\""));
      EXPECT_THAT(error.hint(), HasSubstr("1.5GiB"));
    }
  }
}

TEST(Bytes, ArithmeticIsExactOrThrows) {
  EXPECT_EQ(Bytes(5) + Bytes(7), 12_B);
  EXPECT_EQ(Bytes(5) - Bytes(7), Bytes(-2));
  EXPECT_EQ(3_KiB * 4, 12_KiB);
  Bytes sum = 1_MiB;
  sum += 1_KiB;
  sum -= 1_MiB;
  EXPECT_EQ(sum, 1_KiB);
  EXPECT_THROW(Bytes(kMost) + Bytes(1), OverflowError);
  EXPECT_THROW(Bytes(kLeast) - Bytes(1), OverflowError);
  EXPECT_THROW(Bytes(kMost / 2 + 1) * 2, OverflowError);
  EXPECT_LT(1_MiB, 1_GiB);
}

TEST(BytesToString, HasThreeDigitsInBinaryUnits) {
  EXPECT_EQ(to_string(Bytes(0)), "0 B");
  EXPECT_EQ(to_string(Bytes(1023)), "1023 B");
  EXPECT_EQ(to_string(1_KiB), "1.00 KiB");
  EXPECT_EQ(to_string(1536_MiB), "1.50 GiB");
  EXPECT_EQ(to_string(Bytes(26'424'115)), "25.2 MiB");
  EXPECT_EQ(to_string(120_GiB), "120 GiB");
  EXPECT_EQ(to_string(Bytes(-1536)), "-1.50 KiB");
}

TEST(BytesToString, RoundsIntoTheNextDigitOrUnit) {
  EXPECT_EQ(to_string(Bytes(10'239)), "10.0 KiB");         // 9.999
  EXPECT_EQ(to_string(Bytes(102'399)), "100 KiB");         // 99.999
  EXPECT_EQ(to_string(Bytes((1 << 20) - 1)), "1.00 MiB");  // 1023.999
  EXPECT_EQ(to_string(Bytes(kMost)), "8388608 TiB");
}
}  // namespace
}  // namespace cinch
