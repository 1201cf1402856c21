// Sums and other reductions, joins, sorts.
#include <algorithm>

#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {

namespace {
/// A sum to one element over several threads goes through a buffer of one element a thread
/// (ATen/native/TensorIteratorReduce.cpp, two_pass_reduction; at::internal::GRAIN_SIZE).
std::vector<Bytes> sum_scratch(const OpArguments& arguments) {
  constexpr std::int64_t kGrainSize = 32768;
  const auto input = arguments.tensor(0);
  const auto dims = arguments[1].isNone() ? std::vector<std::int64_t>() : arguments[1].toIntVector();
  std::int64_t outputs = 1;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    const bool reduced = dims.empty() || std::any_of(dims.begin(), dims.end(), [&](std::int64_t dim) { return c10::maybe_wrap_dim(dim, input.dim()) == d; });
    if (!reduced) outputs *= input.size(d);
  }
  if (outputs != 1 || input.numel() < kGrainSize || arguments.threads() == 1) return {};
  return {bytes_of(arguments.threads(), input.scalar_type())};
}
}  // namespace

void add_reduction_rules(RuleTable& table) {
  table.add_all("sum mean logsumexp", {.kind = OpRule::Kind::kDecompose});
  table.add_all("sum.dim_IntList", {.kind = OpRule::Kind::kShape, .scratch = sum_scratch});
  table.add_all("cat", {.kind = OpRule::Kind::kShape});
  table.add_all("var_mean std std_mean var amax amin argmax argmin mean.dim prod max min linalg_vector_norm norm cumsum sort topk gather scatter scatter_ scatter_add scatter_add_ "
                "all any flip roll",
                {.kind = OpRule::Kind::kProbe});
}
}  // namespace cinch::dryrun::internal
