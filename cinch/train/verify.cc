// train::verify: trainings held against each other, in lockstep.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/data/source.h"
#include "cinch/interchange/huggingface_weights.h"
#include "cinch/train/checkpoint.h"
#include "cinch/train/internal/scratch_folder.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
using plan::Equivalence;
using plan::Plan;

// Gradients in norm, relative: what sums in another order may differ by. A rounding of bfloat16 is 2^-8.
constexpr double kFp32Bound = 1e-6, kLowPrecisionBound = 2e-2;
constexpr int kSeeds = 4;  // Of plain training, whose spread is what a lossy technique may add.

/// One training, which may take turns with another: its random numbers are its own.
class Lane {
 public:
  Lane(const job::Job& job, const Plan& plan)
      : source_(data::open(job.data, job.model, job.train.batch_size, job.train.seed)), session_(job, plan) {
    if (!job.weights.empty()) interchange::load_huggingface(session_.model(), job.model, job.weights);
    keep_generator();
  }

  /// The loss.
  double step() {
    default_generator().set_state(generator_);
    const auto number = session_.steps_done() + 1;
    const StepNumbers numbers = run_step(
        session_, [this] { return source_->next(); }, static_cast<std::uint32_t>(number));
    keep_generator();
    if (!std::isfinite(numbers.loss)) {
      throw Error("the loss of step " + std::to_string(number) + " is not finite: nothing can be compared",
                  "Lower train.learning_rate, or verify fewer steps (--steps).");
    }
    grad_norm_ = numbers.grad_norm.value_or(0);
    return numbers.loss;
  }

  void save(const std::filesystem::path& folder) {
    save_checkpoint(folder, session_, generator_, {.step = session_.steps_done(), .data_position = source_->state()});
  }
  void restore(const std::filesystem::path& checkpoint) {
    source_->restore(load_checkpoint(checkpoint, session_).data_position);
    keep_generator();
  }

  std::map<std::string, at::Tensor> weights() const { return weights_of(session_.model()); }
  std::int64_t steps_done() const { return session_.steps_done(); }
  double grad_norm() const { return grad_norm_; }

 private:
  static at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }
  void keep_generator() { generator_ = default_generator().get_state(); }

  std::unique_ptr<data::Source> source_;
  mutable Session session_;
  at::Tensor generator_;
  double grad_norm_ = 0;
};

double squared_norm(const at::Tensor& tensor) {
  const double norm = at::linalg_vector_norm(tensor.to(at::kDouble)).item<double>();
  return norm * norm;
}

/// Of all weights together: |left - right| / |right|; and the first name under which they differ.
struct Distance {
  double relative = 0;
  std::string first;
};
Distance distance(const std::map<std::string, at::Tensor>& left, const std::map<std::string, at::Tensor>& right) {
  const at::NoGradGuard no_grad;
  Distance result;
  double difference = 0, size = 0;
  for (const auto& [name, tensor] : right) {
    const at::Tensor& other = left.at(name);
    if (!at::equal(other, tensor)) {
      if (result.first.empty()) result.first = name;
      difference += squared_norm(other.to(at::kDouble) - tensor.to(at::kDouble));
    }
    size += squared_norm(tensor);
  }
  if (difference > 0) result.relative = std::sqrt(difference / size);
  return result;
}

std::map<std::string, at::Tensor> copies(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, tensor] : tensors) result[name] = tensor.detach().clone();
  return result;
}

report::VerifyCheck check(std::string what, Equivalence promised, std::int64_t steps, double bound) {
  return {.what = std::move(what), .equivalence = promised, .steps = steps, .bound = bound};
}

/// Weights and losses of two plans, step by step, bit for bit.
report::VerifyCheck same_weights(const job::Job& job, const Plan& one, const Plan& other, std::string what,
                                 std::int64_t steps) {
  report::VerifyCheck result = check(std::move(what), Equivalence::kBitwise, steps, 0);
  Lane left(job, one), right(job, other);
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double left_loss = left.step(), right_loss = right.step();
    const Distance apart = distance(left.weights(), right.weights());
    const bool parted = left_loss != right_loss || !apart.first.empty();
    if (parted && result.parting.empty())
      result.parting = "step " + std::to_string(step) + ", " + (apart.first.empty() ? "the loss" : apart.first);
    result.difference = std::max(result.difference, apart.relative);
  }
  result.holds = result.parting.empty();
  return result;
}

job::Job without_dropout(job::Job job) {
  std::visit(
      [](auto& model) {
        if constexpr (requires { model.dropout; }) model.dropout = 0;
        if constexpr (requires { model.attention_dropout; }) model.attention_dropout = 0;
      },
      job.model);
  return job;
}

/// `job` as one step of plain SGD that moves every weight far enough for its change to be the gradient to rounding.
job::Job one_long_step(job::Job job) {
  job = without_dropout(std::move(job));
  job.train.optimizer = {.kind = job::OptimizerKind::kSgd};
  job.train.schedule = job::Schedule::kConstant;
  job.train.warmup_steps = 0;
  job.train.learning_rate = 1e-30;
  job.train.max_grad_norm = 1e30;  // Measured, never clipped.
  Lane lane(job, {});
  double weights = 0;
  for (const auto& [name, tensor] : lane.weights()) weights += squared_norm(tensor);
  lane.step();
  if (lane.grad_norm() > 0) job.train.learning_rate = 16 * std::max(1.0, std::sqrt(weights)) / lane.grad_norm();
  job.train.max_grad_norm.reset();
  return job;
}

