#pragma once
// The verbs. Each adds itself to the program's command line and gives what runs when it is chosen.

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <string>

#include "cinch/cli/exit_code.h"
#include "cinch/plan/calibration.h"

namespace cinch::cli {

/// Runs a verb whose flags have been parsed. Sets the stage as it goes; throws what goes wrong.
using Run = std::function<ExitCode(Stage&)>;
using Verbs = std::map<std::string, Run>;  ///< By name.

// On recordings and devices: without LibTorch.
Run add_inspect(CLI::App& program);
Run add_replay(CLI::App& program);
Run add_diff(CLI::App& program);
Run add_record(CLI::App& program);
Run add_devices(CLI::App& program);

// On jobs: with LibTorch.
Run add_estimate(CLI::App& program);
Run add_plan(CLI::App& program);
Run add_train(CLI::App& program);
Run add_verify(CLI::App& program);

/// The verbs on jobs, where this build has them; where not, they are added all the same and say what to build.
Verbs add_training_verbs(CLI::App& program);
/// Measures this machine afresh, its disk where temporary files lie as well. `threads`: those that it was measured with.
/// UsageError in a build without LibTorch.
plan::Calibration calibrate_afresh(int& threads);
/// "2.11.0"; "" in a build without LibTorch.
std::string libtorch_version();
}  // namespace cinch::cli
