#include "cinch/techniques/internal/frame.h"

#include <exception>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "cinch/core/error.h"
#include "cinch/techniques/internal/describe.h"
#include "cinch/trace/scope.h"

namespace cinch::techniques::internal {
namespace {

/// Thrown to end a second run when all that backward needs exists. An std::exception, because autograd's engine,
/// through which it may pass, catches no other.
struct Enough final : std::exception {
  explicit Enough(const Frame* owner) : frame(owner) {}
  const char* what() const noexcept override { return "cinch: end of an activation checkpoint's second run"; }
  const Frame* frame;
};

/// What a second run saves for a backward of its own, inside the region.
class Held final : public SavedHandle {
 public:
  explicit Held(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor unpack() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

/// Copies of tensors that a second run must leave as they are.
class Untouched {
 public:
  explicit Untouched(at::ArrayRef<at::Tensor> tensors) : tensors_(tensors) {
    const at::NoGradGuard no_grad;
    copies_.reserve(tensors.size());
    for (const auto& tensor : tensors) copies_.push_back(tensor.clone());
  }
  void restore() const {
    // Below the kernels that count versions: to autograd nothing has changed, as nothing has.
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (std::size_t i = 0; i < copies_.size(); ++i) tensors_[i].copy_(copies_[i]);
  }

 private:
  at::ArrayRef<at::Tensor> tensors_;
  std::vector<at::Tensor> copies_;
};

std::string module_now() {
  const auto* module = trace::current().module;
  return module == nullptr ? std::string() : *module;
}

std::string describe(at::ScalarType dtype, at::IntArrayRef sizes, at::Device device) {
  return internal::describe(dtype, sizes) + " on " + device.str();
}

}  // namespace

void Slot::put(int task, const at::Tensor& tensor, at::Tensor kept) {
  values_.push_back({task, SavedVersion(tensor), std::move(kept)});
}

std::optional<at::Tensor> Slot::take(int task) {
  for (auto value = values_.begin(); value != values_.end(); ++value) {
    if (value->task != task) continue;
    value->version.check();
    auto tensor = std::move(value->tensor);
    values_.erase(value);
    return tensor;
  }
  return std::nullopt;
}

void Slot::forget(int task) {
  std::erase_if(values_, [task](const Value& value) { return value.task == task; });
}

/// Policy of the second run: keeps what the graph may still ask for, until it has all of it.
class Frame::Keep final : public SavedTensorPolicy {
 public:
  Keep(Frame& frame, int task) : frame_(frame), task_(task), needed_(frame.needed()) {}

  std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor) override {
    const at::DisableRecordFunctionGuard not_the_regions;
    if (enough()) throw Enough(&frame_);  // again: something in the region caught the first
    frame_.check_ops();
    const auto& save = frame_.saves_[count_];
    if (frame_.policy_.check_recomputation) frame_.check(count_, tensor);
    auto kept = tensor.detach();
    if (const auto slot = save.slot.lock()) slot->put(task_, tensor, kept);
    ++count_;
    if (enough()) throw Enough(&frame_);
    return std::make_unique<Held>(std::move(kept));
  }
  bool enough() const { return count_ == needed_; }
  std::size_t count() const { return count_; }

