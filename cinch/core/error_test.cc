#include "cinch/core/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace cinch {
namespace {
using testing::HasSubstr;

TEST(Error, SaysWhatAndHint) {
  const UsageError error("batch is 0", "Use at least 1.");
  EXPECT_STREQ(error.what(), "batch is 0");
  EXPECT_EQ(error.hint(), "Use at least 1.");
}

TEST(Error, ConfigErrorBeginsWithFileAndLine) {
  const ConfigError error("job.toml", 12, "model.heads", "model.heads is 0");
  EXPECT_STREQ(error.what(), "job.toml:12: model.heads is 0");
  EXPECT_EQ(error.file(), "job.toml");
  EXPECT_EQ(error.line(), 12);
  EXPECT_EQ(error.key(), "model.heads");
  EXPECT_STREQ(ConfigError("job.toml", 0, "model", "no [model]").what(), "job.toml: no [model]");
}

TEST(Error, DataErrorBeginsWithFileAndOffset) {
  const DataError error("a.trace", 40, "the file ends inside a name");
  EXPECT_STREQ(error.what(), "a.trace, byte 40: the file ends inside a name");
  EXPECT_EQ(error.offset(), 40u);
  EXPECT_EQ(error.file(), "a.trace");
}

TEST(Error, IoErrorSaysActionFileAndReason) {
  const IoError error("/data/a.txt", "read", ENOENT);
  EXPECT_STREQ(error.what(), "cannot read /data/a.txt: No such file or directory");
  EXPECT_EQ(error.error_number(), ENOENT);
}

TEST(Error, IoErrorHintsAtTheUsualReasons) {
  EXPECT_THAT(IoError("a", "write", ENOSPC).hint(), HasSubstr("free some space"));
  EXPECT_THAT(IoError("a", "write", EACCES).hint(), HasSubstr("who owns the file"));
  EXPECT_THAT(IoError("a", "read", ENOENT).hint(), HasSubstr("does not exist"));
  EXPECT_EQ(IoError("a", "read", EIO).hint(), "");
  EXPECT_EQ(IoError("a", "write", ENOSPC, "Drop old checkpoints.").hint(), "Drop old checkpoints.");
}

TEST(Error, AllAreStandardExceptions) {
  EXPECT_THROW(throw IoError("a", "read", EIO), std::exception);
  EXPECT_THROW(throw DataError("a", 0, "b"), Error);
}
}  // namespace
}  // namespace cinch
