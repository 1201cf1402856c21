#include "cinch/techniques/internal/kept_outputs.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include "cinch/core/error.h"

namespace cinch::techniques::internal {
namespace {

thread_local KeptOutputs* current = nullptr;

/// An alias that shares the version counter, not the place in a graph: `tensor` itself would be a cycle.
at::Tensor alias_of(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
}

/// LibTorch's own treatment of this key, for an op that has a kernel of ours on it.
void negate(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto count = op.schema().arguments().size();
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(count); value != stack.end(); ++value) {
    if (value->isTensor() && value->toTensor().defined() && value->toTensor().is_neg()) {
      *value = value->toTensor().resolve_neg();
    } else if (value->isTensorList()) {
      auto list = value->toTensorList().copy();
      for (std::size_t i = 0; i < list.size(); ++i) {
        const at::Tensor& tensor = list.get(i);
        if (tensor.defined() && tensor.is_neg()) list.set(i, tensor.resolve_neg());
      }
      *value = list;
    }
  }
}

/// Ops whose results are views that LibTorch does not track: their base does not see that one is changed in place.
/// Layers rely on it: an LSTM cell computes its gates in such views of a product.
void unsafe_view(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKeepingKey), stack);
  if (current == nullptr) return;
  const auto& result = stack->back();
  if (result.isTensor()) {
    current->watch(result.toTensor());
  } else {
    for (const at::Tensor& part : result.toTensorVector()) current->watch(part);
  }
}

/// add_(): nn::Linear adds its bias in place to a product of matrices.
void change(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKeepingKey);
  const at::Tensor changed = torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor();
  const bool negated = changed.is_neg();
  negate(op, *stack);  // a copy, then
  if (current != nullptr) current->copy_before_change(changed);
  op.redispatchBoxed(below, stack);
  if (negated) stack->back() = changed.copy_(stack->back().toTensor());
}

void kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKeepingKey);
  negate(op, *stack);
  if (current == nullptr || !current->keeps(op)) {
    op.redispatchBoxed(below, stack);
  } else {
    current->call(op, below, *stack);
  }
}

/// "aten::addmm"
std::string name_of(const c10::OperatorHandle& op) { return c10::toString(op.operator_name()); }

}  // namespace

namespace {

void add_kernel(const c10::OperatorHandle& op, c10::KernelFunction function) {
  static auto* registered = new std::vector<c10::RegistrationHandleRAII>;  // for good
  registered->push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), kKeepingKey, std::move(function), std::nullopt, nullptr, "cinch: selective checkpoints"));
}

struct Silent final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// Once.
void see_changes() {
  Silent silent;  // LibTorch's kernel of the first one passes on, as ours does: to replace it is no cause for a warning
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  const std::pair<const char*, const char*> views[] = {
      {"aten::_unsafe_view", ""}, {"aten::unsafe_split", "Tensor"}, {"aten::unsafe_split_with_sizes", ""}};
  for (const auto& [name, overload] : views) {
    add_kernel(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload),
               c10::KernelFunction::makeFromBoxedFunction<&unsafe_view>());
  }
  add_kernel(c10::Dispatcher::singleton().findSchemaOrThrow("aten::add_", "Tensor"),
             c10::KernelFunction::makeFromBoxedFunction<&change>());
}

}  // namespace

void intercept(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* registered = new std::unordered_set<c10::OperatorHandle>;
  const std::lock_guard lock(mutex);
  if (registered->count(op) != 0) return;
  if (op.hasKernelForDispatchKey(kKeepingKey)) {
    throw UnsupportedError("a checkpoint cannot keep the outputs of " + name_of(op) + ": LibTorch treats it apart");
  }
  if (registered->empty()) see_changes();
  add_kernel(op, c10::KernelFunction::makeFromBoxedFunction<&kernel>());
  registered->insert(op);
}

void KeptOutputs::begin_second_run(std::string region) {
  forward_ = false;
  region_ = std::move(region);
  next_ = 0;
}

