// Scaled dot-product attention. Which kernel runs is decided above, by LibTorch itself.
#include <ATen/OpMathType.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>

#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

double forward_flops(const OpArguments& arguments) {
  return attention_flops(arguments.tensor(0), arguments.tensor(1), arguments[4].toBool());
}

/// Five products where forward has two: the scores again, and the gradients of scores, query, key and value.
double backward_flops(const OpArguments& arguments) {
  return 2.5 * attention_flops(arguments.tensor(1), arguments.tensor(2), arguments[7].toBool());
}

/// [batch, heads, length, last]; lies in memory as [batch, length, heads, last], as the CPU's fused kernel makes it.
at::Tensor length_before_heads(const at::Tensor& like, std::int64_t last, at::ScalarType dtype) {
  return empty_meta({like.size(0), like.size(2), like.size(1), last}, dtype).transpose(1, 2);
}

/// (query, key, value, ...) to (output, logsumexp). The output lies as the query does.
std::vector<at::Tensor> flash_shape(const OpArguments& arguments) {
  const auto query = arguments.tensor(0);
  const auto statistics = at::toOpMathType(query.scalar_type());
  return {empty_meta_like(query),
          length_before_heads(query, 1, statistics).squeeze(-1)};
}

/// (grad_out, query, key, value, ...) to gradients of query, key, value.
std::vector<at::Tensor> flash_backward_shape(const OpArguments& arguments) {
  std::vector<at::Tensor> gradients;
  for (const std::size_t i : {1, 2, 3}) {
    const auto input = arguments.tensor(i);
    gradients.push_back(length_before_heads(input, input.size(3), input.scalar_type()));
  }
  return gradients;
}

/// The blocks that one thread works on (ATen/native/cpu/FlashAttentionKernel.cpp).
struct Blocks {
  std::int64_t query, key;
};
Blocks blocks_of(const at::Tensor& query, const at::Tensor& key) {
  const auto length = query.size(2);
  const std::int64_t block = length >= 768 ? 256 : length >= 192 ? 64 : 32;
  return {std::min(block, length), std::min<std::int64_t>(512, key.size(2))};
}

/// Where the processor multiplies half precision in packed blocks of 64, keys are packed if that pays.
bool packs(const at::Tensor& query, const at::Tensor& key, bool causal, const Blocks& blocks, int threads) {
  constexpr std::int64_t kBlock = 64;
  if (!at::isReducedFloatingType(query.scalar_type()) || !at::native::cpublas::could_pack(query.scalar_type())) return false;
  const auto heads = query.size(1), head = query.size(3), keys = key.size(2);
  if (heads < 4 || head % kBlock != 0 || keys < kBlock) return false;
  const auto slices = (query.size(2) + blocks.query - 1) / blocks.query;
  // Whole numbers, as the kernel divides.
  const std::int64_t packed = query.size(0) * heads * keys * head / 1024;
  const std::int64_t a_thread = (query.size(0) * heads * slices + threads - 1) / threads;
  const std::int64_t work = a_thread * blocks.query * (causal ? query.size(2) : keys) * head / 1024;
  const double ratio = static_cast<double>(work) / static_cast<double>(packed);
  if (packed < 2688) return ratio >= 36 || (ratio >= 24 && head > kBlock);
  if (packed < 16384) return ratio >= (causal ? 54 : 52);
  return ratio >= (causal ? 54 : 40);
}

/// Per thread: scores, their maxima and sums, a block of the output; in half precision the scores once more.
std::vector<Bytes> flash_scratch(const OpArguments& arguments) {
  const auto query = arguments.tensor(0), key = arguments.tensor(1);
  const auto blocks = blocks_of(query, key);
  const bool packed = packs(query, key, arguments[4].toBool(), blocks, arguments.threads());
  const auto keys = packed ? round_up(blocks.key, 64) : blocks.key;
  const auto dtype = query.scalar_type();
  std::vector<Bytes> scratch{
      bytes_of(arguments.threads() * (blocks.query * keys + 2 * blocks.query + blocks.query * query.size(3)),
               at::toOpMathType(dtype))};
  if (at::isReducedFloatingType(dtype))
    scratch.push_back(bytes_of(arguments.threads() * blocks.query * (packed ? round_up(blocks.key, 2) : blocks.key), dtype));
  return scratch;
}

/// A dense gradient; per thread scores and their gradient, in half precision once more, and the sums of rows.
std::vector<Bytes> flash_backward_scratch(const OpArguments& arguments) {
  const auto gradient = arguments.tensor(0).transpose(1, 2), query = arguments.tensor(1);
  const auto blocks = blocks_of(query, arguments.tensor(2));
  const auto dtype = query.scalar_type();
  std::vector<Bytes> scratch;
  if (!gradient.is_contiguous()) scratch.push_back(bytes_of(gradient));
  scratch.push_back(bytes_of(arguments.threads() * 2 * blocks.query * blocks.key, at::toOpMathType(dtype)));
  if (at::isReducedFloatingType(dtype)) scratch.push_back(bytes_of(arguments.threads() * 2 * blocks.query * blocks.key, dtype));
  const auto busy = std::min<std::int64_t>(arguments.threads(), query.size(0) * query.size(1));
  for (std::int64_t i = 0; i < busy; ++i) scratch.push_back(bytes_of(blocks.query, at::toOpMathType(dtype)));
  return scratch;
}
/// The sums of rows, which each thread frees when it is done.
Bytes flash_backward_racing(const OpArguments& arguments) {
  const auto query = arguments.tensor(1);
  return bytes_of((arguments.threads() - 1) * blocks_of(query, arguments.tensor(2)).query, at::toOpMathType(query.scalar_type()));
}

/// In half precision products go through oneDNN, whose scratch depends on the processor.
template <std::size_t Query>
bool in_half_precision(const OpArguments& arguments) {
  return at::isReducedFloatingType(arguments.tensor(Query).scalar_type());
}
}  // namespace

void add_attention_rules(RuleTable& table) {
  table.add_all("_scaled_dot_product_flash_attention_for_cpu",
                {.kind = OpRule::Kind::kShape, .shape = flash_shape, .probe_if = in_half_precision<0>, .scratch = flash_scratch, .flops = forward_flops});
  table.add_all("_scaled_dot_product_flash_attention_for_cpu_backward",
                {.kind = OpRule::Kind::kShape, .shape = flash_backward_shape, .probe_if = in_half_precision<1>, .scratch = flash_backward_scratch,
                 .racing = flash_backward_racing, .flops = backward_flops});
  table.add_all("_softmax", {.kind = OpRule::Kind::kShape, .scratch = contiguous_copies<0>});
  table.add_all("_softmax_backward_data", {.kind = OpRule::Kind::kShape, .scratch = contiguous_copies<0, 1>});
}
}  // namespace cinch::dryrun::internal
