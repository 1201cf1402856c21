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

TEST(FindDevice, CardsByNameInAnyCaseAndWithoutTheirSizeWhereThatIsClear) {
  EXPECT_EQ(find("rtx4090-24gb").name, "rtx4090-24gb");
  EXPECT_EQ(find("RTX4090").name, "rtx4090-24gb");
  EXPECT_EQ(find("h100").compute_capability, 90);
  try {
    find("a100");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("more than one size"));
    EXPECT_EQ(error.hint(), "Say a100-40gb or a100-80gb.");
  }
}

TEST(FindDevice, CardsAreWithinReason) {
  for (const std::string& name : known()) {
    if (name == "cpu") continue;
    const DeviceSpec card = find(name);
    EXPECT_EQ(card.type, DeviceType::kCuda) << name;
    // The size in the name is in 10^9 bytes or 2^30: what the driver reports is 0 to 9 % less than the larger.
    const double named = std::stod(name.substr(name.rfind('-') + 1)) * (1 << 30);
    EXPECT_LT(static_cast<double>(card.memory.count()), named) << name;
    EXPECT_GT(static_cast<double>(card.memory.count()), 0.91 * named) << name;
    EXPECT_LT(card.context, Bytes::parse("1GiB")) << name;
    EXPECT_EQ(card.cublas_workspace, Bytes(card.compute_capability >= 90 ? 33554432 : 8519680)) << name;
    EXPECT_GT(rate(card, DType::kFloat16), rate(card, DType::kFloat32)) << name;
    EXPECT_GT(card.bytes_per_second, card.host_bytes_per_second) << name;
  }
}

TEST(UsableMemory, IsLessContextAndHeadroom) {
  DeviceSpec card;
  card.memory = Bytes(1000);
  card.context = Bytes(100);
  EXPECT_EQ(usable(card), Bytes(880));
}

TEST(FindDevice, RefusesWhatItDoesNotKnow) {
  try {
    find("tpu-v5");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"tpu-v5\""));
    EXPECT_THAT(error.hint(), HasSubstr("cinch devices"));
  }
  try {
    find("cpuu");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.hint(), "Did you mean cpu?");
  }
  try {
    find("rtx4090-42gb");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.hint(), "Did you mean rtx4090-24gb?");
  }
  try {
    find("rtx4900");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.hint(), "Did you mean rtx4090?");
  }
  EXPECT_THROW(find("cpu", -1), UsageError);
}

TEST(FindDevice, KnowsWhatItSaysItKnows) {
  for (const std::string& name : known()) EXPECT_EQ(find(name).name, name);
}
}  // namespace
}  // namespace cinch::device
