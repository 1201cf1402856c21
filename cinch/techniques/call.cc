#include "cinch/techniques/call.h"

#include <algorithm>
#include <mutex>
#include <typeindex>

#include <c10/util/Type.h>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/techniques/internal/call_context.h"

namespace cinch::techniques {

internal::CallContext& internal::call_context() noexcept {
  thread_local CallContext context;
  return context;
}

namespace {
/// What lives on the device for the whole of training, beside what requires gradients.
std::vector<at::Tensor> never_moved(const torch::nn::Module& root) {
  std::vector<at::Tensor> tensors = root.buffers();
  for (auto& parameter : root.parameters())
    if (!parameter.requires_grad()) tensors.push_back(std::move(parameter));
  return tensors;
}
}  // namespace

CallPolicies::CallPolicies(const torch::nn::Module& root,
                           const std::map<std::string, plan::ActivationPolicy>& activations) {
  std::vector<std::string> paths;
  const auto add = [&](const torch::nn::Module& module, const std::string& path) {
    const auto policy = activations.find(path);
    paths.push_back(path);
    // A module under two names keeps the first.
    modules_.try_emplace(&module,
                         Known{{path, policy == activations.end() ? plan::ActivationPolicy::kKeep : policy->second}});
  };
  add(root, "");
  for (const auto& item : root.named_modules("", /*include_self=*/false)) add(*item.value(), item.key());
  if (std::any_of(activations.begin(), activations.end(), [](const auto& entry) {
        return entry.second == plan::ActivationPolicy::kOffload ||
               entry.second == plan::ActivationPolicy::kCheckpointOffload;
      }))
    offload_ = std::make_unique<Offload>(OffloadOptions{.keep = never_moved(root)});
  for (const auto& [path, policy] : activations) {
    if (std::find(paths.begin(), paths.end(), path) != paths.end()) continue;
    const auto near = nearest(path, paths);
    throw UsageError("The model has no module \"" + path + "\".", near.empty() ? "" : "Did you mean \"" + near + "\"?");
  }
}

const CallPolicies::Entry* CallPolicies::find(const torch::nn::Module* module) {
  const auto found = modules_.find(module);
  if (found == modules_.end()) return nullptr;
  auto& known = found->second;
  if (!known.called && internal::call_context().depth == 0) {
    known.called = true;
    called_.push_back(known.entry.path);
  }
  return &known.entry;
}

std::vector<std::string> CallPolicies::called() const { return called_; }

UseCallPolicies::UseCallPolicies(CallPolicies& policies) noexcept
    : before_(std::exchange(internal::call_context().policies, &policies)) {}

UseCallPolicies::~UseCallPolicies() { internal::call_context().policies = before_; }

namespace detail {
namespace {

/// Name of the module's type. Never freed: a graph may outlive the module and still be named by it.
const std::string& type_name(const torch::nn::Module& module) {
  static std::mutex mutex;
  static auto* names = new std::unordered_map<std::type_index, std::string>;
  const std::lock_guard lock(mutex);
  auto [found, added] = names->try_emplace(typeid(module));
  if (added) found->second = c10::demangle(typeid(module).name());
  return found->second;
}

const CallPolicies::Entry* entry_of(const torch::nn::Module& module) {
  auto* policies = internal::call_context().policies;
  return policies == nullptr ? nullptr : policies->find(&module);
}

void add_training_buffers(const torch::nn::Module& module, std::vector<at::Tensor>& buffers) {
  if (module.is_training()) {
    for (auto& buffer : module.buffers(/*recurse=*/false)) {
      if (buffer.defined()) buffers.push_back(std::move(buffer));
    }
  }
  for (const auto& child : module.children()) add_training_buffers(*child, buffers);
}

}  // namespace

CallScope::CallScope(const torch::nn::Module& module)
    : module_(module),
      entry_(entry_of(module)),
      path_(entry_ == nullptr ? type_name(module) : entry_->path),
      recorded_(path_),
      traced_(path_) {
  // Of a module that checkpoints too, that is what the checkpoint keeps: its inputs.
  if (has(plan::ActivationPolicy::kOffload) || has(plan::ActivationPolicy::kCheckpointOffload))
    offload_.emplace(*internal::call_context().policies->offload());
  ++internal::call_context().depth;
}

CallScope::~CallScope() { --internal::call_context().depth; }

bool CallScope::has(plan::ActivationPolicy policy) const {
  return entry_ != nullptr && entry_->policy == policy && c10::GradMode::is_enabled();
}

bool CallScope::checkpoints() const {
  return has(plan::ActivationPolicy::kCheckpoint) || has(plan::ActivationPolicy::kSelective) ||
         has(plan::ActivationPolicy::kCheckpointOffload);
}

CheckpointPolicy CallScope::checkpoint_policy() const {
  CheckpointPolicy policy;
  add_training_buffers(module_, policy.updated);
  if (has(plan::ActivationPolicy::kSelective)) policy.keep = OpSet::matmuls_and_attention();
  return policy;
}

void refuse_checkpoint(const torch::nn::Module& module) {
  const auto* entry = entry_of(module);
  throw UsageError("\"" + (entry == nullptr ? type_name(module) : entry->path) +
                       "\" cannot be checkpointed: it is called with inputs that cannot be given to it again.",
                   "Let forward take its inputs by value or const reference, and let them be copyable.");
}

}  // namespace detail
}  // namespace cinch::techniques
