#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"

namespace cinch::cli {

Verbs add_training_verbs(CLI::App& program) {
  Verbs verbs;
  for (const char* name : {"estimate", "plan", "train", "verify"}) {
    program.add_subcommand(name, "Not in this build, which is without LibTorch")->allow_extras();
    verbs[name] = [name](Stage&) -> ExitCode {
      throw UsageError(std::string(name) + ": this cinch was built without LibTorch", "Build all of it: make build.");
    };
  }
  return verbs;
}

plan::Calibration calibrate_afresh(int& /*threads*/) {
  throw UsageError("devices --calibrate: this cinch was built without LibTorch", "Build all of it: make build.");
}

std::string libtorch_version() { return ""; }
}  // namespace cinch::cli
