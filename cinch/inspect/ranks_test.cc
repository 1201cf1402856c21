#include "cinch/inspect/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cinch/core/error.h"
#include "cinch/inspect/internal/recording_for_test.h"

namespace cinch::inspect {
namespace {

using namespace cinch::literals;
using testing::HasSubstr;
using testing::SizeIs;
namespace fs = std::filesystem;

class Folder {
 public:
  explicit Folder(const std::string& name) : path_(fs::temp_directory_path() / ("cinch_ranks_test_" + name)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string with_peak(Bytes bytes) {
  internal::RecordingForTest made;
  made.free(made.alloc(bytes));
  return made.json();
}

TEST(Ranks, OfAFolderAreInTheOrderOfTheirNumbersAndTheOutlierIsNamed) {
  const Folder folder("outlier");
  for (const int rank : {0, 1, 2, 10}) {
    folder.write("rank" + std::to_string(rank) + ".json", with_peak(rank == 2 ? 60_MiB : 40_MiB));
  }
  folder.write("notes.txt", "not a snapshot");
  folder.write("rank3.pickle", "damaged");
  const Ranks ranks = inspect_folder(folder.path());
  ASSERT_THAT(ranks.all, SizeIs(5));
  EXPECT_EQ(ranks.all[2].source, "rank2.json");
  EXPECT_EQ(ranks.all[4].source, "rank10.json");
  EXPECT_THAT(ranks.all[3].error, HasSubstr("rank3.pickle"));
  EXPECT_EQ(ranks.peak_total, 180_MiB);
  EXPECT_EQ(ranks.median_peak, 40_MiB);
  EXPECT_EQ(ranks.outlier, 2U);
  EXPECT_EQ(ranks.largest, 2U);
  EXPECT_EQ(ranks.sentence, "rank2.json is the outlier: its peak is 60 MiB, 20 MiB more than the median of 40 MiB.");
}

TEST(Ranks, ThatAreAlikeHaveNoOutlier) {
  const Folder folder("alike");
  for (const int rank : {0, 1, 2}) folder.write("rank" + std::to_string(rank) + ".json", with_peak(40_MiB));
  const Ranks ranks = inspect_folder(folder.path());
  EXPECT_FALSE(ranks.outlier);
  EXPECT_THAT(ranks.sentence, HasSubstr("All 3 peaks are within a twentieth"));
}

TEST(Ranks, HaveNamesFitForATerminal) {
  std::vector<Rank> ranks(3);
  ranks[0].source = "a\x1b[31m.json";
  ranks[0].peak = 100_MiB;
  ranks[1].peak = ranks[2].peak = 1_MiB;
  EXPECT_THAT(compare_ranks(ranks).sentence, testing::StartsWith("a\uFFFD[31m.json is the outlier"));
}

TEST(Ranks, OfTheLargestSizesHaveAnOutlierToo) {
  std::vector<Rank> ranks(2);
  ranks[0].peak = Bytes(512);
  ranks[1].peak = Bytes(std::int64_t{1} << 60);
  EXPECT_EQ(compare_ranks(ranks).outlier, 1U);
}

TEST(Ranks, OfAFolderInWhichNothingCanBeReadAreAnError) {
  const Folder folder("unreadable");
  folder.write("rank0.pickle", "damaged");
  folder.write("rank1.json", R"({"segments": [], "device_traces": []})");
  try {
    inspect_folder(folder.path());
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("none of its 2 snapshots could be read"));
    EXPECT_THAT(error.what(), HasSubstr("rank0.pickle, byte 0"));
  }
}

TEST(Ranks, OfAFolderWithoutSnapshotsOrOfNone) {
  const Folder folder("none");
  EXPECT_THROW(inspect_folder(folder.path()), UsageError);
  EXPECT_THROW(inspect_folder(folder.path() / "missing"), IoError);
}
}  // namespace
}  // namespace cinch::inspect
