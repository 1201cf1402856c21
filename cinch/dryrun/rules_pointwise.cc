// Element by element.
#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>

#include "cinch/dryrun/internal/layouts.h"
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

/// Whole numbers become floating-point ones: quotients, roots, exponentials.
std::vector<Bytes> float_casts(const OpArguments& arguments) {
  std::vector<Bytes> scratch;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto input = arguments.tensor(i);
    if (!input.defined()) continue;
    if (!at::isIntegralType(input.scalar_type(), /*includeBool=*/true)) return casts(arguments);
    scratch.push_back(bytes_of(input.numel(), at::typeMetaToScalarType(at::get_default_dtype())));
  }
  return scratch;
}

/// The number that is compared with becomes a tensor, which is cast like any other.
std::vector<Bytes> comparison_scratch(const OpArguments& arguments) {
  const auto self = arguments.tensor(0);
  const auto number = arguments[1].toScalar();
  at::native::ResultTypeState state{};
  state = at::native::update_result_type_state(self, state);
  state = at::native::update_result_type_state(number, state);
  const auto common = at::native::result_type(state);
  return {bytes_of(1, number.type()), number.type() == common ? Bytes() : bytes_of(1, common),
          self.scalar_type() == common ? Bytes() : bytes_of(self.numel(), common)};
}

/// (condition, self, other). Other types of the two are cast as a whole.
std::vector<at::Tensor> where_shape(const OpArguments& arguments) {
  const auto self = arguments.tensor(1), other = arguments.tensor(2);
  return {iterated({arguments.tensor(0), self, other}, at::result_type(self, other))};
}
bool chooses_between_types(const OpArguments& arguments) {
  return !arguments.on_cuda() && arguments.tensor(1).scalar_type() != arguments.tensor(2).scalar_type();
}

/// One or two tensors of one type.
std::vector<at::Tensor> unary_shape(const OpArguments& arguments) {
  return {iterated({arguments.tensor(0)}, arguments.tensor(0).scalar_type())};
}
std::vector<at::Tensor> binary_shape(const OpArguments& arguments) {
  return {iterated({arguments.tensor(0), arguments.tensor(1)}, arguments.tensor(0).scalar_type())};
}

/// The output and the mask.
std::vector<at::Tensor> dropout_shape(const OpArguments& arguments) {
  const auto output = empty_meta_like(arguments.tensor(0));
  return {output, at::empty_like(output, output.options().dtype(at::kBool))};
}
/// On the CPU the mask is multiplied with as numbers.
std::vector<Bytes> dropout_scratch(const OpArguments& arguments) { return {bytes_of(arguments.tensor(0))}; }
}  // namespace

void add_pointwise_rules(RuleTable& table) {
  using Kind = OpRule::Kind;
  table.add_all(
      "add.Tensor add_.Tensor sub.Tensor sub_.Tensor mul.Tensor mul_.Tensor div_.Tensor minimum maximum eq.Tensor "
      "ne.Tensor "
      "lt.Tensor le.Tensor gt.Tensor ge.Tensor addcmul addcmul_ addcdiv addcdiv_ pow.Tensor_Tensor bitwise_and.Tensor "
      "bitwise_or.Tensor bitwise_xor.Tensor",
      {.kind = Kind::kShape, .scratch_before = casts});
  table.add_all("div.Tensor exp log log1p sqrt rsqrt reciprocal tanh sigmoid sin cos erf",
                {.kind = Kind::kShape, .scratch_before = float_casts});
  table.add_all(
      "neg neg_ exp_ log_ sqrt_ reciprocal_ tanh_ sigmoid_ sign floor ceil round clamp clamp_ clamp_min clamp_min_ "
      "clamp_max "
      "clamp_max_ pow.Tensor_Scalar pow_.Scalar gelu gelu_ gelu_backward silu silu_ silu_backward mish mish_ threshold "
      "threshold_ "
      "threshold_backward tanh_backward sigmoid_backward leaky_relu leaky_relu_ leaky_relu_backward elu elu_ "
      "elu_backward "
      "softplus softplus_backward softshrink softshrink_backward hardshrink hardshrink_backward hardsigmoid "
      "hardsigmoid_ "
      "hardsigmoid_backward glu bitwise_not lerp.Scalar lerp_.Scalar tril triu",
      {.kind = Kind::kShape});
  table.add_all("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar",
                {.kind = Kind::kShape, .scratch = comparison_scratch});
  table.add_all(
      "relu relu_ abs hardtanh hardtanh_ mul.Scalar mul_.Scalar div.Scalar div_.Scalar add.Scalar add_.Scalar "
      "sub.Scalar sub_.Scalar rsub.Scalar native_dropout_backward",
      {.kind = Kind::kDecompose});
  table.add_all("abs_ hardswish_", {.kind = Kind::kInPlace});
  table.add_all("hardswish", {.kind = Kind::kShape, .shape = unary_shape});
  table.add_all("hardtanh_backward hardswish_backward mish_backward", {.kind = Kind::kShape, .shape = binary_shape});
  table.add_all("where.self", {.kind = Kind::kShape, .shape = where_shape, .probe_if = chooses_between_types});
  table.add_all("native_dropout", {.kind = Kind::kShape, .shape = dropout_shape, .scratch = dropout_scratch});
  table.add_all("mul.out add.out sub.out div.out", {.kind = Kind::kShape, .scratch_before = casts});
}
}  // namespace cinch::dryrun::internal
