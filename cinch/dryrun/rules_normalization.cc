// Layer, group and batch normalization.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// Statistics are float32 where only the input is of half precision (ATen/native/cpu/mixed_data_type.h).
at::ScalarType statistics_dtype(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const auto mixed = [&](const at::Tensor& parameter) {
    return parameter.defined() && parameter.scalar_type() != input.scalar_type();
  };
  return at::isReducedFloatingType(input.scalar_type()) && (mixed(weight) || mixed(bias)) ? at::kFloat
                                                                                          : input.scalar_type();
}

std::int64_t elements(const std::vector<std::int64_t>& sizes) {
  std::int64_t product = 1;
  for (const auto size : sizes) product *= size;
  return product;
}

Bytes contiguous_copy(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_contiguous() ? Bytes() : bytes_of(tensor);
}

/// (input, normalized_shape, weight, bias, eps) to (output, mean, rstd).
std::vector<at::Tensor> layer_norm_shape(const OpArguments& arguments) {
  const auto input = arguments.tensor(0);
  auto outer = input.sizes().vec();
  const auto normalized = arguments[1].toIntVector().size();
  for (std::size_t i = outer.size() - normalized; i < outer.size(); ++i) outer[i] = 1;
  // The CUDA kernel's statistics are float32 (ATen/native/cuda/layer_norm_kernel.cu, acc_type).
  const auto dtype = arguments.on_cuda() && at::isReducedFloatingType(input.scalar_type())
                         ? at::kFloat
                         : statistics_dtype(input, arguments.tensor(2), arguments.tensor(3));
  return {empty_meta(input.sizes(), input.scalar_type()), empty_meta(outer, dtype), empty_meta(outer, dtype)};
}

std::vector<Bytes> layer_norm_copies(const OpArguments& arguments) {
  return {contiguous_copy(arguments.tensor(0)), contiguous_copy(arguments.tensor(2)), contiguous_copy(arguments.tensor(3))};
}

/// (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask) to gradients of input, weight, bias.
std::vector<at::Tensor> layer_norm_backward_shape(const OpArguments& arguments) {
  const auto input = arguments.tensor(1), weight = arguments.tensor(5), bias = arguments.tensor(6);
  const auto wanted = arguments[7].toBoolList();
  const auto of_parameter = [&](const at::Tensor& parameter) {
    return empty_meta(arguments[2].toIntVector(), parameter.defined() ? parameter.scalar_type() : input.scalar_type());
  };
  std::vector<at::Tensor> gradients(3);
  if (wanted[0]) gradients[0] = empty_meta(input.sizes(), input.scalar_type());
  if (wanted[1]) gradients[1] = of_parameter(weight);
  if (wanted[2]) gradients[2] = of_parameter(bias.defined() ? bias : weight);
  return gradients;
}

std::vector<Bytes> layer_norm_backward_copies(const OpArguments& arguments) {
  return {contiguous_copy(arguments.tensor(0)), contiguous_copy(arguments.tensor(1)), contiguous_copy(arguments.tensor(5))};
}

/// Each thread sums the gradients of weight and bias by itself (ATen/native/cpu/layer_norm_kernel.cpp).
std::vector<Bytes> layer_norm_backward_scratch(const OpArguments& arguments) {
  const auto input = arguments.tensor(1);
  const auto wanted = arguments[7].toBoolList();
  if ((!wanted[1] && !wanted[2]) || input.numel() == 0) return {};
  return {bytes_of(2 * arguments.threads() * elements(arguments[2].toIntVector()), input.scalar_type())};
}
}  // namespace

void add_normalization_rules(RuleTable& table) {
  table.add_all("native_layer_norm",
                {.kind = OpRule::Kind::kShape, .shape = layer_norm_shape, .scratch_before = layer_norm_copies});
  table.add_all("native_layer_norm_backward",
                {.kind = OpRule::Kind::kShape, .shape = layer_norm_backward_shape,
                 .scratch_before = layer_norm_backward_copies, .scratch = layer_norm_backward_scratch});
  table.add_all("native_group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward _fused_rms_norm",
                {.kind = OpRule::Kind::kProbe});
}
}  // namespace cinch::dryrun::internal
