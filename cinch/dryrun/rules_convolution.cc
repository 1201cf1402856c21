// Convolutions. On the CPU kernels' scratch depends on shapes, threads and the processor: probed, but for the largest.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// aten::convolution's arguments from `first`: stride, padding, dilation, transposed, output_padding, groups.
class Geometry {
 public:
  Geometry(const OpArguments& arguments, std::size_t first) : arguments_(arguments), first_(first) {}
  bool transposed() const { return arguments_[first_ + 3].toBool(); }
  /// Of a tensor [batch, channels, ...] of these sizes: what comes out.
  std::vector<std::int64_t> output(const at::Tensor& input, const at::Tensor& weight) const {
    std::vector<std::int64_t> sizes{input.size(0), transposed() ? weight.size(1) * groups() : weight.size(0)};
    for (std::int64_t d = 2; d < input.dim(); ++d) {
      const auto reach = at(2, d) * (weight.size(d) - 1);
      sizes.push_back(transposed() ? (input.size(d) - 1) * at(0, d) - 2 * at(1, d) + reach + at(4, d) + 1
                                   : (input.size(d) + 2 * at(1, d) - reach - 1) / at(0, d) + 1);
    }
    return sizes;
  }

 private:
  std::int64_t groups() const { return arguments_[first_ + 5].toInt(); }
  std::int64_t at(std::size_t which, std::int64_t d) const {
    const auto values = arguments_[first_ + which].toIntVector();
    return values[values.size() == 1 ? 0 : static_cast<std::size_t>(d - 2)];
  }
  const OpArguments& arguments_;
  std::size_t first_;
};

/// Channels last if the images or the weights lie so (ATen/native/ConvUtils.h).
at::Tensor image(at::IntArrayRef sizes, const at::Tensor& input, const at::Tensor& weight) {
  auto format = input.suggest_memory_format();
  if (format == at::MemoryFormat::Contiguous) format = weight.suggest_memory_format();
  return at::empty(sizes, at::TensorOptions(input.scalar_type()).device(at::kMeta).memory_format(format));
}

std::vector<at::Tensor> forward_shape(const OpArguments& arguments) {
  const auto input = arguments.tensor(0), weight = arguments.tensor(1);
  return {image(Geometry(arguments, 3).output(input, weight), input, weight)};
}

/// (grad_output, input, weight, bias_sizes, stride, ...) to gradients of input, weight, bias, as output_mask asks.
std::vector<at::Tensor> backward_shape(const OpArguments& arguments) {
  const auto output = arguments.tensor(0), input = arguments.tensor(1), weight = arguments.tensor(2);
  const auto wanted = arguments[10].toBoolList();
  std::vector<at::Tensor> gradients(3);
  if (wanted[0]) gradients[0] = image(input.sizes(), input, weight);
  if (wanted[1]) gradients[1] = image(weight.sizes(), weight, input);
  if (wanted[2]) gradients[2] = empty_meta({output.size(1)}, output.scalar_type());
  return gradients;
}

/// Multiply-adds of a forward pass: every weight meets every output position. `output`: forward's result or its
/// gradient; transposed: every input position instead.
double convolution_flops(const at::Tensor& positions, const at::Tensor& weight) {
  const auto places = static_cast<double>(positions.numel()) / static_cast<double>(positions.size(1));
  return 2.0 * places * static_cast<double>(weight.numel());
}

double forward_flops(const OpArguments& arguments) {
  const auto input = arguments.tensor(0), weight = arguments.tensor(1);
  const Geometry geometry(arguments, 3);
  if (geometry.transposed()) return convolution_flops(input, weight);
  double places = static_cast<double>(input.size(0));
  const auto output = geometry.output(input, weight);
  for (std::size_t d = 2; d < output.size(); ++d) places *= static_cast<double>(output[d]);
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
  table.add_all("convolution", {.kind = OpRule::Kind::kProbe, .shape = forward_shape, .flops = forward_flops});
  table.add_all("convolution_backward",
                {.kind = OpRule::Kind::kProbe, .shape = backward_shape, .flops = backward_flops});
}
}  // namespace cinch::dryrun::internal
