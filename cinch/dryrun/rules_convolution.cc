// Convolutions. Kernels' scratch depends on shapes, threads and the processor: probed.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// Multiply-adds of a forward pass: every weight meets every output position. `output`: forward's result or its
/// gradient; transposed: every input position instead.
double convolution_flops(const at::Tensor& positions, const at::Tensor& weight) {
  const auto places = static_cast<double>(positions.numel()) / static_cast<double>(positions.size(1));
  return 2.0 * places * static_cast<double>(weight.numel());
}

double forward_flops(const OpArguments& arguments) {
  const auto input = arguments.tensor(0), weight = arguments.tensor(1);
  if (arguments[6].toBool()) return convolution_flops(input, weight);  // transposed
  const auto stride = arguments[3].toIntVector(), padding = arguments[4].toIntVector(),
             dilation = arguments[5].toIntVector();
  double places = static_cast<double>(input.size(0));
  for (std::int64_t d = 2; d < input.dim(); ++d) {
    const auto at = [&](const std::vector<std::int64_t>& values) {
      return values[values.size() == 1 ? 0 : static_cast<std::size_t>(d - 2)];
    };
    places *= static_cast<double>(
        (input.size(d) + 2 * at(padding) - at(dilation) * (weight.size(d) - 1) - 1) / at(stride) + 1);
  }
  return 2.0 * places * static_cast<double>(weight.numel());
}

double backward_flops(const OpArguments& arguments) {
  const bool transposed = arguments[7].toBool();
  const auto once = convolution_flops(arguments.tensor(transposed ? 1 : 0), arguments.tensor(2));
  const auto wanted = arguments[10].toBoolList();
  return once * (static_cast<double>(wanted[0]) + static_cast<double>(wanted[1]));
}
}  // namespace

void add_convolution_rules(RuleTable& table) {
  table.add_all("convolution", {.kind = OpRule::Kind::kProbe, .flops = forward_flops});
  table.add_all("convolution_backward", {.kind = OpRule::Kind::kProbe, .flops = backward_flops});
}
}  // namespace cinch::dryrun::internal
