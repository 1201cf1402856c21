// cinch: the program. Reads the command line, runs a verb, turns errors into sentences and exit codes.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/cli/exit_code.h"
#include "cinch/cli/output.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/core/version.h"

namespace cinch::cli {
namespace {

std::string version() {
  const std::string libtorch = libtorch_version();
  return std::string("cinch ") + kVersion + (libtorch.empty() ? ", without LibTorch" : ", LibTorch " + libtorch);
}

constexpr const char* kNoVerb = "no verb given: say estimate, plan, train, verify, inspect, replay, diff, record or devices";

/// "Did you mean --budget?", from the flags of the chosen verb or from the verbs.
std::string did_you_mean(const CLI::App& program, const std::string& word) {
  std::vector<std::string> known;
  const auto chosen = program.get_subcommands();
  if (chosen.empty()) {
    for (const CLI::App* verb : program.get_subcommands(nullptr)) known.push_back(verb->get_name());
  } else {
    for (const CLI::Option* option : chosen.front()->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  }
  const std::string near = nearest(word, known);
  return near.empty() ? "" : "Did you mean " + near + "?";
}

/// What was wrong with the command line, as one error.
UsageError usage_error(const CLI::App& program, const CLI::ParseError& error) {
  const auto chosen = program.get_subcommands();
  const std::string help =
      "cinch " + (chosen.empty() ? "" : chosen.front()->get_name() + " ") + "--help shows what there is.";
  const std::vector<std::string> rest = program.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !rest.empty()) {
    const std::string hint = did_you_mean(program, rest.front());
    const std::string what = chosen.empty() && !rest.front().starts_with('-') ? "unknown verb " : "did not expect ";
    return UsageError(what + rest.front(), hint.empty() ? help : hint);
  }
  if (chosen.empty()) return UsageError(kNoVerb, help);
  return UsageError(error.what(), help);
}

Verbs add_verbs(CLI::App& program) {
  Verbs verbs = add_training_verbs(program);
  verbs["inspect"] = add_inspect(program);
  verbs["replay"] = add_replay(program);
  verbs["diff"] = add_diff(program);
  verbs["record"] = add_record(program);
  verbs["devices"] = add_devices(program);
  return verbs;
}

int run(int argc, char** argv, Stage& stage) {
  CLI::App program(
      "Fits training into memory: says what a step needs, finds the fastest plan that fits, trains under it.", "cinch");
  program.set_version_flag("--version", version);
  const Verbs verbs = add_verbs(program);
  for (CLI::App* verb : program.get_subcommands(nullptr)) verb->set_version_flag("--version", version);
  program.footer("Exit codes: 0 done; 1 failed, or interrupted; 2 bad usage or input; 3 does not fit the budget.");
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return program.exit(asked, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    throw usage_error(program, error);
  }
  const auto chosen = program.get_subcommands();
  if (chosen.empty()) throw UsageError(kNoVerb, "cinch --help shows what there is.");
  return verbs.at(chosen.front()->get_name())(stage);
}
}  // namespace
}  // namespace cinch::cli

int main(int argc, char** argv) {
  cinch::cli::Stage stage = cinch::cli::Stage::kReading;
  try {
    return cinch::cli::run(argc, argv, stage);
  } catch (const cinch::Error& error) {
    cinch::cli::print_error(error.what(), error.hint());
    return cinch::cli::exit_code(error, stage);
  } catch (const std::exception& error) {
    const std::string_view text = error.what();  // LibTorch's own go on with a stack trace.
    cinch::cli::print_error(std::string(text.substr(0, text.find('\n'))), "");
    return cinch::cli::exit_code(error, stage);
  }
}
