#include "cinch/train/internal/steps.h"

#include <ATen/CPUGeneratorImpl.h>

#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"

namespace cinch::train {
namespace {
using trace::Phase;
using trace::PhaseScope;

data::Batch fetch(const NextBatch& next) {
  data::Batch batch = next();
  record::label(batch.inputs, trace::Category::kInput, "inputs");
  record::label(batch.targets, trace::Category::kInput, "targets");
  return batch;
}
}  // namespace

StepNumbers run_step(Session& session, const NextBatch& next, std::uint32_t step) {
  const PhaseScope rest(Phase::kOther, step);  // Where the batch and the loss are freed.
  const data::Batch batch = [&] {
    const PhaseScope data(Phase::kData, step);
    return fetch(next);
  }();
  const StepReport report = session.step(batch);
  StepNumbers numbers{report.loss.item<double>(), std::nullopt};
  if (report.grad_norm.defined()) numbers.grad_norm = report.grad_norm.item<double>();
  return numbers;
}

double run_evaluation(Session& session, const NextBatch& next, std::int64_t batches, std::uint32_t step) {
  const PhaseScope evaluation(Phase::kEvaluation, step);
  double sum = 0;
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < batches; ++i) {
    const data::Batch batch = fetch(next);
    sum += session.evaluate(batch).item<double>() * static_cast<double>(batch.target_count);
    targets += batch.target_count;
  }
  return sum / static_cast<double>(targets);
}

void run_save(const std::function<void(const at::Tensor&)>& save, std::uint32_t step) {
  const PhaseScope saving(Phase::kSave, step);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor state;
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    state = generator.get_state();
  }
  save(state);
}
}  // namespace cinch::train
