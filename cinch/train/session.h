#pragma once
// Model, optimizer, schedule of one job under one plan. The same code real and dry: under a DryRun the tensors it makes
// are fake, and it does not know.
//
//   train::Session session(job, plan);
//   for (...) session.step(source->next());

#include <cstdint>
#include <memory>
#include <optional>

#include "cinch/job/job.h"
#include "cinch/models/model.h"
#include "cinch/optim/grad_scaler.h"
#include "cinch/optim/in_backward.h"
#include "cinch/optim/optimizer.h"
#include "cinch/plan/plan.h"
#include "cinch/techniques/call.h"

namespace cinch::train {

struct StepReport {
  at::Tensor loss;       ///< Mean loss over counted targets; a float32 scalar.
  at::Tensor grad_norm;  ///< Before clipping; undefined without max_grad_norm, and where the step was left out.
};

class Session {
 public:
  /// In this order: seed → model → labels → call policies → optimizer → schedule. Throws UsageError with the reason for
  /// settings that exclude each other.
  Session(const job::Job& job, const plan::Plan& plan, at::DeviceType device = at::kCPU);
  /// A user's own model; it may exist already.
  Session(std::shared_ptr<models::Model> model, const job::TrainConfig& train, const plan::Plan& plan);

  /// For each micro-batch forward and backward, weighted by its share of target_count; clip; optimizer step; gradients
  /// dropped. The number of steps done rises by one. In fp16 a step whose gradients overflowed counts, and leaves
  /// weights and optimizer state alone. A step that throws (out of memory) leaves weights, optimizer state and live
  /// memory as they were, and can be tried again; random numbers it drew are gone.
  StepReport step(const data::Batch& batch);
  /// From here on of a step's micro-batches the first, the second, which stands for all between, and the last alone run:
  /// for dry runs, whose memory it leaves as it is.
  void abridge() { abridged_ = true; }
  /// Mean loss; no gradients, model in eval mode; in micro-batches as training.
  at::Tensor evaluate(const data::Batch& batch);

  models::Model& model() { return *model_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  optim::GradScaler* grad_scaler() {
    return grad_scaler_ ? &*grad_scaler_ : nullptr;
  }  ///< Of fp16 alone, job's or plan's.
  const techniques::CallPolicies& policies() const { return *policies_; }
  plan::JobFacts facts() const;  ///< What of this training decides which techniques it allows.
  std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }

 private:
  void compose();
  job::Precision precision() const;  ///< The job's, or the plan's autocast.
  std::int64_t micro_batch_size(std::int64_t batch_size) const;
  StepReport try_step(const data::Batch& batch, std::uint32_t step);
  std::optional<optim::StepResult> optimizer_step();  ///< Nothing: left out.
  at::Tensor loss_sum(const data::Batch& part);
  /// `last` micro-batch of the step: an optimizer in backward then steps, and says the norm.
  at::Tensor forward_backward(const data::Batch& part, std::int64_t target_count, std::uint32_t step, bool last,
                              at::Tensor& grad_norm);

  job::TrainConfig train_;
  plan::Plan plan_;
  at::DeviceType device_ = at::kCPU;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<techniques::CallPolicies> policies_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  bool abridged_ = false;
  optim::BackwardOptimizer* in_backward_ = nullptr;  ///< optimizer_, if the plan has it step in backward.
  std::optional<optim::GradScaler> grad_scaler_;
  std::int64_t steps_done_ = 0;
};
}  // namespace cinch::train
