#include "cinch/train/session.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cinch/core/error.h"
#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/offload.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/autocast.h"
#include "cinch/techniques/scope.h"
#include "cinch/trace/scope.h"
#include "cinch/train/internal/scratch_folder.h"

namespace cinch::train {
namespace {
using trace::Phase;
using trace::PhaseScope;

std::unique_ptr<optim::Optimizer> base_optimizer(const models::Model& model, const job::TrainConfig& train,
                                                 plan::OptimizerState state) {
  const auto& config = train.optimizer;
  std::vector<optim::ParameterGroup> groups{{optim::named(model), train.learning_rate, config.weight_decay}};
  const optim::AdamWOptions adam{.beta1 = config.beta1, .beta2 = config.beta2, .eps = config.eps};
  switch (config.kind) {
    case job::OptimizerKind::kSgd: return optim::sgd(std::move(groups), {.momentum = config.momentum});
    case job::OptimizerKind::kAdam: return optim::adam(std::move(groups), adam);
    case job::OptimizerKind::kAdafactor: return optim::adafactor(std::move(groups));
    case job::OptimizerKind::kLion:
      return optim::lion(std::move(groups), {.beta1 = config.beta1, .beta2 = config.beta2});
    case job::OptimizerKind::kAdamW: break;
  }
  if (state == plan::OptimizerState::k8Bit)
    return optim::adamw_8bit(std::move(groups), {.beta1 = config.beta1, .beta2 = config.beta2, .eps = config.eps});
  return optim::adamw(std::move(groups), adam);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const models::Model& model, const job::TrainConfig& train,
                                                 const plan::OptimizerPlan& plan) {
  auto optimizer = base_optimizer(model, train, plan.state);
  if (plan.place == plan::StatePlace::kHost) return optim::offloaded(std::move(optimizer));
  if (plan.place == plan::StatePlace::kDevice) return optimizer;
  const std::filesystem::path run_dir = train.run_dir;
  std::error_code ignored;
  const bool there = !run_dir.empty() && std::filesystem::is_directory(run_dir, ignored);
  return optim::offloaded(std::move(optimizer),
                          {.place = optim::OffloadPlace::kDisk, .folder = there ? run_dir : temporary_files()});
}

at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& term) { return sum.defined() ? sum.add_(term) : term; }
}  // namespace

Session::Session(const job::Job& job, const plan::Plan& plan, at::DeviceType device)
    : train_(job.train), plan_(plan), device_(device) {
  if (!job::may_divide_batch(job) && micro_batch_size(train_.batch_size) < train_.batch_size)
    throw UsageError("the plan divides the batch of a model with batch norm, whose results depend on the division",
                     "set memory.divide_batch_norm = true to allow it, or train with micro_batch_size 0");
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(train_.seed);
  model_ = models::build(job.model);
  if (device_ != at::kCPU) model_->to(device_);
  compose();
}

Session::Session(std::shared_ptr<models::Model> model, const job::TrainConfig& train, const plan::Plan& plan)
    : train_(train), plan_(plan), model_(std::move(model)) {
  if (!model_) throw UsageError("a Session was given no model");
  const auto parameters = model_->parameters();
  if (!parameters.empty()) device_ = parameters.front().device().type();
  compose();
}

void Session::compose() {
  const plan::JobFacts facts = this->facts();
  if (const auto faults = plan::conflicts(plan_, facts); !faults.empty())
    throw UsageError("this plan: " + faults.front());
  for (const auto& parameter : model_->named_parameters())
    record::label(parameter.value(), trace::Category::kParameter, parameter.key());
  for (const auto& buffer : model_->named_buffers())
    record::label(buffer.value(), trace::Category::kBuffer, buffer.key());
  policies_ = std::make_unique<techniques::CallPolicies>(*model_, plan_.activations);
  model_->set_loss_chunk_size(plan_.loss_chunk_size);
  optimizer_ = make_optimizer(*model_, train_, plan_.optimizer);
  if (plan_.optimizer.in_backward) {
    auto stepping =
        optim::in_backward(std::move(optimizer_), {.max_grad_norm = train_.max_grad_norm, .two_passes = facts.clips});
    in_backward_ = stepping.get();
    optimizer_ = std::move(stepping);
  }
  if (precision() == job::Precision::kFp16) grad_scaler_.emplace();
}

job::Precision Session::precision() const {
  if (plan_.autocast == plan::Autocast::kBf16) return job::Precision::kBf16;
  if (plan_.autocast == plan::Autocast::kFp16) return job::Precision::kFp16;
  return train_.precision;
}

