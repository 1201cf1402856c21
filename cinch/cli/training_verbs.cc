#include "cinch/cli/verbs.h"
#include "cinch/train/train.h"

namespace cinch::cli {

Verbs add_training_verbs(CLI::App& program) {
  return {{"estimate", add_estimate(program)},
          {"plan", add_plan(program)},
          {"train", add_train(program)},
          {"verify", add_verify(program)}};
}

std::string libtorch_version() { return train::libtorch_version(); }
}  // namespace cinch::cli
