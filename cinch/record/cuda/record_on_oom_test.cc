// With an allocator of the test's own in the place of LibTorch's: there need be no GPU.
#include "cinch/record/cuda/record_on_oom.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "cinch/record/cuda/cuda_memory.h"

namespace cinch::record::cuda {
namespace {
struct FakeAllocator {
  bool has_gpu = true, can_pickle = true;
  std::size_t max_events = 0;
  std::vector<std::function<void()>> observers;
  std::string pickle;

  void run_out() {
    for (const auto& observer : observers) observer();
  }
} g_allocator;
}  // namespace

void start_history(std::size_t max_events) {
  TORCH_CHECK(g_allocator.has_gpu, "No CUDA GPUs are available");
  g_allocator.max_events = max_events;
}
void on_out_of_memory(std::function<void()> observer) { g_allocator.observers.push_back(std::move(observer)); }
std::string snapshot() {
  TORCH_CHECK(g_allocator.can_pickle, "no memory for it either");
  return g_allocator.pickle;
}

namespace {
std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

std::size_t files_in(const std::filesystem::path& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST(RecordOnOom, WritesASnapshotWheneverMemoryRunsOut) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "record_on_oom";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);

  g_allocator.has_gpu = false;
  try {
    record_on_oom(folder / "oom.pickle");
    FAIL() << "there is no GPU";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("No CUDA GPUs are available"));
  }
  EXPECT_TRUE(g_allocator.observers.empty());

  g_allocator.has_gpu = true;
  record_on_oom(folder / "oom.pickle", 1234);
  EXPECT_EQ(g_allocator.max_events, 1234u);
  EXPECT_EQ(files_in(folder), 0u);

  g_allocator.pickle = std::string("first\0snapshot", 14);
  g_allocator.run_out();
  EXPECT_EQ(text_of(folder / "oom.pickle"), g_allocator.pickle);
  g_allocator.pickle = "second";
  g_allocator.run_out();
  EXPECT_EQ(text_of(folder / "oom.pickle"), "second");

  g_allocator.can_pickle = false;
  EXPECT_NO_THROW(g_allocator.run_out());
  EXPECT_EQ(text_of(folder / "oom.pickle"), "second");
  g_allocator.can_pickle = true;

  record_on_oom(folder / "other.pickle");
  g_allocator.run_out();
  EXPECT_EQ(g_allocator.observers.size(), 1u);
  EXPECT_EQ(text_of(folder / "other.pickle"), "second");

  record_on_oom(folder / "no" / "such" / "folder.pickle");
  EXPECT_NO_THROW(g_allocator.run_out());
  EXPECT_EQ(files_in(folder), 2u);
  std::filesystem::remove_all(folder);
}
}  // namespace
}  // namespace cinch::record::cuda