plan::JobFacts Session::facts() const {
  return {.divides_loss = model_->divides_loss(),
          .adamw = train_.optimizer.kind == job::OptimizerKind::kAdamW,
          .clips = train_.max_grad_norm.has_value(),
          .fp32 = train_.precision == job::Precision::kFp32,
          .scales_loss = train_.precision == job::Precision::kFp16,
          .on_card = device_ == at::kCUDA};
}

std::int64_t Session::micro_batch_size(std::int64_t batch_size) const {
  return plan_.micro_batch_size > 0 ? std::min(plan_.micro_batch_size, batch_size) : batch_size;
}

StepReport Session::step(const data::Batch& batch) {
  const auto step = static_cast<std::uint32_t>(steps_done_ + 1);
  try {
    return try_step(batch, step);
  } catch (...) {  // All or nothing, but for random numbers that were drawn and batch norm's statistics.
    optimizer_->zero_grad();
    if (grad_scaler_) grad_scaler_->abandon();
    techniques::flush_autograd();
    throw;
  }
}

StepReport Session::try_step(const data::Batch& batch, std::uint32_t step) {
  const techniques::UseCallPolicies use(*policies_);
  optimizer_->set_learning_rate(job::learning_rate_at(train_, step));
  model_->train();
  StepReport report;
  const auto stride = micro_batch_size(batch.size());
  for (std::int64_t first = 0; first < batch.size(); first += stride) {
    const auto between = (batch.size() - 1) / stride - 1;  // Micro-batches that are neither the first nor the last.
    const bool stands = abridged_ && first == stride && between > 1;
    const trace::RepeatScope repeat(stands ? static_cast<std::uint32_t>(between) : 1);
    const auto part = data::narrow(batch, first, std::min(stride, batch.size() - first));
    const bool last = first + stride >= batch.size();
    if (stands) first += (between - 1) * stride;
    report.loss = sum_of(report.loss, forward_backward(part, batch.target_count, step, last, report.grad_norm));
  }
  const PhaseScope phase(Phase::kOptimizer, step);
  if (in_backward_ == nullptr) report.grad_norm = optimizer_step().value_or(optim::StepResult{}).grad_norm;
  optimizer_->zero_grad();
  ++steps_done_;
  return report;
}

std::optional<optim::StepResult> Session::optimizer_step() {
  const optim::StepOptions options{.max_grad_norm = train_.max_grad_norm};
  if (!grad_scaler_) return optimizer_->step(options);
  auto result = grad_scaler_->step(*optimizer_, options);
  grad_scaler_->update();
  return result;
}

at::Tensor Session::loss_sum(const data::Batch& part) {
  std::optional<techniques::Autocast> autocast;
  if (precision() == job::Precision::kBf16) autocast.emplace(device_, at::kBFloat16);
  if (precision() == job::Precision::kFp16) autocast.emplace(device_, at::kHalf);
  return model_->loss_sum(part);
}

at::Tensor Session::forward_backward(const data::Batch& part, std::int64_t target_count, std::uint32_t step, bool last,
                                     at::Tensor& grad_norm) {
  at::Tensor loss;
  {
    const PhaseScope phase(Phase::kForward, step);
    // Weighted by counted targets over all micro-batches: any division of a batch gives the same gradient.
    loss = loss_sum(part).div(static_cast<double>(std::max<std::int64_t>(target_count, 1)));
  }
  const PhaseScope phase(Phase::kBackward, step);
  if (in_backward_ != nullptr) {
    grad_norm = in_backward_->backward(loss, last).grad_norm;
  } else {
    (grad_scaler_ ? grad_scaler_->scale(loss) : loss).backward();
  }
  for (const auto& group : optimizer_->groups())
    for (const auto& parameter : group.parameters)
      record::label(parameter.tensor.grad(), trace::Category::kGradient, parameter.name);
  return loss.detach();
}

at::Tensor Session::evaluate(const data::Batch& batch) {
  const PhaseScope phase(Phase::kEvaluation, static_cast<std::uint32_t>(steps_done_));
  const at::NoGradGuard no_grad;
  const techniques::UseCallPolicies use(*policies_);
  const bool trained = model_->is_training();
  model_->eval();
  at::Tensor sum;
  const auto stride = micro_batch_size(batch.size());
  for (std::int64_t first = 0; first < batch.size(); first += stride)
    sum = sum_of(sum, loss_sum(data::narrow(batch, first, std::min(stride, batch.size() - first))));
  model_->train(trained);
  return sum.div_(static_cast<double>(std::max<std::int64_t>(batch.target_count, 1)));
}
}  // namespace cinch::train
