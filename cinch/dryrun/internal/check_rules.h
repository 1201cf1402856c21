#pragma once
// Rules against kernels: the oracle of tests.

#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "cinch/dryrun/internal/kernel_script.h"

namespace cinch::dryrun::internal {

/// While it lives, every call that a rule describes is also probed, and what differs is kept: layouts of the outputs,
/// bytes kept, peak. Costs the kernels' arithmetic.
class CheckRules {
 public:
  CheckRules();
  ~CheckRules();
  /// "aten::mm(float[2, 3] …): peak 96 by rule, 160 in the kernel"
  static const std::vector<std::string>& faults();
  /// Calls checked so far, by op.
  static std::size_t checked(const std::string& op);
};
bool checking_rules() noexcept;
/// `racing`: by so much the kernel's peak may stay below the rule's.
void check_rule(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const KernelScript& by_rule, Bytes racing);
}  // namespace cinch::dryrun::internal
