#include "cinch/trace/internal/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/trace/builder.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {
namespace {
namespace fs = std::filesystem;
using namespace literals;
using testing::HasSubstr;

Trace sample() {
  TraceBuilder b;
  b.phase(Phase::kInit, 0).module("fc");
  const AllocationId w = b.alloc({.dtype = DType::kFloat32, .sizes = {4, 8}});
  b.label(w, Category::kParameter, "fc.weight");
  b.time_ns(1234567890123).phase(Phase::kForward, 1).module("fc");
  b.op("aten::mm", 1.5e12, 3_GiB, 5_GiB, DType::kBFloat16);
  const AllocationId h = b.alloc(5_GiB);
  b.phase(Phase::kBackward, 1).recompute(true).alloc(0_B);
  b.free(h).oom(7_GiB);
  return b.build();
}

class Format : public testing::Test {
 protected:
  Format() {
    std::string pattern = (fs::temp_directory_path() / "cinch-format-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    file_ = folder_ / "a.trace";
  }
  ~Format() override { fs::remove_all(folder_); }

  std::string saved(const Trace& trace) {
    save(trace, file_);
    return read_file(file_);
  }

  fs::path folder_, file_;
};

// Bytes as a hostile author would write them.
class Forged {
 public:
  Forged() {
    text_.append(internal::kMagic.data(), internal::kMagic.size());
    u32(internal::kFormatVersion).u8(1).u32(2).text("p").text("cpu");
  }
  Forged& u8(int value) {
    text_ += static_cast<char>(value);
    return *this;
  }
  Forged& u32(std::uint32_t value) { return little(value, 4); }
  Forged& i64(std::int64_t value) { return little(static_cast<std::uint64_t>(value), 8); }
  Forged& text(const std::string& value) {
    u32(static_cast<std::uint32_t>(value.size()));
    text_ += value;
    return *this;
  }
  Forged& event(int action, std::uint32_t allocation, std::int64_t bytes, std::uint32_t op = 0xffffffffu,
                std::uint32_t module = 0) {
    return u8(3).u8(action).u8(2).u8(0).u32(1).u32(allocation).u32(op).u32(module).i64(bytes).i64(-1);
  }
  Forged& end(std::int64_t records) { return u8(0).i64(records); }
  std::size_t size() const { return text_.size(); }
  const std::string& str() const { return text_; }

 private:
  Forged& little(std::uint64_t value, int length) {
    for (int i = 0; i < length; ++i) u8(static_cast<int>((value >> (8 * i)) & 0xff));
    return *this;
  }
  std::string text_;
};

void read(const std::string& bytes) {
  std::istringstream in(bytes);
  Trace trace;
  internal::read_trace(in, bytes.size(), "a.trace", trace);
}

// Reads `bytes` and expects a DataError at `offset` whose message has `problem`.
void expect_refused(const std::string& bytes, std::size_t offset, const std::string& problem) {
  try {
    read(bytes);
    ADD_FAILURE() << "was read; expected: " << problem;
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(problem));
    EXPECT_EQ(error.offset(), offset) << error.what();
    EXPECT_NE(error.hint(), "");
  }
}

TEST_F(Format, WhatIsSavedIsLoaded) {
  const Trace trace = sample();
  save(trace, file_);
  Trace loaded;
  load(file_, loaded);
  EXPECT_EQ(first_divergence(trace, loaded), std::nullopt);
  ASSERT_EQ(loaded.events().size(), trace.events().size());
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const Event &before = trace.events()[i], &after = loaded.events()[i];
    EXPECT_EQ(before.action, after.action) << i;
    EXPECT_EQ(before.phase, after.phase) << i;
    EXPECT_EQ(before.recompute, after.recompute) << i;
    EXPECT_EQ(before.step, after.step) << i;
    EXPECT_EQ(before.allocation, after.allocation) << i;
    EXPECT_EQ(before.op, after.op) << i;
    EXPECT_EQ(before.bytes, after.bytes) << i;
    EXPECT_EQ(before.time_ns, after.time_ns) << i;
    EXPECT_EQ(trace.name(before.module), loaded.name(after.module)) << i;
  }
  const OpCall& op = loaded.ops()[0];
  EXPECT_EQ(loaded.name(op.name), "aten::mm");
  EXPECT_EQ(op.flops, 1.5e12);
  EXPECT_EQ(op.read, 3_GiB);
  EXPECT_EQ(op.written, 5_GiB);
  EXPECT_EQ(op.dtype, DType::kBFloat16);
  EXPECT_EQ(loaded.allocations()[0].tensor->sizes, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(loaded.allocations()[0].category, Category::kParameter);
  EXPECT_EQ(loaded.name(loaded.allocations()[0].name), "fc.weight");
  EXPECT_EQ(loaded.header().producer, trace.header().producer);
  EXPECT_EQ(loaded.header().device_name, "cpu");
  EXPECT_EQ(loaded.header().threads, 1);
  EXPECT_EQ(loaded.header().source, TraceHeader::Source::kDryRun);
}

TEST_F(Format, TheSameTraceIsTheSameBytes) {
  const std::string bytes = saved(sample());
  Trace loaded;
  load(file_, loaded);
  EXPECT_EQ(saved(loaded), bytes);
  EXPECT_EQ(saved(Trace()).substr(0, 8), "CINCHTRC");
}

TEST_F(Format, EveryTruncationIsRefused) {
  const std::string bytes = saved(sample());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(read(bytes.substr(0, length)), DataError) << length;
  }
  EXPECT_NO_THROW(read(bytes));
}

