// The program twice: the second time no kernel runs, and it says the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "cinch/core/text.h"

namespace cinch::tests {
namespace {
namespace fs = std::filesystem;

constexpr char kJob[] = R"(
[model]
kind = "unet"
classes = 3
base_channels = 8
levels = 2
image_size = 32
[data]
kind = "synthetic"
[train]
batch_size = 6
steps = 2
learning_rate = 1e-3
optimizer = "adamw"
)";

class Program : public testing::Test {
 protected:
  Program() {
    std::string pattern = (fs::temp_directory_path() / "cinch-twice-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ / "job.toml") << kJob;
  }
  ~Program() override { fs::remove_all(folder_); }

  /// But for the time it took.
  nlohmann::json estimate(const std::string& environment) const {
    const std::string command = environment + " " CINCH_PROGRAM " estimate --json --threads 2 -q " +
                                shell_word((folder_ / "job.toml").string()) + " > " +
                                shell_word((folder_ / "out").string());
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    auto document = nlohmann::json::parse(read_file(folder_ / "out"));
    document.erase("elapsed_seconds");
    return document;
  }

  fs::path folder_;
};

TEST_F(Program, SaysTheSameFromTheCache) {
  const std::string cache = "CINCH_CACHE_DIR=" + shell_word((folder_ / "cache").string());
  const auto first = estimate(cache);
  ASSERT_EQ(std::distance(fs::directory_iterator(folder_ / "cache"), {}), 1);
  const auto file = fs::directory_iterator(folder_ / "cache")->path();
  const auto written = fs::last_write_time(file) - std::chrono::hours(1);
  fs::last_write_time(file, written);
  const auto second = estimate(cache);
  EXPECT_EQ(fs::last_write_time(file), written);  // There was nothing new.
  EXPECT_EQ(second, first);
  EXPECT_EQ(estimate("CINCH_CACHE_DIR="), first);
  EXPECT_GT(first.at("peak").at("requested_bytes"), 0);
}

TEST_F(Program, KeepsItInTheUsersCacheUnlessTold) {
  const std::string home = "HOME=" + shell_word(folder_.string());
  estimate("env -u XDG_CACHE_HOME CINCH_CACHE_DIR= " + home);
  EXPECT_FALSE(fs::exists(folder_ / ".cache"));
  estimate("env -u XDG_CACHE_HOME -u CINCH_CACHE_DIR " + home);
  EXPECT_FALSE(fs::is_empty(folder_ / ".cache" / "cinch"));
}
}  // namespace
}  // namespace cinch::tests
