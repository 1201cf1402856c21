#include "cinch/device/device_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"

namespace cinch::device {
namespace {
using testing::HasSubstr;

double rate(const DeviceSpec& spec, DType dtype) {
  for (const auto& row : spec.peak_rates) {
    if (row.dtype == dtype) return row.flops_per_second;
  }
  return 0;
}

TEST(FindDevice, CpuIsThisMachine) {
  const DeviceSpec cpu = find("cpu");
  EXPECT_EQ(cpu.name, "cpu");
  EXPECT_GT(cpu.memory, Bytes::parse("64MiB"));
  EXPECT_LT(cpu.memory, Bytes::parse("1000TiB"));
  EXPECT_GE(cpu.threads, 1);
  EXPECT_GT(cpu.bytes_per_second, 1e9);
  EXPECT_GT(cpu.launch.count(), 0);
  // A core of any x86-64 makes more than a billion, and none a hundred thousand billions.
  EXPECT_GT(rate(cpu, DType::kFloat32), 1e9);
  EXPECT_LT(rate(cpu, DType::kFloat32) / cpu.threads, 1e14);
  EXPECT_DOUBLE_EQ(rate(cpu, DType::kFloat64) * 2, rate(cpu, DType::kFloat32));
  EXPECT_GE(rate(cpu, DType::kBFloat16), rate(cpu, DType::kFloat32));
}

TEST(FindDevice, RatesFollowThreadsUpToTheCores) {
  const DeviceSpec all = find("cpu");
  const DeviceSpec one = find("cpu", 1);
  const DeviceSpec many = find("cpu", all.threads + 100);
  EXPECT_EQ(one.threads, 1);
  EXPECT_EQ(many.threads, all.threads + 100);  // Kernels' scratch depends on the number asked for.
  EXPECT_LE(one.bytes_per_second, all.bytes_per_second);
  EXPECT_EQ(many.bytes_per_second, all.bytes_per_second);
}

TEST(FindDevice, RefusesWhatItDoesNotKnow) {
  try {
    find("cuda");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"cuda\""));
    EXPECT_THAT(error.hint(), HasSubstr("CPU only"));
  }
  try {
    find("cpuu");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.hint(), "Did you mean cpu?");
  }
  EXPECT_THROW(find("cpu", -1), UsageError);
}

TEST(FindDevice, KnowsWhatItSaysItKnows) {
  for (const std::string& name : known()) EXPECT_EQ(find(name).name, name);
}
}  // namespace
}  // namespace cinch::device
