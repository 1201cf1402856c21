// Kernels of CUDA alone. What is common to all devices is in the families' files.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// aten/src/ATen/native/cudnn/BatchNorm.cpp. The reserve is empty unless the layout is channels-last, where its size is
/// cuDNN's secret: counted as nothing.
std::vector<at::Tensor> batch_norm_shape(const OpArguments& call) {
  const auto input = call.tensor(0), weight = call.tensor(1);
  const std::int64_t statistics = call[5].toBool() ? weight.numel() : 0;
  return {empty_meta_like(input), empty_meta({statistics}, weight.scalar_type()),
          empty_meta({statistics}, weight.scalar_type()), empty_meta({0}, at::kByte)};
}

std::vector<at::Tensor> batch_norm_gradients(const OpArguments& call) {
  const auto weight = call.tensor(2);
  return {empty_meta_like(call.tensor(0)), empty_meta_like(weight), empty_meta_like(weight)};
}
}  // namespace

void add_cuda_rules(RuleTable& table) {
  table.add_all("cudnn_batch_norm", {.kind = OpRule::Kind::kShape, .shape = batch_norm_shape});
  table.add_all("cudnn_batch_norm_backward", {.kind = OpRule::Kind::kShape, .shape = batch_norm_gradients});
}
}  // namespace cinch::dryrun::internal
