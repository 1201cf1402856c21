#pragma once
// What happens in a training run besides Session::step(), phase by phase: the same for a real run and for a dry one, so
// that their events agree. Everything a function here makes is freed before it returns, inside the phase it belongs to.

#include <cstdint>
#include <functional>
#include <optional>

#include "cinch/data/batch.h"
#include "cinch/train/session.h"

namespace cinch::train {

/// Source::next() of a real run, data::example_batch() of a dry one.
using NextBatch = std::function<data::Batch()>;

struct StepNumbers {
  double loss = 0;
  std::optional<double> grad_norm;
};

/// Fetches a batch (phase data), trains on it, and reads the loss: that is the step's one synchronisation.
/// `step` counts from 1.
StepNumbers run_step(Session& session, const NextBatch& next, std::uint32_t step);

/// Mean loss over the counted targets of `batches` batches; phase evaluation throughout.
double run_evaluation(Session& session, const NextBatch& next, std::int64_t batches, std::uint32_t step);

/// Runs `save` with the default generator's state, in phase save: the one tensor that saving makes.
void run_save(const std::function<void(const at::Tensor& generator)>& save, std::uint32_t step);
}  // namespace cinch::train
