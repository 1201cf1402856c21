// The allocator's model against the constants and the settings' parser of the LibTorch that is here.

#include <c10/core/AllocatorConfig.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cinch/allocator/settings.h"
#include "cinch/core/error.h"

namespace cinch::allocator {
namespace {

namespace torch_allocator = c10::CachingAllocator;
using Config = torch_allocator::AcceleratorAllocatorConfig;

TEST(AllocatorConstants, AreLibTorchs) {
  EXPECT_EQ(static_cast<std::size_t>(kMinBlockSize), torch_allocator::kMinBlockSize);
  EXPECT_EQ(static_cast<std::size_t>(kSmallSize), torch_allocator::kSmallSize);
  EXPECT_EQ(static_cast<std::size_t>(kSmallSegment), torch_allocator::kSmallBuffer);
  EXPECT_EQ(static_cast<std::size_t>(kMinLargeAlloc), torch_allocator::kMinLargeAlloc);
  EXPECT_EQ(static_cast<std::size_t>(kRoundLarge), torch_allocator::kRoundLarge);
}

// LibTorch keeps some settings until they are set again.
void reset() {
  Config::instance().parseArgs("large_segment_size_mb:20,max_non_split_rounding_mb:20,expandable_segments:False");
}

/// What LibTorch makes of a text; nothing if it refuses it. Its configuration is the default one afterwards.
std::optional<Settings> as_libtorch(const std::string& conf) {
  std::optional<Settings> result;
  reset();
  try {
    Config::instance().parseArgs(conf);
    Settings settings;
    constexpr std::size_t kMost = std::numeric_limits<std::int64_t>::max() / kMiB * kMiB;
    if (Config::max_split_size() != std::numeric_limits<std::size_t>::max()) {
      settings.max_split_size = Bytes(static_cast<std::int64_t>(std::min(Config::max_split_size(), kMost)));
    }
    settings.large_segment_size = Bytes(static_cast<std::int64_t>(std::min(Config::large_segment_size(), kMost)));
    settings.max_non_split_rounding =
        Bytes(static_cast<std::int64_t>(std::min(Config::max_non_split_rounding_size(), kMost)));
    settings.garbage_collection_threshold = Config::garbage_collection_threshold();
    settings.expandable_segments = Config::use_expandable_segments();
    const auto& divisions = Config::roundup_power2_divisions();
    std::copy(divisions.begin(), divisions.end(), settings.roundup_power2_divisions.begin());
    result = settings;
  } catch (const std::exception&) {
    result = std::nullopt;
  }
  reset();
  return result;
}

std::optional<Settings> as_cinch(const std::string& conf) {
  try {
    return Settings::parse(conf);
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

std::string shown(const std::optional<Settings>& settings) {
  return settings ? "'" + settings->to_string() + "'" : "refused";
}

void expect_alike(const std::string& conf) {
  const auto libtorch = as_libtorch(conf), cinch = as_cinch(conf);
  EXPECT_TRUE(libtorch == cinch) << conf << ": LibTorch " << shown(libtorch) << ", cinch " << shown(cinch);
}

TEST(AllocatorConstants, DefaultsAreLibTorchs) { expect_alike(""); }

TEST(AllocatorSettings, AreReadAsLibTorchReadsThem) {
  for (const char* conf : {"max_split_size_mb:128",
                           "max_split_size_mb:128,",
                           "max_split_size_mb: 128 ",
                           "max_split_size_mb:1 28",
                           "max_split_size_mb:20",
                           "max_split_size_mb:19",
                           "max_split_size_mb:20.5",
                           "max_split_size_mb:-5",
                           "max_split_size_mb:17592186044416",
                           "max_split_size_mb:99999999999999999999999",
                           "max_split_size_mb:abc",
                           "max_split_size_mb",
                           "max_split_size_mb:",
                           "max_split_size_mb=128",
                           "max_split_size_mb:128,,",
                           "max_split_size_mb:30,large_segment_size_mb:40",
                           "max_split_size_mb:100,max_split_size_mb:200",
                           "large_segment_size_mb:10",
                           "large_segment_size_mb:11",
                           "large_segment_size_mb:64",
                           "large_segment_size_mb:100,max_non_split_rounding_mb:50",
                           "max_non_split_rounding_mb:21",
                           "garbage_collection_threshold:0.8",
                           "garbage_collection_threshold:0",
                           "garbage_collection_threshold:1",
                           "garbage_collection_threshold:nan",
                           "garbage_collection_threshold:0.8x",
                           "garbage_collection_threshold:abc",
                           "expandable_segments:True",
                           "expandable_segments:true",
                           "expandable_segments:False",
                           "expandable_segments:True max_split_size_mb:128",
                           "roundup_power2_divisions:4",
                           "roundup_power2_divisions:0",
                           "roundup_power2_divisions:1",
                           "roundup_power2_divisions:3",
                           "roundup_power2_divisions:4294967296",
                           "roundup_power2_divisions:[256:1,512:2,>:4]",
                           "roundup_power2_divisions:[64:8]",
                           "roundup_power2_divisions:[>:4]",
                           "roundup_power2_divisions:[1:2]",
                           "roundup_power2_divisions:[131072:2]",
                           "roundup_power2_divisions:[256:0,>:4]",
                           "roundup_power2_divisions:[256:3]",
                           "roundup_power2_divisions:[255:4]",
                           "roundup_power2_divisions:[]",
                           "roundup_power2_divisions:[256:4",
                           "roundup_power2_divisions:[256:4,]",
                           "roundup_power2_divisions:[256:4 512:8]",
                           "roundup_power2_divisions:[>:4,256:1]",
                           "roundup_power2_divisions:[512:2,256:1,>:4]"}) {
    expect_alike(conf);
  }
}

TEST(AllocatorSettings, AnyCombinationIsReadAlikeAndWrittenForLibTorch) {
  std::mt19937 random(3);
  const auto number = [&](unsigned below) { return std::to_string(random() % below); };
  for (int i = 0; i < 2000; ++i) {
    std::string conf;
    for (unsigned parts = 1 + random() % 4; parts > 0; --parts) {
      const std::vector<std::string> choices{
          "max_split_size_mb:" + number(200),
          "large_segment_size_mb:" + number(100),
          "max_non_split_rounding_mb:" + number(200),
          "garbage_collection_threshold:0." + number(10),
          std::string("expandable_segments:") + (random() % 2 == 0 ? "True" : "False"),
          "roundup_power2_divisions:" + std::to_string(1 << random() % 6),
          "roundup_power2_divisions:[" + std::to_string(1 << random() % 18) + ":" + std::to_string(1 << random() % 5) +
              "," + std::to_string(1 << random() % 18) + ":" + number(5) + ",>:" + std::to_string(1 << random() % 5) +
              "]"};
      conf += (conf.empty() ? "" : ",") + choices[random() % choices.size()];
    }
    expect_alike(conf);
    if (const auto settings = as_cinch(conf)) {
      EXPECT_TRUE(as_libtorch(settings->to_string()) == settings) << conf << " → " << settings->to_string();
    }
  }
}

// Requests are rounded with the divisions that LibTorch finds for them.
TEST(AllocatorSettings, DivisionsOfASizeAreLibTorchs) {
  const std::string conf = "roundup_power2_divisions:[1:1,2:2,4:4,8:8,16:16,32:32,64:64,128:128,256:1,512:2,>:4]";
  const Settings settings = Settings::parse(conf);
  Config::instance().parseArgs(conf);
  for (const std::uint64_t size :
       {std::uint64_t{1}, std::uint64_t{1} << 20, (std::uint64_t{1} << 21) - 1, std::uint64_t{1} << 21,
        (std::uint64_t{5} << 24) + 1, std::uint64_t{3} << 30, std::uint64_t{1} << 40}) {
    const std::size_t divisions = Config::roundup_power2_divisions(size);
    Settings uniform;
    uniform.roundup_power2_divisions.fill(divisions);
    EXPECT_EQ(rounded_size(size, settings), rounded_size(size, uniform)) << size;
  }
  reset();
}
}  // namespace
}  // namespace cinch::allocator
