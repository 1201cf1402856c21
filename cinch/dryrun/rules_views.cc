// Views, factories, copies.
#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

std::vector<Bytes> copy_scratch(const OpArguments& arguments) {
  const auto to = arguments.tensor(0), from = arguments.tensor(1);
  const bool fits = to.is_contiguous() && to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes();
  return {fits ? tile_of_copy(from) : Bytes()};
}
}  // namespace

void add_view_rules(RuleTable& table) {
  const OpRule shape{.kind = OpRule::Kind::kShape};
  table.add_all(
      "view _unsafe_view _reshape_alias as_strided transpose permute t expand slice select unsqueeze squeeze split "
      "split_with_sizes unbind detach alias diagonal unfold lift_fresh unsqueeze_ squeeze_ t_ transpose_ as_strided_",
      shape);
  const OpRule in_place{.kind = OpRule::Kind::kInPlace};
  table.add_all("fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ masked_fill_", in_place);
  table.add_all("copy_", {.kind = OpRule::Kind::kInPlace, .scratch = copy_scratch});
  table.add_all("arange linspace eye", shape);
  // repeat() writes the strides of its result into memory of its own: with fake tensors it would have none.
  table.add_all("repeat randperm normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor",
                {.kind = OpRule::Kind::kProbe});
  table.add_all(
      "zeros ones full zeros_like ones_like full_like empty_like new_empty new_zeros new_ones new_full "
      "new_empty_strided "
      "rand randn randint rand_like randn_like randint_like normal scalar_tensor clone _to_copy "
      "stack bernoulli select_backward slice_backward diagonal_backward masked_fill detach_ lift",
      {.kind = OpRule::Kind::kDecompose});
}
}  // namespace cinch::dryrun::internal
