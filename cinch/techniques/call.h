#pragma once
// The one hook a C++ module has.
//
//   x = cinch::call(layers[i], x);     // instead of layers[i]->forward(x)
//
//  * the module's path names its allocations (found by identity among the root's named_modules(); unknown: its type name);
//  * its ActivationPolicy, if the plan has one, applies.
// Outside a Session it is a plain call. Nested calls nest. Same result type as forward().

#include <map>
#include <memory>
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
  /// The entry of a module of this model, or nullptr. Notes that the module was called.
  const Entry* find(const torch::nn::Module* module);
  /// Paths that went through call() so far, outermost only, in order of their first call: a planner's candidates.
  std::vector<std::string> called() const;

 private:
  friend class CallDepth;
  std::unordered_map<const torch::nn::Module*, Entry> entries_;
  std::vector<std::string> called_;
};

/// Makes `policies` those that call() consults on this thread.
class [[nodiscard]] UseCallPolicies {
 public:
  explicit UseCallPolicies(CallPolicies& policies) noexcept;
  ~UseCallPolicies();
  UseCallPolicies(const UseCallPolicies&) = delete;
  UseCallPolicies& operator=(const UseCallPolicies&) = delete;

 private:
  CallPolicies* before_;
};
}  // namespace techniques
// call() itself: to be written below by the techniques folder.
}  // namespace cinch
