#pragma once
// A device of one's own, as a TOML file.
//
//   DeviceSpec card = load("my-card.toml");
//   std::puts(to_toml(find("rtx4090-24gb")).c_str());   // a file to begin with

#include <filesystem>
#include <string>
#include <string_view>

#include "cinch/device/device_spec.h"

namespace cinch::device {

/// Throws ConfigError: file, line, key, the nearest known key; every value is checked.
DeviceSpec load(const std::filesystem::path& file);
DeviceSpec parse(std::string_view toml, const std::filesystem::path& name_for_errors);

/// parse(to_toml(device)) is the same device.
std::string to_toml(const DeviceSpec& device);

/// load() of what ends in ".toml" or has a '/', else find().
DeviceSpec find_or_load(const std::string& name_or_file, int threads = 0);
}  // namespace cinch::device
