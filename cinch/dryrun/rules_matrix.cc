// Matrix products.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

double mm_flops(const at::Tensor& left, const at::Tensor& right) {
  return 2.0 * static_cast<double>(left.numel()) * static_cast<double>(right.size(-1));
}

/// What BLAS cannot take as it lies is copied (ATen/native/LinearAlgebra.cpp, addmm_impl_cpu_).
bool blas_takes(const at::Tensor& m, std::int64_t rows, std::int64_t columns) {
  return (m.stride(0) == 1 && m.stride(1) >= std::max<std::int64_t>(1, rows)) ||
         (m.stride(1) == 1 && m.stride(0) >= std::max<std::int64_t>(1, columns));
}
Bytes copy_for_blas(const at::Tensor& m) { return blas_takes(m, m.size(0), m.size(1)) ? Bytes() : bytes_of(m); }

template <std::size_t First>
std::vector<Bytes> mm_scratch(const OpArguments& arguments) {
  return {copy_for_blas(arguments.tensor(First)), copy_for_blas(arguments.tensor(First + 1))};
}
/// oneDNN multiplies numbers of 16 bits with scratch that its choice of kernel decides.
template <std::size_t First>
bool in_half_precision(const OpArguments& arguments) {
  return !arguments.on_cuda() && at::isReducedFloatingType(arguments.tensor(First).scalar_type());
}

/// As each matrix of a batch lies: BLAS takes them all at once, or each is multiplied, and copied if need be, by itself
/// (ATen/native/LinearAlgebra.cpp, bmm_out_or_baddbmm_).
bool lies_for_blas(const at::Tensor& batch) {
  const auto fits = [&](std::int64_t inner, std::int64_t outer) {
    return batch.stride(inner) == 1 && (batch.size(outer) == 1 || batch.stride(outer) >= batch.size(inner));
  };
  return at::isFloatingType(batch.scalar_type()) && (fits(2, 1) || fits(1, 2));
}
template <std::size_t First>
bool is_unusual_batch(const OpArguments& arguments) {
  return !arguments.on_cuda() && (in_half_precision<First>(arguments) || !lies_for_blas(arguments.tensor(First)) ||
                                  !lies_for_blas(arguments.tensor(First + 1)));
}

template <std::size_t First>
double flops(const OpArguments& arguments) {
  return mm_flops(arguments.tensor(First), arguments.tensor(First + 1));
}
}  // namespace

void add_matrix_rules(RuleTable& table) {
  table.add_all("mm", {.kind = OpRule::Kind::kShape,
                       .probe_if = in_half_precision<0>,
                       .scratch = mm_scratch<0>,
                       .flops = flops<0>,
                       .cublas = true});
  table.add_all("addmm addmm_", {.kind = OpRule::Kind::kShape,
                                 .probe_if = in_half_precision<1>,
                                 .scratch = mm_scratch<1>,
                                 .flops = flops<1>,
                                 .cublas = true});
  table.add_all("bmm",
                {.kind = OpRule::Kind::kShape, .probe_if = is_unusual_batch<0>, .flops = flops<0>, .cublas = true});
  table.add_all("baddbmm baddbmm_",
                {.kind = OpRule::Kind::kShape, .probe_if = is_unusual_batch<1>, .flops = flops<1>, .cublas = true});
  table.add_all("dot mv addmv addmv_ addr ger", {.kind = OpRule::Kind::kProbe, .cublas = true});
}
}  // namespace cinch::dryrun::internal