 private:
  Frame& frame_;
  const int task_;
  const std::size_t needed_;
  std::size_t count_ = 0;
};

Frame::Frame(const CheckpointPolicy& policy, at::ArrayRef<at::Tensor> inputs, detail::CheckpointRegion::Rerun rerun)
    : policy_(policy), rerun_(std::move(rerun)), module_(module_now()), calls_(call_context()) {
  inputs_.reserve(inputs.size());
  input_requires_grad_.reserve(inputs.size());
  for (const auto& input : inputs) {
    inputs_.push_back(input.defined() ? std::optional<SavedTensor>(std::in_place, input) : std::nullopt);
    input_requires_grad_.push_back(input.defined() && input.requires_grad());
  }
  if (policy_.preserve_rng_state) generators_ = GeneratorStates(inputs);
  if (!policy_.keep.empty()) kept_.emplace(policy_.keep, active_policy());
  if (policy_.determinism != DeterminismCheck::kNone)
    log_.emplace(policy_.determinism == DeterminismCheck::kValues, policy_.updated);
}

std::shared_ptr<Slot> Frame::drop(const at::Tensor& tensor) {
  auto slot = std::make_shared<Slot>();
  const std::lock_guard lock(mutex_);
  saves_.push_back({at::DimVector(tensor.sizes()), tensor.scalar_type(), tensor.device(), slot});
  return slot;
}

at::Tensor Frame::take(Slot& slot) {
  const int task = torch::autograd::get_current_graph_task_id();  // -1 outside any: nobody will ask for the rest
  const std::lock_guard lock(mutex_);
  if (auto tensor = slot.take(task)) return *std::move(tensor);
  recompute(task);
  auto tensor = slot.take(task);
  if (task < 0) forget_locked(task);
  return *std::move(tensor);  // there: recompute() reached every slot that lives
}

void Frame::forget(int task) {
  const std::lock_guard lock(mutex_);
  forget_locked(task);
}

void Frame::forget_locked(int task) {
  for (const auto& save : saves_) {
    if (const auto slot = save.slot.lock()) slot->forget(task);
  }
}

void Frame::recompute(int task) {
  forget_locked(task);
  trace::Context context = trace::current();
  context.recompute = true;
  context.module = module_.empty() ? nullptr : &module_;
  const trace::ContextScope traced(context);
  const CallContextScope calls(calls_);

  const auto generators_now = generators_.now();
  const Untouched updated(policy_.updated);
  const auto put_back = [&] {
    updated.restore();
    generators_now.restore();
  };
  Keep keep(*this, task);
  try {
    run_until_enough(keep);
  } catch (...) {
    put_back();
    forget_locked(task);
    throw;
  }
  put_back();
  if (task < 0) return;
  // A backward that does not reach all of the graph leaves tensors here.
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), task] {
    if (const auto frame = weak.lock()) frame->forget(task);
  });
}

void Frame::run_until_enough(Keep& keep) {
  const auto inputs = unpack_inputs();
  generators_.restore();
  const AutocastScope autocast(autocast_);
  const at::AutoGradMode grad_mode(true);
  const SavedTensorScope saving(keep);
  if (kept_) kept_->begin_second_run(where());
  if (log_) log_->begin_second_run();
  const KeepingScope keeping(kept_outputs());
  const OpLogScope logging(op_log());
  try {
    rerun_(inputs);
  } catch (const Enough& enough) {
    if (enough.frame != this) throw;
  }
  check_ops();
  if (keep.enough()) return;
  throw Error("Recomputing " + where() + " saved " + std::to_string(keep.count()) + " tensors, its forward " +
                  std::to_string(saves_.size()) + ".",
              "A checkpointed function must do the same both times: nothing in it may depend on what changes between.");
}

std::vector<at::Tensor> Frame::unpack_inputs() const {
  std::vector<at::Tensor> inputs(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i]) inputs[i] = inputs_[i]->unpack().detach().requires_grad_(input_requires_grad_[i]);
  }
  return inputs;
}

std::size_t Frame::needed() const {
  std::size_t count = saves_.size();
  while (count > 0 && saves_[count - 1].slot.expired()) --count;
  return count;
}

void Frame::check(std::size_t index, const at::Tensor& tensor) const {
  const auto& save = saves_[index];
  if (tensor.sizes() == at::IntArrayRef(save.sizes) && tensor.scalar_type() == save.dtype &&
      tensor.device() == save.device) {
    return;
  }
  const auto maker = tensor.grad_fn();
  throw Error("Recomputing " + where() + " gave another tensor than its forward: saved tensor " +
                  std::to_string(index) + (maker ? " (" + maker->name() + ")" : std::string()) + " was " +
                  describe(save.dtype, save.sizes, save.device) + ", now " +
                  describe(tensor.scalar_type(), tensor.sizes(), tensor.device()) + ".",
              "A checkpointed function must do the same both times: nothing in it may depend on what changes between.");
}

void Frame::check_ops() const {
  if (!log_ || !log_->difference()) return;
  throw Error("Recomputing " + where() + " did something else than its forward: " + *log_->difference() + ".",
              "A checkpointed function must do the same both times: nothing in it may depend on what changes between.");
}

std::string Frame::where() const { return module_.empty() ? "a checkpointed function" : module_; }

}  // namespace cinch::techniques::internal
