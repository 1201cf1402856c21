// What optimizers call: fused steps write in place, foreach ops are loops over their tensors.
#include <algorithm>

#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {
std::vector<at::Tensor> nothing(const OpArguments&) { return {}; }

/// Gradients are read in the order of memory: another one's copy lives while its parameter is stepped
/// (ATen/native/cpu/FusedAdamKernel.cpp and its siblings). One at a time: the largest counts.
std::vector<Bytes> gradient_copies(const OpArguments& arguments) {
  const auto sum = [](const std::vector<Bytes>& all) {
    Bytes total;
    for (const auto bytes : all) total += bytes;
    return total;
  };
  std::vector<Bytes> largest;
  for (const auto& gradient : arguments.tensors(1))
    if (auto copy = contiguous_copy(gradient); sum(copy) > sum(largest)) largest = std::move(copy);
  return largest;
}
}  // namespace

void add_optimizer_rules(RuleTable& table) {
  table.add_all("_fused_adamw_ _fused_adam_ _fused_sgd_ _fused_adagrad_",
                {.kind = OpRule::Kind::kShape, .shape = nothing, .scratch = gradient_copies});
  // Writes gradients and one number: a dry run's number stays as it was.
  table.add("aten::_amp_foreach_non_finite_check_and_unscale_", {.kind = OpRule::Kind::kShape, .shape = nothing});
  // cinch/optim/internal/ops.h. Their scratch is an argument.
  for (const char* op : {"cinch::adamw_8bit_", "cinch::lion_", "cinch::adafactor_"})
    table.add(op, {.kind = OpRule::Kind::kShape, .shape = nothing});
  table.add_all(
      "_foreach_add _foreach_add_ _foreach_mul _foreach_mul_ _foreach_div _foreach_div_ _foreach_norm _foreach_sub_ "
      "_foreach_sqrt _foreach_addcmul_ _foreach_addcdiv_ _foreach_lerp_ _foreach_zero_ _foreach_copy_",
      {.kind = OpRule::Kind::kDecompose});
}
}  // namespace cinch::dryrun::internal