TEST_F(Format, EveryFlippedByteIsReadOrRefused) {
  const std::string bytes = saved(sample());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      try {
        read(damaged);
      } catch (const DataError&) {
      }
    }
  }
}

TEST_F(Format, WhatIsNoTraceIsRefused) {
  expect_refused("", 0, "the file ends inside the first bytes");
  expect_refused("PK\3\4 something else entirely", 0, "not a trace of cinch");
  std::string newer = Forged().end(0).str();
  newer[8] = 2;
  expect_refused(newer, 8, "version 2 of the format");
  EXPECT_NO_THROW(read(Forged().end(0).str()));
}

TEST_F(Format, ClaimsAreCheckedBeforeTheyAreBelieved) {
  const std::size_t first = Forged().size();
  expect_refused(Forged().u8(1).u32(0xffffffffu).str(), first + 1, "a name claims 4,294,967,295 bytes, but 0 are left");
  expect_refused(Forged().u8(9).str(), first, "unknown kind of record");
  expect_refused(Forged().end(7).str(), first + 1, "there are 0 records");
  expect_refused(Forged().end(0).u8(0).str(), first + 1, "1 bytes follow the end");
  expect_refused(Forged().u8(1).text("a").u8(1).text("a").str(), first + 11, "a name comes twice");
}

TEST_F(Format, IdsOutOfRangeAreRefused) {
  const std::size_t first = Forged().size();
  expect_refused(Forged().event(0, 1, 64).str(), first + 8, "allocation 1 is out of order; the next is 0");
  expect_refused(Forged().event(0, 0, 64, 0xffffffffu, 5).str(), first + 16, "a module is 5");
  expect_refused(Forged().event(0, 0, 64, 3).end(1).str(), first + 37, "names op 3");
  expect_refused(Forged().u8(4).u32(0).str(), first + 1, "a tensor's allocation is 0");
  expect_refused(Forged().u8(5).u32(0).str(), first + 1, "a label's allocation is 0");
  expect_refused(Forged().event(1, 0, 64).str(), first + 1, "unknown action 1");
}

TEST_F(Format, ImpossibleLivesAreRefused) {
  const std::size_t first = Forged().size(), event = Forged().event(0, 0, 1).size() - first;
  expect_refused(Forged().event(2, 0, 64).str(), first + 8, "allocation 0 is freed but was never made");
  expect_refused(Forged().event(0, 0, 64).event(2, 0, 64).event(2, 0, 64).str(), first + 2 * event + 8, "freed twice");
  expect_refused(Forged().event(0, 0, 64).event(2, 0, 65).str(), first + event + 20, "made with 64 bytes");
  expect_refused(Forged().event(0, 0, -1).str(), first + 20, "bytes is negative: -1");
  const std::int64_t half = std::int64_t{1} << 62;
  expect_refused(Forged().event(0, 0, half).event(0, 1, half).str(), first + event + 20, "live bytes leave 64 bits");
}

TEST_F(Format, ImpossibleTensorsAndOpsAreRefused) {
  const std::size_t made = Forged().event(0, 0, 64).size(), first = Forged().size();
  expect_refused(Forged().event(0, 0, 64).u8(4).u32(0).u8(200).str(), made + 5, "a dtype is 200");
  expect_refused(Forged().event(0, 0, 64).u8(4).u32(0).u8(0).u8(65).str(), made + 6, "a tensor's rank is 65");
  expect_refused(Forged().event(0, 0, 64).u8(4).u32(0).u8(0).u8(1).i64(-3).str(), made + 7, "size is negative: -3");
  const std::int64_t nan = 0x7ff8000000000000;
  expect_refused(Forged().u8(2).u32(0).u32(0).u8(0).u8(0).u8(0).u32(1).i64(nan).str(), first + 16, "no number");
}

TEST_F(Format, MissingFilesAndFoldersAreIoErrors) {
  Trace trace;
  EXPECT_THROW(load(folder_ / "missing", trace), IoError);
  EXPECT_THROW(load(folder_, trace), IoError);
  EXPECT_THROW(save(trace, folder_ / "missing" / "a.trace"), IoError);
}

// The corpus of the fuzzer, so that what it once found stays found.
TEST_F(Format, TheFuzzersCorpusIsReadOrRefused) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(CINCH_SOURCE_DIR "/tests/fuzz/corpus/trace")) {
    ++files;
    try {
      read(read_file(entry.path()));
    } catch (const DataError&) {
    }
  }
  EXPECT_GT(files, 0);
}

TEST(TraceFormat, DoesNotHoldSnapshots) {
  const Trace trace = TraceBuilder(TraceHeader::Source::kSnapshot).build();
  EXPECT_THROW(save(trace, testing::TempDir() + "snapshot.trace"), UsageError);
}
}  // namespace
}  // namespace cinch::trace
