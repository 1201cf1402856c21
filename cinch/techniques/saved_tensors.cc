#include "cinch/techniques/saved_tensors.h"

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "cinch/core/error.h"
#include "cinch/techniques/internal/describe.h"
#include "cinch/trace/scope.h"

namespace cinch::techniques {
namespace {

thread_local std::vector<SavedTensorPolicy*> active_policies;

class Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { saved_.emplace(tensor); }
  at::Tensor call_unpack_hook() override { return saved_->unpack(); }

 private:
  std::optional<SavedTensor> saved_;
};

/// The default engine, which autograd asks for hooks each time it saves a tensor. The work is LibTorch's own engine's:
/// only the first engine of a process that runs has threads for devices.
class HookedEngine final : public torch::autograd::Engine {
  using NodePointer = decltype(torch::autograd::Edge::function);  // by version a shared_ptr or an intrusive_ptr

 public:
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, NodePointer root,
      torch::autograd::InputBuffer&& input) override {
    return get_base_engine().execute_with_graph_task(task, std::move(root), std::move(input));
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (active_policies.empty()) return nullptr;
    return std::make_unique<Hooks>();
  }
  static torch::autograd::Engine& instance() {
    // Never destroyed: its device threads may outlive main(), as those of LibTorch's own engine do.
    static auto* engine = new HookedEngine;
    return *engine;
  }
};

class Kept final : public SavedHandle {
 public:
  explicit Kept(const at::Tensor& tensor) : tensor_(tensor.detach()) {}
  at::Tensor unpack() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorPolicy& policy) {
  static const bool installed = [] {
    torch::autograd::set_default_engine_stub(&HookedEngine::instance);
    return true;
  }();
  static_cast<void>(installed);
  active_policies.push_back(&policy);
}

SavedTensorScope::~SavedTensorScope() { active_policies.pop_back(); }

SavedVersion::SavedVersion(const at::Tensor& tensor) : sizes_(tensor.sizes()), dtype_(tensor.scalar_type()) {
  if (const auto* module = trace::current().module) module_ = *module;
  if (tensor.is_inference()) return;  // it has no versions
  counter_ = tensor.unsafeGetTensorImpl()->version_counter();
  version_ = counter_.current_version();
}

bool SavedVersion::changed() const { return counter_.enabled() && counter_.current_version() != version_; }

void SavedVersion::check() const {
  if (!changed()) return;
  throw Error("A tensor saved for backward was changed in place before backward used it: " +
                  internal::describe(dtype_, sizes_) + (module_.empty() ? "" : ", saved in " + module_) +
                  ", at version " + std::to_string(version_) + ", now at version " +
                  std::to_string(counter_.current_version()) + ".",
              "Replace the in-place op (name_, +=) by one that makes a new tensor, or do it after backward.");
}

SavedTensorPolicy* active_policy() noexcept { return active_policies.empty() ? nullptr : active_policies.back(); }

std::unique_ptr<SavedHandle> keep(const at::Tensor& tensor) { return std::make_unique<Kept>(tensor); }

SavedTensor::SavedTensor(const at::Tensor& tensor) : SavedTensor(tensor, active_policy()) {}

SavedTensor::SavedTensor(const at::Tensor& tensor, SavedTensorPolicy* policy) : version_(tensor) {
  const at::NoGradGuard no_grad;
  handle_ = policy == nullptr ? keep(tensor) : policy->pack(tensor);
}

at::Tensor SavedTensor::unpack() const {
  version_.check();
  const at::NoGradGuard no_grad;
  return handle_->unpack();
}

}  // namespace cinch::techniques