void KeptOutputs::call(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const NoKeeping inside;
  if (forward_) {
    op.redispatchBoxed(below, &stack);
    keep(op, stack);
    return;
  }
  const auto index = next_++;
  if (index >= outputs_.size() || outputs_[index].op != op) {
    throw Error(
        "Recomputing " + region_ + " called another op than its forward: kept op " + std::to_string(index) + " was " +
            (index < outputs_.size() ? name_of(outputs_[index].op) : std::string("none")) + ", now " + name_of(op) +
            ".",
        "A checkpointed function must do the same both times: nothing in it may depend on what changes between.");
  }
  if (!can_give_back(outputs_[index])) {
    op.redispatchBoxed(below, &stack);
  } else {
    torch::jit::drop(stack, op.schema().arguments().size());
    give_back(outputs_[index], stack);
  }
}

void KeptOutputs::keep(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  Output output(op);
  std::vector<at::Tensor> tensors;
  const auto count = static_cast<std::ptrdiff_t>(op.schema().returns().size());
  for (auto value = stack.end() - count; value != stack.end(); ++value) {
    if (value->isTensor() && value->toTensor().defined()) {
      tensors.push_back(value->toTensor());
      output.tensors.emplace_back(std::in_place, tensors.back(), policy_);
      output.storages.push_back(tensors.back().storage().unsafeGetStorageImpl());
    } else {
      output.tensors.emplace_back();
      output.others.push_back(*value);
    }
  }
  if (tensors.size() == 1) {
    output.sizes = tensors.front().sizes();
    output.strides = tensors.front().strides();
    output.offset = tensors.front().storage_offset();
  }
  if (op.hasTag(at::Tag::nondeterministic_seeded)) output.generators = GeneratorStates(tensors);
  outputs_.push_back(std::move(output));
}

KeptOutputs::Output* KeptOutputs::over(const at::Tensor& tensor) {
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  for (auto output = outputs_.rbegin(); output != outputs_.rend(); ++output) {
    if (std::count(output->storages.begin(), output->storages.end(), storage) != 0) return &*output;
  }
  return nullptr;
}

void KeptOutputs::watch(const at::Tensor& view) {
  if (!forward_ || !view.has_storage()) return;
  if (auto* output = over(view)) output->views.emplace_back(view);
}

void KeptOutputs::copy_before_change(const at::Tensor& tensor) {
  if (!forward_ || !tensor.has_storage()) return;
  auto* output = over(tensor);
  if (output == nullptr || output->tensors.size() != 1 || !can_give_back(*output)) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const NoKeeping own;
  const auto before = tensor.as_strided(output->sizes, output->strides, output->offset).clone();
  output->tensors.front().emplace(before, policy_);
  output->storages.clear();
  output->views.clear();
  output->changes = true;
}

bool KeptOutputs::can_give_back(const Output& output) const {
  if (output.gone) return false;
  if (std::any_of(output.views.begin(), output.views.end(), [](const auto& view) { return view.changed(); }))
    return false;
  return std::none_of(output.tensors.begin(), output.tensors.end(),
                      [](const auto& tensor) { return tensor && tensor->changed(); });
}

void KeptOutputs::give_back(Output& output, torch::jit::Stack& stack) {
  const bool stays =
      torch::autograd::get_current_graph_task_id() < 0 || torch::autograd::get_current_graph_task_keep_graph();
  auto other = output.others.begin();
  for (const auto& tensor : output.tensors) {
    if (tensor) {
      stack.emplace_back(output.changes && stays ? tensor->unpack().clone() : alias_of(tensor->unpack()));
    } else {
      stack.push_back(*other++);
    }
  }
  output.generators.restore();
  if (stays) return;
  output.tensors.clear();
  output.others.clear();
  output.gone = true;
}

KeepingScope::KeepingScope(KeptOutputs* kept) noexcept
    : before_(std::exchange(current, kept)), included_(c10::impl::tls_is_dispatch_key_included(kKeepingKey)) {
  c10::impl::tls_set_dispatch_key_included(kKeepingKey, kept != nullptr);
}

KeepingScope::~KeepingScope() {
  c10::impl::tls_set_dispatch_key_included(kKeepingKey, included_);
  current = before_;
}

}  // namespace cinch::techniques::internal
