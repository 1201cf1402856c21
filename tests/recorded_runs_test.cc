// Predicted on a claimed card against what PyTorch recorded on a real one: torch.cuda.memory._dump_snapshot() of one
// training process each, a GPU of 80 GB, 32 layers of 2560, batch 4 × 128 (the figures below are the recordings' own).
#include <gtest/gtest.h>

#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/techniques/autocast.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"
#include "examples/gated_transformer.h"

namespace cinch::tests {
namespace {

template <class Run>
trace::Trace dry(const Run& run) {
  trace::Trace trace, until_end;
  {
    const auto card = device::find("h100-80gb");
    const dryrun::DryRun dry(trace, card);
    const torch::Device device(torch::kCUDA, 0);
    const examples::GatedTransformer model(examples::GatedTransformerOptions{}, device);
    const auto tokens = torch::zeros({4, 128}, torch::TensorOptions(torch::kLong).device(device));
    run(model, tokens, [&] { until_end = trace; });
  }
  trace::classify(until_end);
  return until_end;
}

Bytes live_at_start(const trace::Trace& trace) {
  Bytes live;
  for (const auto& end : trace::phase_ends(trace))
    if (end.phase == trace::Phase::kOther && live == Bytes()) live = end.live;
  return live;
}

TEST(RecordedRuns, Forward) {
  const auto trace = dry([](auto model, const auto& tokens, const auto& done) {
    const trace::PhaseScope phase(trace::Phase::kForward, 1);
    const auto logits = model->forward(tokens);
    done();
  });
  EXPECT_EQ(live_at_start(trace), Bytes(13'628'553'216));
  EXPECT_EQ(trace::Timeline(trace).peak().bytes, Bytes(19'352'504'320));
}

TEST(RecordedRuns, ForwardUnderAutocast) {
  const auto trace = dry([](auto model, const auto& tokens, const auto& done) {
    const trace::PhaseScope phase(trace::Phase::kForward, 1);
    const techniques::Autocast autocast(at::kCUDA, at::kBFloat16);
    const auto logits = model->forward(tokens);
    done();
  });
  EXPECT_EQ(trace::Timeline(trace).peak().bytes, Bytes(23'873'313'792));
}

TEST(RecordedRuns, Step) {
  const auto trace = dry([](auto model, const auto& tokens, const auto& done) {
    at::Tensor logits, loss;  // As in the recorded loop, both live until the next step.
    {
      const trace::PhaseScope phase(trace::Phase::kForward, 1);
      logits = model->forward(tokens);
      loss = examples::hand_cross_entropy(logits.view({-1, logits.size(-1)}), tokens.view({-1}));
    }
    {
      const trace::PhaseScope phase(trace::Phase::kBackward, 1);
      loss.backward();
    }
    const trace::PhaseScope phase(trace::Phase::kOptimizer, 1);
    const auto state = examples::hand_adamw_step(model->parameters());
    done();
  });
  EXPECT_EQ(trace::Timeline(trace).peak().bytes, Bytes(54'802'667'524));
}
}  // namespace
}  // namespace cinch::tests
