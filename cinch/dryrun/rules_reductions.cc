// Sums and other reductions, joins, sorts.
#include <algorithm>

#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {

namespace {
/// Of sums: as asked, else whole numbers are summed as int64.
at::ScalarType sum_dtype(const OpArguments& arguments) {
  if (!arguments[3].isNone()) return arguments[3].toScalarType();
  const auto dtype = arguments.tensor(0).scalar_type();
  return at::isIntegralType(dtype, /*includeBool=*/true) ? at::kLong : dtype;
}

/// What is summed in another type is cast as a whole (ATen/native/ReduceOpsUtils.h, make_reduction_from_out_ty).
std::vector<Bytes> sum_cast(const OpArguments& arguments) {
  const auto input = arguments.tensor(0);
  const auto dtype = sum_dtype(arguments);
  return {dtype == input.scalar_type() ? Bytes() : bytes_of(input.numel(), dtype)};
}

/// Of a reduction over the dimensions in argument 1.
Bytes thread_buffer_of(const OpArguments& arguments, at::ScalarType dtype) {
  const auto input = arguments.tensor(0);
  const auto dims = arguments[1].isNone() ? std::vector<std::int64_t>() : arguments[1].toIntVector();
  std::int64_t outputs = 1;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    const bool reduced = dims.empty() || std::any_of(dims.begin(), dims.end(), [&](std::int64_t dim) {
                           return c10::maybe_wrap_dim(dim, input.dim()) == d;
                         });
    if (!reduced) outputs *= input.size(d);
  }
  return outputs == 1 ? thread_buffer(input.numel(), arguments.threads(), dtype) : Bytes();
}
std::vector<Bytes> sum_scratch(const OpArguments& arguments) {
  return {thread_buffer_of(arguments, sum_dtype(arguments))};
}
std::vector<Bytes> extremum_scratch(const OpArguments& arguments) {
  return {thread_buffer_of(arguments, arguments.tensor(0).scalar_type())};
}
std::vector<Bytes> mean_scratch(const OpArguments& arguments) {
  const auto dtype = sum_dtype(arguments);
  return {std::max(divisor(dtype), thread_buffer_of(arguments, dtype))};
}

/// Sums of 16 bits go through a copy in float32 where the kernel's loop would add into one element
/// (ATen/native/ReduceOps.cpp, should_use_acc_buffer).
bool in_half_precision(const OpArguments& arguments) {
  return !arguments.on_cuda() && at::isReducedFloatingType(arguments.tensor(0).scalar_type());
}

/// Between types the joined parts are copied by the way.
bool joins_types(const OpArguments& arguments) {
  const auto parts = arguments.tensors(0);
  return !arguments.on_cuda() && std::any_of(parts.begin(), parts.end(), [&](const at::Tensor& part) {
    return part.scalar_type() != parts.front().scalar_type();
  });
}
}  // namespace

void add_reduction_rules(RuleTable& table) {
  table.add_all("sum mean logsumexp", {.kind = OpRule::Kind::kDecompose});
  table.add_all("sum.dim_IntList", {.kind = OpRule::Kind::kShape,
                                    .probe_if = in_half_precision,
                                    .scratch_before = sum_cast,
                                    .scratch = sum_scratch});
  table.add_all("cat", {.kind = OpRule::Kind::kShape, .probe_if = joins_types});
  table.add_all("mean.dim", {.kind = OpRule::Kind::kShape,
                             .probe_if = in_half_precision,
                             .scratch_before = sum_cast,
                             .scratch = mean_scratch});
  table.add_all(
      "var_mean std std_mean var prod max min linalg_vector_norm norm sort topk scatter scatter_ scatter_add "
      "scatter_add_ flip roll",
      {.kind = OpRule::Kind::kProbe});
  table.add_all("amax amin", {.kind = OpRule::Kind::kShape, .probe_if = is_unusual<0>, .scratch = extremum_scratch});
  table.add_all("argmax argmin gather", {.kind = OpRule::Kind::kShape, .probe_if = is_unusual<0>});
}
}  // namespace cinch::dryrun::internal
