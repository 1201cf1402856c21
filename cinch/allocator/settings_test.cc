#include "cinch/allocator/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"

namespace cinch::allocator {
namespace {

using namespace cinch::literals;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Settings, ReadAsPyTorchReadsThem) {
  const Settings settings = Settings::parse(
      "max_split_size_mb:128, expandable_segments:True,garbage_collection_threshold:0.8,large_segment_size_mb:64,"
      "max_non_split_rounding_mb:100,per_process_memory_fraction:0.5,backend:native,pinned_use_background_threads:"
      "True,");
  EXPECT_EQ(settings.max_split_size, 128_MiB);
  EXPECT_TRUE(settings.expandable_segments);
  EXPECT_EQ(settings.garbage_collection_threshold, 0.8);
  EXPECT_EQ(settings.large_segment_size, 64_MiB);
  EXPECT_EQ(settings.max_non_split_rounding, 100_MiB);
  EXPECT_EQ(settings.memory_fraction, 0.5);
  EXPECT_EQ(Settings::parse(""), Settings());
  EXPECT_EQ(Settings::parse("max_split_size_mb:20.5").max_split_size, 20_MiB);
  EXPECT_EQ(Settings::parse("max_split_size_mb:100,max_split_size_mb:200").max_split_size, 200_MiB);
}

TEST(Settings, RoundingFollowsTheLargeSegments) {
  EXPECT_EQ(Settings::parse("large_segment_size_mb:64").max_non_split_rounding, 64_MiB);
  EXPECT_THROW(Settings::parse("max_split_size_mb:30,large_segment_size_mb:40"), UsageError);  // Whatever the order.
}

TEST(Settings, DivisionsInAllTheirForms) {
  const auto slots = [](const char* value) {
    return Settings::parse(std::string("roundup_power2_divisions:") + value).roundup_power2_divisions;
  };
  EXPECT_THAT(slots("4"), Each(4));
  EXPECT_THAT(slots("[256:1,512:2,>:4]"), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(slots("[64:8]"), ElementsAre(8, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(slots("[>:4]"), ElementsAre(0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(slots("[>:4,256:1]"), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(slots("[65536:2,]"), Each(2));
  EXPECT_THAT(slots("[]"), Each(0));
}

TEST(Settings, WrittenAndReadAgain) {
  for (const char* conf :
       {"", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:4",
        "roundup_power2_divisions:[256:1,512:2,>:4]", "roundup_power2_divisions:[64:8,>:0]",
        "roundup_power2_divisions:[1:2,2:4,4:2,8:4,>:16]", "garbage_collection_threshold:0.6",
        "large_segment_size_mb:64", "large_segment_size_mb:64,max_non_split_rounding_mb:100",
        "per_process_memory_fraction:0.25",
        "max_split_size_mb:128,roundup_power2_divisions:[1:0,>:8],garbage_collection_threshold:0.9"}) {
    const Settings settings = Settings::parse(conf);
    EXPECT_EQ(Settings::parse(settings.to_string()), settings) << conf << " → " << settings.to_string();
  }
  EXPECT_EQ(Settings().to_string(), "");
  EXPECT_EQ(Settings::parse("max_split_size_mb:128,expandable_segments:True").to_string(),
            "expandable_segments:True,max_split_size_mb:128");
}

struct BadConf {
  const char* conf;
  const char* problem;
  const char* hint;
};

class SettingsErrors : public testing::TestWithParam<BadConf> {};

TEST_P(SettingsErrors, NameTheKeyAndWhatItMayBe) {
  try {
    Settings::parse(GetParam().conf);
    FAIL() << GetParam().conf;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().problem));
    EXPECT_THAT(error.hint(), HasSubstr(GetParam().hint));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SettingsErrors,
    testing::Values(BadConf{"max_split_size_mb:19", "max_split_size_mb: 19 is too small", "The least is 20"},
                    BadConf{"max_split_size:128", "unknown key 'max_split_size'", "Did you mean max_split_size_mb?"},
                    BadConf{"expandable_segment:True", "unknown key 'expandable_segment'",
                            "Did you mean expandable_segments?"},
                    BadConf{"color:red", "unknown key 'color'", "Keys are max_split_size_mb, "},
                    BadConf{"expandable_segments:true", "expected True or False, not 'true'", ""},
                    BadConf{"max_split_size_mb=128", "expected KEY:VALUE, not 'max_split_size_mb=128'", "look like"},
                    BadConf{"max_split_size_mb:", "expected KEY:VALUE", "look like"},
                    BadConf{"max_split_size_mb:128,,expandable_segments:True", "expected KEY:VALUE, not ''", ""},
                    BadConf{"max_split_size_mb:abc", "expected a whole number, not 'abc'", ""},
                    BadConf{"max_split_size_mb:99999999999999999999999", "past 64 bits", ""},
                    BadConf{"garbage_collection_threshold:1", "'1' is not between 0 and 1", ""},
                    BadConf{"garbage_collection_threshold:nan", "'nan' is not between 0 and 1", ""},
                    BadConf{"per_process_memory_fraction:1.5", "'1.5' is not from 0 to 1", ""},
                    BadConf{"large_segment_size_mb:10", "10 is too small", "The least is 11"},
                    BadConf{"roundup_power2_divisions:3", "must be a power of 2, not '3'", ""},
                    BadConf{"roundup_power2_divisions:0", "must be a power of 2, not '0'", ""},
                    BadConf{"roundup_power2_divisions:[255:4]", "'255' MiB is no power of 2", ""},
                    BadConf{"roundup_power2_divisions:[256:4", "no closing bracket", "looks like"},
                    BadConf{"roundup_power2_divisions:[256]", "expected MIB:DIVISIONS, not '256'", ""},
                    BadConf{"backend:cudaMallocAsync", "keeps no cache", "Leave it out"},
                    BadConf{"backend:jemalloc", "expected native or cudaMallocAsync", ""}));

TEST(RoundedSize, ToMultiplesOf512OrSharesOfAPowerOfTwo) {
  const Settings plain;
  EXPECT_EQ(rounded_size(1, plain), 512u);
  EXPECT_EQ(rounded_size(512, plain), 512u);
  EXPECT_EQ(rounded_size(513, plain), 1024u);
  EXPECT_EQ(rounded_size(1 << 20, plain), 1u << 20);
  // PyTorch's own example: 1200 B with 4 divisions lies between 1024 and 2048, whose quarters are 256 B.
  Settings quarters;
  quarters.roundup_power2_divisions.fill(4);
  EXPECT_EQ(rounded_size(1200, quarters), 1536u);  // Not over 512 × 4: to 512.
  EXPECT_EQ(rounded_size(2049, quarters), 2560u);
  EXPECT_EQ(rounded_size(4096, quarters), 4096u);
  EXPECT_EQ(rounded_size((5 << 20) + 1, quarters), 6u << 20);
  Settings by_size = Settings::parse("roundup_power2_divisions:[2:1,4:2,>:4]");
  EXPECT_EQ(rounded_size((3 << 20) + 1, by_size), (3u << 20) + 512);  // Slot 1: off.
  EXPECT_EQ(rounded_size((5 << 20) + 1, by_size), 6u << 20);          // Slot 2: halves of 4 MiB.
  EXPECT_EQ(rounded_size((9 << 20) + 1, by_size), 10u << 20);         // Slot 3: quarters of 8 MiB.
  Settings absurd;
  absurd.roundup_power2_divisions.fill(std::uint64_t{1} << 40);
  EXPECT_EQ(rounded_size(5000, absurd), 5120u);
}
}  // namespace
}  // namespace cinch::allocator
