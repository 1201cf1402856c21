#include <filesystem>

#include "cinch/cli/verbs.h"
#include "cinch/train/train.h"

namespace cinch::cli {

Verbs add_training_verbs(CLI::App& program) {
  return {{"estimate", add_estimate(program)},
          {"plan", add_plan(program)},
          {"train", add_train(program)},
          {"verify", add_verify(program)}};
}

plan::Calibration calibrate_afresh(int& threads) {
  threads = train::set_threads(0);
  std::error_code ignored;
  return train::calibrate({.afresh = true, .disk = std::filesystem::temp_directory_path(ignored)});
}

std::string libtorch_version() { return train::libtorch_version(); }
}  // namespace cinch::cli