std::map<std::string, at::Tensor> gradient(const job::Job& job, const Plan& plan) {
  Lane lane(job, plan);
  auto before = copies(lane.weights());
  lane.step();
  std::map<std::string, at::Tensor> change;
  for (const auto& [name, tensor] : lane.weights()) {
    if (tensor.is_floating_point()) change[name] = tensor.detach().to(at::kDouble) - before.at(name).to(at::kDouble);
  }
  return change;
}

/// The gradient of the first batch, dropout off: dividing a batch draws other random numbers.
report::VerifyCheck same_gradient(const job::Job& job, const Plan& plan, std::string what) {
  const bool low = job.train.precision != job::Precision::kFp32;
  report::VerifyCheck result =
      check(std::move(what), Equivalence::kReassociated, 1, low ? kLowPrecisionBound : kFp32Bound);
  const job::Job step = one_long_step(job);
  const auto plain = gradient(step, {}), planned = gradient(step, plan);
  result.difference = distance(planned, plain).relative;
  result.holds = result.difference <= result.bound;
  double worst = 0;
  for (const auto& [name, tensor] : plain) {
    const double apart = distance({{name, planned.at(name)}}, {{name, tensor}}).relative;
    if (result.holds || apart <= worst) continue;
    worst = apart;
    result.parting = "step 1, " + name;
  }
  return result;
}

double last_losses(const job::Job& job, const Plan& plan, std::int64_t steps) {
  Lane lane(job, plan);
  const std::int64_t first = steps - std::max<std::int64_t>(1, steps / 4);
  double sum = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const double loss = lane.step();
    if (step >= first) sum += loss;
  }
  return sum / static_cast<double>(steps - first);
}

/// The mean loss of the last quarter of the steps, against what another seed makes of it.
report::VerifyCheck within_noise(const job::Job& job, const Plan& lossy, const Plan& plain, std::int64_t steps) {
  double least = 0, most = 0, own = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    job::Job other = job;
    other.train.seed += static_cast<std::uint64_t>(seed);
    const double loss = last_losses(other, plain, steps);
    if (seed == 0) own = least = most = loss;
    least = std::min(least, loss);
    most = std::max(most, loss);
  }
  report::VerifyCheck result =
      check("lossy against not: the loss; at most what " + std::to_string(kSeeds) + " seeds spread",
            Equivalence::kLossy, steps, most - least);
  result.difference = std::abs(last_losses(job, lossy, steps) - own);
  result.holds = result.difference <= result.bound;
  return result;
}

report::VerifyCheck resumed(const job::Job& job, const Plan& plan, std::int64_t steps) {
  const ScratchFolder folder;
  const std::int64_t half = (steps + 1) / 2;
  report::VerifyCheck result =
      check("saved after step " + std::to_string(half) + " and resumed: every weight at the end", Equivalence::kBitwise,
            steps, 0);
  Lane whole(job, plan);
  while (whole.steps_done() < half) whole.step();
  whole.save(folder.path());
  while (whole.steps_done() < steps) whole.step();
  Lane resumed(job, plan);
  resumed.restore(*newest_checkpoint(folder.path()));
  while (resumed.steps_done() < steps) resumed.step();
  const Distance apart = distance(resumed.weights(), whole.weights());
  result.difference = apart.relative;
  result.holds = apart.first.empty();
  if (!result.holds) result.parting = "step " + std::to_string(steps) + ", " + apart.first;
  return result;
}
}  // namespace

std::vector<report::VerifyCheck> verify(const job::Job& given, const Plan& plan, const VerifyOptions& options) {
  if (options.steps < 1) throw UsageError("verify needs at least one step");
  job::Job job = given;
  job.train.steps = std::max(job.train.steps, options.steps);  // So that no schedule ends before the check.
  const Plan sums = plan::only(plan, std::array{Equivalence::kReassociated});
  const Plan exact = plan::only(plan, std::array{Equivalence::kBitwise, Equivalence::kReassociated});
  std::vector<report::VerifyCheck> checks;
  const auto add = [&](report::VerifyCheck done) {
    checks.push_back(std::move(done));
    if (options.on_check) options.on_check(checks.back());
  };
  if (exact != sums || plan == Plan{}) {
    const char* what = plan == Plan{} ? "plain training, twice: every weight after each step"
                                      : "planned against plain: every weight after each step";
    add(same_weights(job, exact, sums, what, options.steps));
  }
  if (sums != Plan{}) add(same_gradient(job, sums, "planned against plain: the gradient of one step, dropout off"));
  if (plan != exact) add(within_noise(job, plan, exact, options.steps));
  if (options.steps > 1) add(resumed(job, plan, options.steps));
  const bool divides = plan.micro_batch_size > 0;
  if (!divides && job.train.batch_size > 1 && job::may_divide_batch(job) && !job::has_batch_norm(job.model)) {
    const Plan halves{.micro_batch_size = (job.train.batch_size + 1) / 2};
    add(same_gradient(job, halves, "batch divided in two: the gradient of one step, dropout off"));
  }
  return checks;
}
}  // namespace cinch::train
