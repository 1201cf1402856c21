#include "cinch/cli/exit_code.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <new>

#include "cinch/core/error.h"

namespace cinch::cli {
namespace {

TEST(ExitCode, WrongInputIsTwoAtAnyStage) {
  for (const Stage stage : {Stage::kReading, Stage::kWorking}) {
    EXPECT_EQ(exit_code(UsageError("x"), stage), 2);
    EXPECT_EQ(exit_code(ConfigError("job.toml", 3, "steps", "x"), stage), 2);
    EXPECT_EQ(exit_code(DataError("rows.csv", 7, "x"), stage), 2);
    EXPECT_EQ(exit_code(OverflowError("x"), stage), 2);
  }
}

TEST(ExitCode, AFileThatCannotBeReadIsInputAndOneThatCannotBeWrittenIsFailure) {
  EXPECT_EQ(exit_code(IoError("corpus.txt", "open", EACCES), Stage::kReading), 2);
  EXPECT_EQ(exit_code(IoError("corpus.txt", "open", ENOENT), Stage::kReading), 2);
  EXPECT_EQ(exit_code(IoError("runs/x", "write", EACCES), Stage::kWorking), 1);
}

TEST(ExitCode, AFullOrBrokenDiskIsFailureAtAnyStage) {
  for (const int error : {ENOSPC, EDQUOT, EROFS, EIO, EFBIG}) {
    EXPECT_EQ(exit_code(IoError("runs/x", "write", error), Stage::kReading), 1);
  }
}

TEST(ExitCode, EverythingElseIsFailure) {
  EXPECT_EQ(exit_code(UnsupportedError("aten::fft has no rule"), Stage::kReading), 1);
  EXPECT_EQ(exit_code(Error("loss is not finite at step 3"), Stage::kWorking), 1);
  EXPECT_EQ(exit_code(std::bad_alloc(), Stage::kReading), 1);
}
}  // namespace
}  // namespace cinch::cli
