#pragma once
// The verbs. Each adds itself to the program's command line and gives what runs when it is chosen.

#include <CLI/CLI.hpp>

#include <functional>

#include "cinch/cli/exit_code.h"

namespace cinch::cli {

/// Runs a verb whose flags have been parsed. Sets the stage as it goes; throws what goes wrong.
using Run = std::function<ExitCode(Stage&)>;

Run add_estimate(CLI::App& program);
Run add_plan(CLI::App& program);
Run add_train(CLI::App& program);
}  // namespace cinch::cli
