// Element by element.
#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>

#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// TensorIterator casts what is not of the common type into temporaries (ATen/TensorIterator.cpp, compute_types).
std::vector<Bytes> casts(const OpArguments& arguments) {
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (auto tensor = arguments.tensor(i); tensor.defined()) inputs.push_back(tensor);
  if (inputs.size() < 2) return {};
  at::native::ResultTypeState state{};
  for (const auto& input : inputs) state = at::native::update_result_type_state(input, state);
  const auto common = at::native::result_type(state);
  std::vector<Bytes> scratch;
  const auto* alias = arguments.op().schema().arguments().front().alias_info();
  if (alias != nullptr && alias->isWrite() && inputs.front().scalar_type() != common)  // In place: as the output too.
    scratch.push_back(bytes_of(inputs.front().numel(), common));
  for (const auto& input : inputs)
    if (input.scalar_type() != common) scratch.push_back(bytes_of(input.numel(), common));
  return scratch;
}

/// The output and the mask.
std::vector<at::Tensor> dropout_shape(const OpArguments& arguments) {
  const auto output = empty_meta_like(arguments.tensor(0));
  return {output, at::empty_like(output, output.options().dtype(at::kBool))};
}
}  // namespace

void add_pointwise_rules(RuleTable& table) {
  const OpRule with_casts{.kind = OpRule::Kind::kShape, .scratch_before = casts};
  table.add_all(
      "add.Tensor add_.Tensor sub.Tensor sub_.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor minimum maximum "
      "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor addcmul addcmul_ addcdiv addcdiv_ pow.Tensor_Tensor",
      with_casts);
  table.add_all(
      "neg neg_ exp exp_ log log_ log1p sqrt sqrt_ rsqrt reciprocal reciprocal_ tanh tanh_ sigmoid sigmoid_ sin cos erf sign "
      "floor ceil round abs_ clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ pow.Tensor_Scalar "
      "eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar gelu gelu_ gelu_backward silu silu_ silu_backward "
      "threshold threshold_ threshold_backward tanh_backward sigmoid_backward leaky_relu leaky_relu_ leaky_relu_backward elu "
      "elu_ elu_backward softplus softplus_backward lerp.Scalar lerp_.Scalar tril triu",
      {.kind = OpRule::Kind::kShape});
  table.add_all("relu relu_ abs mul.Scalar mul_.Scalar div.Scalar div_.Scalar add.Scalar add_.Scalar sub.Scalar sub_.Scalar "
                "rsub.Scalar pow_.Scalar native_dropout_backward",
                {.kind = OpRule::Kind::kDecompose});
  table.add_all("native_dropout", {.kind = OpRule::Kind::kShape, .shape = dropout_shape});
  table.add_all("where.self hardtanh hardtanh_ hardtanh_backward hardswish hardswish_ hardswish_backward hardsigmoid hardsigmoid_backward "
                "prelu _prelu_kernel _prelu_kernel_backward mish mish_backward log_sigmoid_forward log_sigmoid_backward glu "
                "glu_backward softshrink softshrink_backward logical_not logical_and logical_or bitwise_not bitwise_and bitwise_or",
                {.kind = OpRule::Kind::kProbe});
  table.add_all("mul.out add.out sub.out div.out", {.kind = OpRule::Kind::kInPlace, .scratch_before = casts});
}
}  // namespace cinch::dryrun::internal
