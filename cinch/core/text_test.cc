#include "cinch/core/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <limits>

#include "cinch/core/atomic_file.h"
#include "cinch/core/error.h"

namespace cinch {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// A folder of its own for every test.
class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = (fs::temp_directory_path() / "cinch-text-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    return names;
  }

  fs::path folder_;
};

TEST(Text, ThousandsAreSeparated) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(1234567), "1,234,567");
  EXPECT_EQ(with_thousands(-123), "-123");
  EXPECT_EQ(with_thousands(-1234), "-1,234");
  EXPECT_EQ(with_thousands(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, NearestFindsSlipsOfTheFinger) {
  const std::vector<std::string> keys{"batch_size", "context", "steps", "seed", "lr"};
  EXPECT_EQ(nearest("batchsize", keys), "batch_size");
  EXPECT_EQ(nearest("contxet", keys), "context");
  EXPECT_EQ(nearest("stpes", keys), "steps");  // Two neighbours swapped are one edit.
  EXPECT_EQ(nearest("l", keys), "lr");
  EXPECT_EQ(nearest("seed", keys), "seed");
}

TEST(Text, NearestIsSilentWhenNothingIsNear) {
  const std::vector<std::string> keys{"batch_size", "context", "steps"};
  EXPECT_EQ(nearest("learning_rate", keys), "");
  EXPECT_EQ(nearest("step_size", keys), "");  // 4 edits of 9 letters; 3 are allowed.
  EXPECT_EQ(nearest("", keys), "");
  EXPECT_EQ(nearest("steps", {}), "");
}

TEST(Text, NearestTakesTheFirstOfEquals) {
  EXPECT_EQ(nearest("b1", std::vector<std::string>{"b2", "b3"}), "b2");
  EXPECT_EQ(nearest("abcdef", std::vector<std::string>{"abcdxx", "abcdex"}), "abcdex");
}

TEST_F(Files, ReadsWhatWasWritten) {
  const std::string text("one\0two\n", 8);
  write_file(folder_ / "a", text);
  EXPECT_EQ(read_file(folder_ / "a"), text);
  write_file(folder_ / "a", "");
  EXPECT_EQ(read_file(folder_ / "a"), "");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

TEST_F(Files, ReadsFilesThatClaimNoSize) { EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("Name:")); }

TEST_F(Files, ReadRefusesFilesOverTheLimit) {
  write_file(folder_ / "a", "12345");
  EXPECT_EQ(read_file(folder_ / "a", 5), "12345");
  EXPECT_THROW(read_file(folder_ / "a", 4), UsageError);
  EXPECT_THROW(read_file("/dev/zero", 1000), UsageError);
}

TEST_F(Files, ReadNamesTheFileItCannotRead) {
  try {
    read_file(folder_ / "missing");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing"));
    EXPECT_EQ(error.error_number(), ENOENT);
  }
  EXPECT_THROW(read_file(folder_), IoError);
}

TEST_F(Files, WritesLargeFilesInPartsOfAnySize) {
  std::string expected;
  AtomicFile out(folder_ / "large");
  for (int part = 0; part < 40; ++part) {
    const std::string text(static_cast<std::size_t>(part) * 70'001 % 2'000'003, static_cast<char>('a' + part % 26));
    out.write(text);
    expected += text;
  }
  out.commit();
  EXPECT_EQ(read_file(folder_ / "large"), expected);
}

TEST_F(Files, WithoutCommitNothingChanges) {
  write_file(folder_ / "a", "before");
  {
    AtomicFile out(folder_ / "a");
    out.write("after");
  }
  EXPECT_EQ(read_file(folder_ / "a"), "before");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

TEST_F(Files, OverwritesWhatAKilledWriterLeft) {
  write_file(folder_ / "a.tmp", "half a file, longer than the new one");
  write_file(folder_ / "a", "whole");
  EXPECT_EQ(read_file(folder_ / "a"), "whole");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

// A limit on the size of files makes write() fail half-way, as a full disk does.
TEST_F(Files, FailureHalfWayLeavesTheFileAsItWas) {
  write_file(folder_ / "a", "before");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100'000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_file(folder_ / "a", std::string(3'000'000, 'x')), IoError);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_EQ(read_file(folder_ / "a"), "before");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

TEST_F(Files, WritesDevicesDirectlyAndHintsAtAFullDisk) {
  write_file("/dev/null", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  try {
    write_file("/dev/full", "text");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.error_number(), ENOSPC);
    EXPECT_THAT(error.hint(), HasSubstr("free some space"));
  }
}

TEST_F(Files, AreNotWrittenThroughALinkThatSomebodyPutInTheirPlace) {
  write_file(folder_ / "other", "before");
  fs::create_symlink(folder_ / "other", folder_ / "a.tmp");
  EXPECT_THROW(write_file(folder_ / "a", "text"), IoError);
  EXPECT_EQ(read_file(folder_ / "other"), "before");
}

TEST_F(Files, ErrorsCallThemByTheirNames) {
  try {
    write_file(folder_ / "missing" / "a", "text");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), testing::EndsWith("missing/a: No such file or directory"));
  }
}

TEST_F(Files, RefusesFoldersAndMissingFolders) {
  EXPECT_THROW(write_file(folder_, "text"), IoError);
  EXPECT_THROW(write_file(folder_ / "missing" / "a", "text"), IoError);
}

TEST_F(Files, UnwritableFolderIsAnIoError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  ::chmod(folder_.c_str(), 0500);
  try {
    write_file(folder_ / "a", "text");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.error_number(), EACCES);
    EXPECT_NE(error.hint(), "");
  }
  ::chmod(folder_.c_str(), 0700);
}
TEST(Printable, ReplacesWhatMovesATerminal) {
  EXPECT_EQ(printable("a\x1b[2J\a\x7f\xff\xc2\x9b\n\té"), "a\uFFFD[2J\uFFFD\uFFFD\uFFFD\uFFFD\n\té");
}

TEST(ShellWord, IsQuotedWhereNeeded) {
  EXPECT_EQ(shell_word("runs/a-1.pickle"), "runs/a-1.pickle");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("two words é"), "'two words é'");
  EXPECT_EQ(shell_word("a'b"), "'a'\\''b'");
  EXPECT_EQ(shell_word("a\x1b[31m'\\\xff\n"), "$'a\\033[31m\\047\\134\\377\\012'");
}

TEST(DeepKeys, AreFoundByLine) {
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "a.";
  EXPECT_EQ(line_of_deep_key("[model]\n" + deep + "b = 1\n"), 2);
  EXPECT_EQ(line_of_deep_key("\n\n[" + deep + "b]\n"), 3);
  EXPECT_EQ(line_of_deep_key("x = { " + deep + "b = 1 }"), 1);
  EXPECT_EQ(line_of_deep_key("[data]\npath = [\"a.txt\", \"b.txt\"]\nheld_out = 0.05\n"), 0);
}
}  // namespace
}  // namespace cinch
