#include <memory>
#include <string>
#include <vector>

#include "cinch/cli/output.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/device/device_file.h"
#include "cinch/report/devices.h"

namespace cinch::cli {
namespace {

struct DevicesOptions {
  std::string device;
  bool json = false;
  bool calibrate = false;
};

std::vector<device::DeviceSpec> chosen(const DevicesOptions& options) {
  if (!options.device.empty()) return {device::find_or_load(options.device)};
  std::vector<device::DeviceSpec> all;
  for (const std::string& name : device::known()) all.push_back(device::find(name));
  return all;
}

ExitCode calibrate(const DevicesOptions& options, Stage& stage) {
  if (!options.device.empty() && options.device != "cpu")
    throw UsageError("--calibrate measures this machine's CPU, not " + options.device, "Leave the device out.");
  int threads = 0;
  const plan::Calibration calibration = calibrate_afresh(threads);
  stage = Stage::kWorking;
  print(options.json ? report::json(calibration, threads, libtorch_version())
                     : report::text(calibration, threads, colour_on_stdout()));
  return kDone;
}
}  // namespace

Run add_devices(CLI::App& program) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App* verb = program.add_subcommand("devices", "The devices there are; one of them as a file to edit.");
  verb->add_option("device", options->device, "One of them, or a file that describes one: prints TOML")
      ->type_name("NAME|FILE");
  verb->add_flag("--json", options->json, "One JSON document on standard output and nothing else");
  verb->add_flag("--calibrate", options->calibrate,
                 "Measure this machine's CPU afresh, keep the figures for plans, and print them");
  return [options](Stage& stage) {
    if (options->calibrate) return calibrate(*options, stage);
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
