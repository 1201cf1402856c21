#pragma once
// What a plan decides once its division of the batch is given, one thing at a time: an item for the policy of each
// module, and one each for the loss, the gradients and the optimizer's state, with the options that a problem allows.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cinch/plan/solver.h"

namespace cinch::plan::internal {

/// The option taken of each item; 0 is plain training's.
using Choice = std::vector<std::uint8_t>;

/// Numbers for each option of each item, laid out by Items::at.
template <typename T>
using PerOption = std::vector<T>;

/// Whether what a module saves is away from the device until backward needs it.
bool moves_away(ActivationPolicy policy);

/// Whether plans may be tried in this precision.
bool may_autocast(const Problem& problem, Autocast precision);

class Items {
 public:
  /// `division`: a plan without activations, whose micro-batch and precision are not items.
  Items(const Problem& problem, Plan division);

  std::size_t size() const { return offsets_.size() - 1; }
  std::size_t modules() const { return modules_.size(); }  ///< They are the first items.
  std::size_t options(std::size_t item) const { return offsets_[item + 1] - offsets_[item]; }
  std::size_t at(std::size_t item, std::size_t option) const { return offsets_[item] + option; }
  std::size_t flat_size() const { return offsets_.back(); }
  const std::vector<std::size_t>& offsets() const { return offsets_; }

  std::size_t loss() const { return modules(); }
  std::size_t gradients() const { return modules() + 1; }  ///< Option 1: stepped in backward.
  std::size_t state() const { return modules() + 2; }

  std::size_t policies() const { return policies_.size(); }  ///< Options of a module, keeping included.
  ActivationPolicy policy(std::size_t option) const { return policies_[option]; }

  bool clips() const { return clips_; }  ///< Gradients are clipped by their global norm.

  Choice plain() const { return Choice(size()); }
  Plan plan(const Choice& choice) const;

 private:
  Plan division_;
  bool clips_;
  std::vector<std::string> modules_;
  std::vector<ActivationPolicy> policies_{ActivationPolicy::kKeep};
  std::vector<std::int64_t> losses_{0};
  std::vector<bool> in_backward_{false};
  std::vector<OptimizerPlan> states_{OptimizerPlan{}};
  std::vector<std::size_t> offsets_;
};
}  // namespace cinch::plan::internal
