#include <memory>
#include <string>
#include <vector>

#include "cinch/cli/output.h"
#include "cinch/cli/verbs.h"
#include "cinch/device/device_file.h"
#include "cinch/report/devices.h"

namespace cinch::cli {
namespace {

struct DevicesOptions {
  std::string device;
  bool json = false;
};

std::vector<device::DeviceSpec> chosen(const DevicesOptions& options) {
  if (!options.device.empty()) return {device::find_or_load(options.device)};
  std::vector<device::DeviceSpec> all;
  for (const std::string& name : device::known()) all.push_back(device::find(name));
  return all;
}
}  // namespace

Run add_devices(CLI::App& program) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App* verb = program.add_subcommand("devices", "The devices there are; one of them as a file to edit.");
  verb->add_option("device", options->device, "One of them, or a file that describes one: prints TOML")
      ->type_name("NAME|FILE");
  verb->add_flag("--json", options->json, "One JSON document on standard output and nothing else");
  return [options](Stage& stage) {
    const std::vector<device::DeviceSpec> devices = chosen(*options);
    stage = Stage::kWorking;
    if (options->json) {
      print(report::json(devices, libtorch_version()));
    } else {
      print(options->device.empty() ? report::text(devices, colour_on_stdout()) : device::to_toml(devices.front()));
    }
    return kDone;
  };
}
}  // namespace cinch::cli
