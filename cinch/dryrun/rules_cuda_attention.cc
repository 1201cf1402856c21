// The fused attention kernels of CUDA. Which of them runs is decided in internal/attention_choice.h.
// Layouts and scratch as in aten/src/ATen/native/transformers/cuda: attention.cu, attention_backward.cu,
// flash_attn/flash_api.cpp. What cuDNN takes inside is its own: counted as flash's, which works the same way.
#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// [batch, heads, length, size] that lies as [batch, length, heads, size].
at::Tensor by_length(const at::Tensor& query, std::int64_t size) {
  return empty_meta({query.size(0), query.size(2), query.size(1), size}, query.scalar_type()).transpose(1, 2);
}
at::Tensor random_state(std::int64_t numbers) {
  return numbers == 1 ? empty_meta({}, at::kLong) : empty_meta({numbers}, at::kLong);
}

std::vector<at::Tensor> flash_shape(const OpArguments& call) {
  const auto query = call.tensor(0);
  return {empty_meta_like(query),
          empty_meta({query.size(0), query.size(1), query.size(2)}, at::kFloat),
          {},
          {},
          random_state(2),
          random_state(1),
          empty_meta({0}, query.scalar_type())};
}

std::vector<at::Tensor> cudnn_shape(const OpArguments& call) {
  const auto query = call.tensor(0);
  return {empty_meta_like(query),
          empty_meta({query.size(0), query.size(1), query.size(2), 1}, at::kFloat),
          {},
          {},
          random_state(1),
          random_state(1),
          empty_meta({0}, query.scalar_type())};
}

std::vector<at::Tensor> efficient_shape(const OpArguments& call) {
  const auto query = call.tensor(0);
  const auto rows = call[4].toBool() ? round_up(query.size(2), 32) : 0;
  return {by_length(query, call.tensor(2).size(3)), empty_meta({query.size(0), query.size(1), rows}, at::kFloat),
          random_state(1), random_state(1)};
}

std::vector<at::Tensor> gradients(const OpArguments& call) {
  return {empty_meta_like(call.tensor(1)), empty_meta_like(call.tensor(2)), empty_meta_like(call.tensor(3))};
}

std::vector<at::Tensor> efficient_gradients(const OpArguments& call) {
  const auto query = call.tensor(1), key = call.tensor(2), value = call.tensor(3), bias = call.tensor(4);
  return {by_length(query, query.size(3)), by_length(key, key.size(3)), by_length(value, value.size(3)),
          bias.defined() && call[10].toBoolList()[3] ? empty_meta_like(bias) : at::Tensor()};
}

/// The rows' sums, the query's gradient in float32, and with fewer key heads than query heads the gradients of both
/// before they are summed over a group.
std::vector<Bytes> flash_backward_scratch(const OpArguments& call) {
  const auto query = call.tensor(1), key = call.tensor(2);
  const auto batch = query.size(0), heads = query.size(1), size = query.size(3);
  const auto rows = round_up(query.size(2), 128);
  const auto rounded = size <= 192 ? round_up(size, 32) : 256;
  std::vector<Bytes> scratch{bytes_of(batch * heads * rows, at::kFloat),
                             bytes_of(batch * heads * rows * rounded, at::kFloat)};
  if (key.size(1) != heads)
    scratch.insert(scratch.end(), 2, bytes_of(batch * key.size(2) * heads * size, key.scalar_type()));
  return scratch;
}

/// The rows' sums; half types accumulate the query's gradient in float32.
std::vector<Bytes> efficient_backward_scratch(const OpArguments& call) {
  const auto query = call.tensor(1);
  const auto batch = query.size(0), heads = query.size(1);
  std::vector<Bytes> scratch{bytes_of(batch * heads * query.size(2), at::kFloat)};
  if (query.scalar_type() != at::kFloat)
    scratch.push_back(bytes_of(batch * heads * round_up(query.size(2), 64) * round_up(query.size(3), 32), at::kFloat));
  return scratch;
}

template <std::size_t Causal>
double forward_flops(const OpArguments& call) {
  return attention_flops(call.tensor(0), call.tensor(1), call[Causal].toBool());
}
template <std::size_t Causal>
double backward_flops(const OpArguments& call) {
  return 2.5 * attention_flops(call.tensor(1), call.tensor(2), call[Causal].toBool());
}
}  // namespace

void add_cuda_attention_rules(RuleTable& table) {
  constexpr auto kShape = OpRule::Kind::kShape;
  table.add_all("_scaled_dot_product_flash_attention",
                {.kind = kShape, .shape = flash_shape, .flops = forward_flops<4>});
  table.add_all(
      "_scaled_dot_product_flash_attention_backward",
      {.kind = kShape, .shape = gradients, .cuda_scratch = flash_backward_scratch, .flops = backward_flops<11>});
  table.add_all("_scaled_dot_product_cudnn_attention",
                {.kind = kShape, .shape = cudnn_shape, .flops = forward_flops<6>});
  table.add_all(
      "_scaled_dot_product_cudnn_attention_backward",
      {.kind = kShape, .shape = gradients, .cuda_scratch = flash_backward_scratch, .flops = backward_flops<14>});
  table.add_all("_scaled_dot_product_efficient_attention",
                {.kind = kShape, .shape = efficient_shape, .flops = forward_flops<6>});
  table.add_all("_scaled_dot_product_efficient_attention_backward", {.kind = kShape,
                                                                     .shape = efficient_gradients,
                                                                     .cuda_scratch = efficient_backward_scratch,
                                                                     .flops = backward_flops<11>});
}
}  // namespace cinch::dryrun::internal
