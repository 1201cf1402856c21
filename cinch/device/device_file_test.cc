#include "cinch/device/device_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"

namespace cinch::device {
namespace {
using testing::HasSubstr;

std::string with(const std::string& from, const std::string& to) {
  std::string text = to_toml(find("rtx4090-24gb"));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, text.find('\n', at) - at, to);
}

/// The error that `text` gives.
ConfigError refusal(const std::string& text) {
  try {
    parse(text, "card.toml");
  } catch (const ConfigError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted:\n" << text;
  return ConfigError("", 0, "", "");
}

TEST(DeviceFile, EveryKnownDeviceReadsBackTheSame) {
  for (const std::string& name : known()) {
    const DeviceSpec device = find(name);
    const std::string text = to_toml(device);
    const DeviceSpec again = parse(text, "card.toml");
    EXPECT_EQ(to_toml(again), text);
    EXPECT_EQ(again.type, device.type) << name;
    EXPECT_EQ(again.memory, device.memory) << name;
    EXPECT_EQ(again.context, device.context) << name;
    EXPECT_EQ(again.cublas_workspace, device.cublas_workspace) << name;
    EXPECT_EQ(again.compute_capability, device.compute_capability) << name;
    EXPECT_EQ(again.bytes_per_second, device.bytes_per_second) << name;
    EXPECT_EQ(again.host_bytes_per_second, device.host_bytes_per_second) << name;
    EXPECT_EQ(again.launch, device.launch) << name;
    ASSERT_EQ(again.peak_rates.size(), device.peak_rates.size()) << name;
  }
}

TEST(DeviceFile, SizesInUnitsAndAWorkspaceByRule) {
  EXPECT_EQ(parse(with("memory", "memory = \"24GiB\""), "card.toml").memory, Bytes::parse("24GiB"));
  const std::string hopper = with("compute_capability", "compute_capability = \"9.0\"");
  const std::size_t line = hopper.find("cublas_workspace");
  EXPECT_EQ(parse(hopper.substr(0, line) + hopper.substr(hopper.find('\n', line) + 1), "card.toml").cublas_workspace,
            Bytes(32 << 20));
}

TEST(DeviceFile, ADiskIsKnownIfItIsSaid) {
  EXPECT_EQ(find("t4").disk_bytes_per_second, 0);
  const DeviceSpec card = parse(with("launch_seconds", "disk_bytes_per_second = 2e9\nlaunch_seconds = 1e-6"), "card.toml");
  EXPECT_EQ(card.disk_bytes_per_second, 2e9);
  EXPECT_EQ(parse(to_toml(card), "card.toml").disk_bytes_per_second, 2e9);
}

TEST(DeviceFile, NamesFileLineAndKey) {
  const ConfigError unknown = refusal(with("memory", "memry = 1"));
  EXPECT_EQ(unknown.line(), 3);
  EXPECT_THAT(unknown.what(), HasSubstr("card.toml:3: "));
  EXPECT_EQ(unknown.hint(), "Did you mean memory?");
  EXPECT_EQ(refusal(with("memory", "")).key(), "memory");
  EXPECT_THAT(refusal("name = \"x").what(), HasSubstr("no TOML"));
  EXPECT_THAT(refusal(with("type", "type = \"tpu\"")).what(), HasSubstr("\"tpu\""));
  EXPECT_THROW(load("/nowhere/card.toml"), ConfigError);
}

TEST(DeviceFile, RefusesWhatNoDeviceHas) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"name", "\"\""},
                                                                                   {"name", "\"a\\nb\""},
                                                                                   {"name", "7"},
                                                                                   {"memory", "-1"},
                                                                                   {"memory", "0"},
                                                                                   {"memory", "\"9999999999TiB\""},
                                                                                   {"memory", "9223372036854775807"},
                                                                                   {"memory", "nan"},
                                                                                   {"context", "\"24GiB\""},
                                                                                   {"cublas_workspace", "-5"},
                                                                                   {"compute_capability", "8.9"},
                                                                                   {"compute_capability", "\"8\""},
                                                                                   {"compute_capability", "\"8.\""},
                                                                                   {"compute_capability", "\"-8.9\""},
                                                                                   {"bytes_per_second", "nan"},
                                                                                   {"bytes_per_second", "inf"},
                                                                                   {"bytes_per_second", "0"},
                                                                                   {"host_bytes_per_second", "-1.0"},
                                                                                   {"launch_seconds", "nan"},
                                                                                   {"launch_seconds", "-1e-6"},
                                                                                   {"float32", "nan"},
                                                                                   {"float32", "true"},
                                                                                   {"float16", "1e300"}}) {
    std::string line = key;
    line.append(" = ").append(value);
    const ConfigError error = refusal(with(std::string(key).append(" ="), line));
    EXPECT_GT(error.line(), 0) << key << " = " << value;
    EXPECT_THAT(error.key(), HasSubstr(key));
  }
  EXPECT_THAT(refusal(with("bfloat16", "float17 = 1e12")).what(), HasSubstr("float17"));
  EXPECT_THAT(refusal(with("float32", "")).what(), HasSubstr("float32 is missing"));
}

TEST(DeviceFile, ANameOrAFile) {
  EXPECT_EQ(find_or_load("t4").name, "t4-16gb");
  EXPECT_THROW(find_or_load("nowhere.toml"), ConfigError);
  EXPECT_THROW(find_or_load("./nowhere"), ConfigError);
  EXPECT_THROW(find_or_load("nowhere"), UsageError);
}
}  // namespace
}  // namespace cinch::device
