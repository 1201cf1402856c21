#include "cinch/device/internal/cpu_facts.h"

#include <gtest/gtest.h>

namespace cinch::device::internal {
namespace {

TEST(CpuFacts, TotalMemoryIsInKib) {
  EXPECT_EQ(total_memory("MemTotal:       16384000 kB\nMemFree:  1 kB\n"), Bytes(16384000LL * 1024));
  EXPECT_EQ(total_memory("MemFree: 5 kB\nMemTotal: 7 kB"), Bytes(7 * 1024));
}

TEST(CpuFacts, TotalMemoryIsNothingWhereItIsNotSaid) {
  EXPECT_EQ(total_memory(""), std::nullopt);
  EXPECT_EQ(total_memory("MemTotal:\n"), std::nullopt);
  EXPECT_EQ(total_memory("MemTotal: many kB\n"), std::nullopt);
  EXPECT_EQ(total_memory("MemTotal: 9223372036854775807 kB\n"), std::nullopt);
}

TEST(CpuFacts, CgroupLimitIsANumberOrMax) {
  EXPECT_EQ(cgroup_limit("1073741824\n"), Bytes(1 << 30));
  EXPECT_EQ(cgroup_limit("max\n"), std::nullopt);
  EXPECT_EQ(cgroup_limit(""), std::nullopt);
}

TEST(CpuFacts, WiderVectorsAreFaster) {
  const Core plain = core_from("cpu MHz\t\t: 2500.000\nflags\t\t: fpu sse2\n");
  EXPECT_DOUBLE_EQ(plain.hertz, 2.5e9);
  EXPECT_DOUBLE_EQ(plain.float32_per_cycle, 8);
  EXPECT_DOUBLE_EQ(core_from("flags : avx2 fma\n").float32_per_cycle, 32);
  EXPECT_DOUBLE_EQ(core_from("flags : avx2\n").float32_per_cycle, 8);
  EXPECT_DOUBLE_EQ(core_from("flags : fma avx2 avx512f avx512_bf16").float32_per_cycle, 64);
  EXPECT_DOUBLE_EQ(core_from("flags : fma avx2 avx512f avx512_bf16").bfloat16_per_cycle, 128);
  EXPECT_DOUBLE_EQ(core_from("flags : avx512f amx_bf16 amx_tile").bfloat16_per_cycle, 1024);
}

TEST(CpuFacts, TheHighestFrequencyOutranksThatOfTheMoment) {
  EXPECT_DOUBLE_EQ(core_from("cpu MHz : 800.0\n", "3500000\n").hertz, 3.5e9);
  EXPECT_DOUBLE_EQ(core_from("cpu MHz : 800.0\n", "").hertz, 8e8);
  EXPECT_DOUBLE_EQ(core_from("cpu MHz : inf\n", "nan").hertz, 2e9);
}

TEST(CpuFacts, FlagsAreWholeWords) {
  EXPECT_DOUBLE_EQ(core_from("flags : avx512fp16 xavx2 fma4\n").float32_per_cycle, 8);
}

TEST(CpuFacts, NothingSaidIsAModestCore) {
  const Core core = core_from("");
  EXPECT_DOUBLE_EQ(core.hertz, 2e9);
  EXPECT_DOUBLE_EQ(core.float32_per_cycle, 8);
  EXPECT_DOUBLE_EQ(core.bfloat16_per_cycle, 8);
}
}  // namespace
}  // namespace cinch::device::internal
