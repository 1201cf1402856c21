#pragma once
// The one hook a C++ module has.
//
//   x = cinch::call(layers[i], x);     // instead of layers[i]->forward(x)
//
//  * the module's path names its allocations (found by identity among the root's named_modules(); unknown: its type
//  name);
//  * its ActivationPolicy, if the plan has one, applies.
// Outside a Session it is a plain call, named by the module's type. Nested calls nest. Same result type as forward().

#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "cinch/plan/plan.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/techniques/offload.h"
#include "cinch/techniques/saved_tensors.h"
#include "cinch/trace/scope.h"

namespace cinch {
namespace techniques {

/// Module paths and policies for one model; made by Session from model and plan, consulted by call(). The root must
/// outlive it. Paths named by no module throw UsageError with the nearest.
class CallPolicies {
 public:
  CallPolicies(const torch::nn::Module& root, const std::map<std::string, plan::ActivationPolicy>& activations);
  struct Entry {
    std::string path;
    plan::ActivationPolicy policy = plan::ActivationPolicy::kKeep;
  };
  /// The entry of a module of this model, or nullptr. Notes that the module was called, unless within another call().
  const Entry* find(const torch::nn::Module* module);
  /// Paths that went through call() so far, outermost only, in order of their first call: a planner's candidates.
  std::vector<std::string> called() const;
  /// Where modules that offload send what they save; nullptr if none does. One for all, whose pages serve every step.
  Offload* offload() const noexcept { return offload_.get(); }

 private:
  struct Known {
    Entry entry;
    bool called = false;
  };
  std::unordered_map<const torch::nn::Module*, Known> modules_;
  std::vector<std::string> called_;
  std::unique_ptr<Offload> offload_;
};

/// Makes `policies` those that call() consults on this thread. A graph made meanwhile goes on using them: they must
/// outlive it.
class [[nodiscard]] UseCallPolicies {
 public:
  explicit UseCallPolicies(CallPolicies& policies) noexcept;
  ~UseCallPolicies();
  UseCallPolicies(const UseCallPolicies&) = delete;
  UseCallPolicies& operator=(const UseCallPolicies&) = delete;

 private:
  CallPolicies* before_;
};

namespace detail {

/// One call() in progress: names the module, looks up what to do.
class [[nodiscard]] CallScope {
 public:
  explicit CallScope(const torch::nn::Module& module);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  bool checkpoints() const;
  /// Of a module that checkpoints: its training submodules' buffers are updated once.
  CheckpointPolicy checkpoint_policy() const;

 private:
  bool has(plan::ActivationPolicy policy) const;

  const torch::nn::Module& module_;
  const CallPolicies::Entry* entry_;
  const std::string& path_;
  record::ForwardModule recorded_;
  trace::ModuleScope traced_;  ///< For error messages, where nothing records.
  std::optional<SavedTensorScope> offload_;
};

/// Throws UsageError: this call cannot be repeated.
[[noreturn]] void refuse_checkpoint(const torch::nn::Module& module);

template <class Contained>
Contained& module_of(const std::shared_ptr<Contained>& module) {
  return *module;
}
template <class Contained>
Contained& module_of(const torch::nn::ModuleHolder<Contained>& holder) {
  return *holder.ptr();
}
template <class Module>
requires std::derived_from<Module, torch::nn::Module> Module& module_of(Module& module) { return module; }
}  // namespace detail
}  // namespace techniques

/// `callee` is a module, a module holder or a shared_ptr to a module; the result is that of its forward(inputs...).
/// A checkpointed module keeps itself alive and copies its inputs; see checkpoint(). Throws UsageError for a policy
/// that these inputs do not allow (they cannot be copied, or forward changes them through a reference).
template <class Callee, class... Inputs>
auto call(Callee&& callee, Inputs&&... inputs)
    -> decltype(techniques::detail::module_of(callee).forward(std::forward<Inputs>(inputs)...)) {
  auto& module = techniques::detail::module_of(callee);
  const techniques::detail::CallScope scope(module);
  if (scope.checkpoints()) {
    if constexpr ((std::copy_constructible<std::decay_t<Inputs>> && ...) &&
                  requires(const std::decay_t<Inputs>&... copies) { module.forward(copies...); }) {
      return techniques::checkpoint(
          scope.checkpoint_policy(),
          [&module, owner = module.weak_from_this().lock()](const std::decay_t<Inputs>&... copies) -> decltype(auto) {
            return module.forward(copies...);
          },
          std::decay_t<Inputs>(inputs)...);
    } else {
      techniques::detail::refuse_checkpoint(module);
    }
  }
  return module.forward(std::forward<Inputs>(inputs)...);
}
}  // namespace cinch
