// What does each technique on activations cost in time, and what does it save? Is checkpointing as cheap as PyTorch's
// (checkpointing_peers.py)?
//
// The peer runs where CINCH_PEER_TORCH names a folder with PyTorch for Python:
//   pip install --target DIR torch==2.11.0 numpy && CINCH_PEER_TORCH=DIR checkpointing
// CINCH_PEER_PYTHON: the interpreter, python3 if it is not set.
//
//   checkpointing [ROUNDS]
//
// A GPT of 6 × 384, batch 8 of 256 tokens, vocabulary 8,000; forward and backward. Within a round every technique takes
// a step; its time is divided by that of the round's plain step. Peaks are bytes of tensors above those at rest.

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/measure.h"
#include "cinch/data/source.h"
#include "cinch/models/model.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/call.h"
#include "cinch/techniques/compress.h"
#include "cinch/techniques/offload.h"
#include "cinch/trace/sink.h"
#include "cinch/train/train.h"

namespace cinch::benchmarks {
namespace {

using techniques::Codec;
using techniques::Compress;
using techniques::Offload;

constexpr int kLayers = 6;

struct Technique {
  std::string name;
  plan::ActivationPolicy blocks = plan::ActivationPolicy::kKeep;
  techniques::SavedTensorPolicy* policy = nullptr;
};

class Steps {
 public:
  Steps() {
    const job::GptConfig config{
        .layers = kLayers, .hidden_size = 384, .heads = 6, .context_length = 256, .vocab_size = 8000, .dropout = 0.0};
    model_ = models::build(config);
    batch_ = data::example_batch(job::SyntheticData{}, config, 8);
  }

  struct Result {
    double seconds;
    Bytes peak;
  };
  Result take(const Technique& technique) {
    std::map<std::string, plan::ActivationPolicy> blocks;
    for (int i = 0; i < kLayers; ++i) blocks["layers." + std::to_string(i)] = technique.blocks;
    techniques::CallPolicies policies(*model_, blocks);
    trace::PeakMeter meter;
    Result result{};
    {
      const record::Recorder recorder(meter);
      result.seconds = seconds_of([&] { step(policies, technique.policy); });
      result.peak = recorder.peak();
    }
    for (auto& parameter : model_->parameters()) parameter.mutable_grad().reset();
    return result;
  }
  std::vector<at::Tensor> buffers() const { return model_->buffers(); }

 private:
  void step(techniques::CallPolicies& policies, techniques::SavedTensorPolicy* policy) {
    at::Tensor loss;
    {
      const techniques::UseCallPolicies use(policies);
      std::optional<techniques::SavedTensorScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      loss = model_->loss_sum(batch_);
    }
    loss.backward();
  }

  std::shared_ptr<models::Model> model_;
  data::Batch batch_;
};

struct Peer {
  double time = 0, peak = 0;  ///< Of the checkpointed step, as shares of the plain one.
};

/// From its last line "checkpoint TIME PEAK"; nothing where it cannot run.
std::optional<Peer> peer(int rounds) {
  const char* folder = std::getenv("CINCH_PEER_TORCH");
  if (folder == nullptr) {
    std::puts("  the peer did not run: pip install --target DIR torch==2.11.0 numpy, then CINCH_PEER_TORCH=DIR");
    return std::nullopt;
  }
  const char* named = std::getenv("CINCH_PEER_PYTHON");
  const std::string python = named == nullptr ? "python3" : named;
  ::setenv("PYTHONPATH", folder, /*overwrite=*/1);
  ::unsetenv("LD_LIBRARY_PATH");
  const std::string command =
      python + " " CINCH_SOURCE_DIR "/benchmarks/checkpointing_peers.py --rounds " + std::to_string(rounds);
  std::FILE* out = ::popen(command.c_str(), "r");
  if (out == nullptr) throw std::runtime_error("cannot start " + python);
  Peer peer;
  bool answered = false;
  char line[256];
  while (std::fgets(line, sizeof line, out) != nullptr) {
    std::printf("  peer: %s", line);
    answered = answered || std::sscanf(line, "checkpoint %lf %lf", &peer.time, &peer.peak) == 2;
  }
  if (::pclose(out) != 0 || !answered) throw std::runtime_error("the peer failed: " + command);
  return peer;
}

int run(int rounds) {
  print_conditions("checkpointing");
  Steps steps;
  Offload offload({.keep = steps.buffers()}), inputs({.keep = steps.buffers()}), small({.keep = steps.buffers()});
  Compress bf16(Codec::kBf16, {.into = nullptr, .keep = steps.buffers()});
  Compress int8(Codec::kInt8, {.into = nullptr, .keep = steps.buffers()});
  Compress both(Codec::kInt8, {.into = &small, .keep = steps.buffers()});
  const std::vector<Technique> all{{"plain"},
                                   {"checkpoint", plan::ActivationPolicy::kCheckpoint},
                                   {"selective", plan::ActivationPolicy::kSelective},
                                   {"offload", plan::ActivationPolicy::kKeep, &offload},
                                   {"checkpoint, offload", plan::ActivationPolicy::kCheckpoint, &inputs},
                                   {"bf16", plan::ActivationPolicy::kKeep, &bf16},
                                   {"int8", plan::ActivationPolicy::kKeep, &int8},
                                   {"int8, offload", plan::ActivationPolicy::kKeep, &both}};
  std::map<std::string, std::vector<double>> seconds;
  std::map<std::string, Bytes> peaks;
  for (int round = 0; round <= rounds; ++round) {
    for (const auto& technique : all) {
      const auto result = steps.take(technique);
      if (round > 0) seconds[technique.name].push_back(result.seconds);  // the first warms up
      peaks[technique.name] = result.peak;
    }
  }
  std::printf("  %-20s %9s %7s %12s %7s\n", "", "ms", "time", "peak", "peak");
  for (const auto& technique : all) {
    const auto& name = technique.name;
    std::printf("  %-20s %9.1f %7.2f %12s %7.2f\n", name.c_str(), 1e3 * median(seconds[name]),
                median(ratios(seconds[name], seconds["plain"])), to_string(peaks[name]).c_str(),
                static_cast<double>(peaks[name].count()) / static_cast<double>(peaks["plain"].count()));
  }
  if (const auto other = peer(rounds)) {
    const auto time = median(ratios(seconds["checkpoint"], seconds["plain"])) / other->time;
    const auto peak =
        static_cast<double>(peaks["checkpoint"].count()) / static_cast<double>(peaks["plain"].count()) / other->peak;
    std::printf("  checkpointing against PyTorch's: time %.3f (%s), peak %.3f (%s)\n", time, verdict(time, 1.0), peak,
                verdict(peak, 1.001));
  }
  return 0;
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int count, char** words) { return cinch::benchmarks::run(count > 1 ? std::atoi(words[1]) : 5); }
