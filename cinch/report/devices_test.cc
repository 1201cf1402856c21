#include "cinch/report/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cinch::report {
namespace {
using testing::HasSubstr;

std::vector<device::DeviceSpec> two() {
  device::DeviceSpec cpu;
  cpu.name = "cpu";
  cpu.memory = Bytes(std::int64_t{100} << 30);
  cpu.peak_rates = {{DType::kFloat32, 0.5e12}};
  cpu.bytes_per_second = 16e9;
  device::DeviceSpec card = cpu;
  card.name = "card\x1b[1m";
  card.type = device::DeviceType::kCuda;
  card.context = Bytes(std::int64_t{512} << 20);
  card.cublas_workspace = Bytes(8 << 20);
  card.compute_capability = 89;
  card.peak_rates.push_back({DType::kFloat16, 165.2e12});
  card.host_bytes_per_second = 31.5e9;
  return {cpu, card};
}

TEST(DevicesText, OneRowADevice) {
  const std::string out = text(two(), false);
  EXPECT_THAT(
      out,
      HasSubstr(
          "cpu              100.00    98.00        -          -      -      0.5        -        -     16.0       -\n"));
  EXPECT_THAT(
      out, HasSubstr("    100.00    97.50      512        8.0    8.9      0.5        -      165     16.0    31.5\n"));
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
}

TEST(DevicesJson, HasBytesAndRates) {
  const auto document = nlohmann::json::parse(json(two(), "2.11.0"));
  EXPECT_EQ(document["schema"], "cinch.devices/1");
  EXPECT_EQ(document["libtorch"], "2.11.0");
  ASSERT_EQ(document["devices"].size(), 2u);
  const auto& card = document["devices"][1];
  EXPECT_EQ(card["type"], "cuda");
  EXPECT_EQ(card["memory_bytes"], 107374182400);
  EXPECT_EQ(card["usable_bytes"], 107374182400 / 50 * 49 - (512 << 20));
  EXPECT_EQ(card["compute_capability"], 89);
  EXPECT_EQ(card["flops_per_second"]["float16"], 165.2e12);
}
}  // namespace
}  // namespace cinch::report
