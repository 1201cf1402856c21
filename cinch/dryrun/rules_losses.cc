// Losses. Their other kernels, of small results or rare, are probed.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// (input, target, reduction): what is reduced stands beside the result (ATen/native/BinaryOps.cpp, PointwiseOps.cpp).
std::vector<Bytes> unreduced(const OpArguments& arguments) {
  if (arguments[2].toInt() == at::Reduction::None) return {};
  const auto input = arguments.tensor(0);
  const auto elements = c10::multiply_integers(at::infer_size(input.sizes(), arguments.tensor(1).sizes()));
  auto inside = thread_buffer(elements, arguments.threads(), input.scalar_type());
  if (arguments[2].toInt() == at::Reduction::Mean) inside = std::max(inside, divisor(input.scalar_type()));
  return {bytes_of(elements, input.scalar_type()), inside};
}

/// (log_probs, targets, input_lengths, target_lengths, ...) to (loss, log_alpha), ATen/native/LossCTC.cpp.
std::vector<at::Tensor> ctc_shape(const OpArguments& arguments) {
  const auto log_probs = arguments.tensor(0);
  if (!arguments[3].isIntList())
    throw UnsupportedError(
        "_ctc_loss of lengths in tensors of the dry run: the size of its result depends on their values",
        "give the lengths as lists, or as small tensors made by at::tensor()");
  std::int64_t longest = 0;
  for (const auto length : arguments[3].toIntVector()) longest = std::max(longest, length);
  const auto dtype = log_probs.scalar_type();
  return {empty_meta({log_probs.size(1)}, dtype),
          empty_meta({log_probs.size(1), log_probs.size(0), 2 * longest + 1}, dtype)};
}
}  // namespace

void add_loss_rules(RuleTable& table) {
  table.add_all("_log_softmax", {.kind = OpRule::Kind::kShape, .scratch = contiguous_copies<0>});
  table.add_all("_log_softmax_backward_data", {.kind = OpRule::Kind::kShape, .scratch = contiguous_copies<0, 1>});
  table.add_all("nll_loss_forward nll_loss_backward", {.kind = OpRule::Kind::kShape});
  table.add_all("mse_loss smooth_l1_loss",
                {.kind = OpRule::Kind::kShape, .probe_if = is_unusual<0, 1>, .scratch = unreduced});
  table.add_all("_ctc_loss", {.kind = OpRule::Kind::kShape, .shape = ctc_shape});
  table.add_all("binary_cross_entropy_with_logits", {.kind = OpRule::Kind::kDecompose});
}
}  // namespace cinch::dryrun::internal
