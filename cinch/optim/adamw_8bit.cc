#include "cinch/optim/adamw_8bit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/adamw_8bit_block.h"
#include "cinch/optim/internal/dynamic_map.h"
#include "cinch/optim/internal/ops.h"
#include "cinch/optim/internal/rule_optimizer.h"

namespace cinch::optim {
namespace {
using internal::DynamicMap;
using internal::StateKey;
using internal::Tensors;

constexpr char kHint[] =
    "Load the state of the same optimizer with the same block size; optim::to_8bit() and from_8bit() convert between "
    "float32 and 8 bits.";

struct MomentName {
  std::string_view whole, codes, scales;  ///< Keys of its state.
  const DynamicMap& (*map)();
};
constexpr std::array<MomentName, 2> kMoments{
    {{".exp_avg", ".exp_avg_codes", ".exp_avg_absmax", &DynamicMap::of_first_moment},
     {".exp_avg_sq", ".exp_avg_sq_codes", ".exp_avg_sq_absmax", &DynamicMap::of_second_moment}}};

std::int64_t blocks_of(std::int64_t elements, std::int64_t block_size) {
  return (elements + block_size - 1) / block_size;
}

StateKey codes_key(std::string_view name, const DynamicMap& map) {
  return {name, [zero = map.zero()](const at::Tensor& parameter) {
            return at::full(parameter.sizes(), zero, parameter.options().dtype(at::kByte).requires_grad(false));
          }};
}

StateKey scales_key(std::string_view name, std::int64_t block_size) {
  return {name, [block_size](const at::Tensor& parameter) {
            return at::zeros({blocks_of(parameter.numel(), block_size)},
                             parameter.options().dtype(at::kFloat).requires_grad(false));
          }};
}

class AdamW8bit final : public internal::Rule {
 public:
  explicit AdamW8bit(AdamW8bitOptions options)
      : options_(std::move(options)),
        in_8_bits_({codes_key("exp_avg_codes", DynamicMap::of_first_moment()),
                    scales_key("exp_avg_absmax", options_.block_size),
                    codes_key("exp_avg_sq_codes", DynamicMap::of_second_moment()),
                    scales_key("exp_avg_sq_absmax", options_.block_size),
                    {"step", &internal::zero_on_host}}),
        in_fp32_({{"exp_avg", &internal::zeros_like_parameter},
                  {"exp_avg_sq", &internal::zeros_like_parameter},
                  {"step", &internal::zero_scalar}}) {
    internal::check_beta(options_.beta1, "beta1");
    internal::check_beta(options_.beta2, "beta2");
    internal::check_number(options_.eps, "eps");
    const auto size = options_.block_size;
    if (size < 64 || size > internal::kLargestBlock || !std::has_single_bit(static_cast<std::uint64_t>(size))) {
      throw UsageError("The block_size is " + std::to_string(size) + "; it must be 64, 128, 256, 512, 1024 or 2048.");
    }
  }

  void check(const NamedParameter& parameter) const override { internal::check_dense(parameter, "AdamW in 8 bits"); }
  int kind_of(const NamedParameter& parameter) const override {
    const auto& tensor = parameter.tensor;
    const bool in_8_bits = tensor.numel() >= options_.least_elements && tensor.is_contiguous() &&
                           tensor.scalar_type() != at::kDouble && !options_.keep_fp32.contains(parameter.name);
    return in_8_bits ? kIn8Bits : kInFp32;
  }
  const std::vector<StateKey>& keys(int kind) const override { return kind == kIn8Bits ? in_8_bits_ : in_fp32_; }

  void prepare(Tensors& tensors) const override {
    for (const auto& step : tensors.state.back()) tensors.advanced_steps.push_back(step + 1);
  }
  void update(const ParameterGroup& group, Tensors& tensors) const override {
    if (tensors.kind == kIn8Bits) {
      internal::adamw_8bit(
          tensors.parameters, tensors.gradients, tensors.state, tensors.advanced_steps,
          {group.learning_rate, options_.beta1, options_.beta2, group.weight_decay, options_.eps, options_.block_size});
    } else {
      at::_fused_adamw_(tensors.parameters, tensors.gradients, tensors.state[0], tensors.state[1],
                        /*max_exp_avg_sqs=*/{}, tensors.advanced_steps, group.learning_rate, options_.beta1,
                        options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
    }
    for (std::size_t i = 0; i < tensors.advanced_steps.size(); ++i)
      tensors.state.back()[i].copy_(tensors.advanced_steps[i]);
  }
  std::string load_hint() const override { return kHint; }

 private:
  static constexpr int kInFp32 = 0, kIn8Bits = 1;
  const AdamW8bitOptions options_;
  const std::vector<StateKey> in_8_bits_, in_fp32_;
};

/// The name of the parameter, if `key` ends in `suffix`.
std::optional<std::string> owner(const std::string& key, std::string_view suffix) {
  if (!key.ends_with(suffix)) return std::nullopt;
  return key.substr(0, key.size() - suffix.size());
}

void quantize(const at::Tensor& moment, const DynamicMap& map, std::int64_t block_size, bool never_to_zero,
              at::Tensor& codes, at::Tensor& scales) {
  const auto values = moment.to(at::kCPU).contiguous();
  codes = at::empty(values.sizes(), at::kByte);
  scales = at::empty({blocks_of(values.numel(), block_size)}, at::kFloat);
  const auto* value = values.const_data_ptr<float>();
  auto* code = codes.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t block = 0; block < scales.numel(); ++block) {
    const auto begin = block * block_size, end = std::min(values.numel(), begin + block_size);
    float largest = 0;
    for (auto i = begin; i < end; ++i) largest = std::max(largest, std::abs(value[i]));
    const float inverse = internal::set_scale(largest, scales.mutable_data_ptr<float>()[block]);
    for (auto i = begin; i < end; ++i) {
      code[i] = map.nearest(value[i] * inverse);
      if (never_to_zero && value[i] > 0) code[i] = std::max<std::uint8_t>(code[i], 1);
    }
  }
}

/// The block size, from the numbers of codes and scales: the powers of two that may be one differ in it.
std::int64_t block_size_of(const std::string& key, const at::Tensor& codes, const at::Tensor& scales) {
  if (codes.scalar_type() == at::kByte && scales.scalar_type() == at::kFloat && scales.dim() == 1) {
    for (std::int64_t size = 64; size <= internal::kLargestBlock; size *= 2) {
      if (blocks_of(codes.numel(), size) == scales.numel()) return size;
    }
  }
  throw DataError("optimizer state", 0, "\"" + key + "\" holds no scale for each block of codes.", kHint);
}

at::Tensor dequantize(const at::Tensor& codes, const at::Tensor& scales, const DynamicMap& map,
                      std::int64_t block_size) {
  auto result = at::empty(codes.sizes(), at::kFloat);
  const auto numbers = codes.to(at::kCPU).contiguous(), factors = scales.to(at::kCPU).contiguous();
  const auto* code = numbers.const_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    result.mutable_data_ptr<float>()[i] = map.values()[code[i]] * factors.const_data_ptr<float>()[i / block_size];
  }
  return result;
}
}  // namespace

std::unique_ptr<Optimizer> adamw_8bit(std::vector<ParameterGroup> groups, AdamW8bitOptions options) {
  return std::make_unique<internal::RuleOptimizer>(std::move(groups), std::make_unique<AdamW8bit>(std::move(options)));
}

std::set<std::string> embeddings(const torch::nn::Module& module) {
  std::set<const at::TensorImpl*> weights;
  for (const auto& part : module.modules()) {
    if (const auto* embedding = part->as<torch::nn::EmbeddingImpl>())
      weights.insert(embedding->weight.unsafeGetTensorImpl());
  }
  std::set<std::string> names;
  for (const auto& parameter : named(module)) {
    if (weights.contains(parameter.tensor.unsafeGetTensorImpl())) names.insert(parameter.name);
  }
  return names;
}

std::map<std::string, at::Tensor> to_8bit(const std::map<std::string, at::Tensor>& state,
                                          const AdamW8bitOptions& options) {
  std::map<std::string, at::Tensor> result;
  for (const auto& [key, tensor] : state) {
    const auto moment = std::find_if(kMoments.begin(), kMoments.end(), [&key = key](const MomentName& name) {
      return owner(key, name.whole).has_value();
    });
    const auto name = moment == kMoments.end() ? std::nullopt : owner(key, moment->whole);
    if (!name || options.keep_fp32.contains(*name) || tensor.numel() < options.least_elements ||
        tensor.scalar_type() != at::kFloat) {
      result.emplace(key, tensor);
      continue;
    }
    quantize(tensor, moment->map(), options.block_size, /*never_to_zero=*/moment != kMoments.begin(),
             result[*name + std::string(moment->codes)], result[*name + std::string(moment->scales)]);
  }
  return result;
}

std::map<std::string, at::Tensor> from_8bit(const std::map<std::string, at::Tensor>& state) {
  std::map<std::string, at::Tensor> result = state;
  for (const auto& [key, codes] : state) {
    for (const auto& moment : kMoments) {
      const auto name = owner(key, moment.codes);
      if (!name) continue;
      const auto scales_name = *name + std::string(moment.scales);
      const auto scales = state.find(scales_name);
      if (scales == state.end()) throw DataError("optimizer state", 0, "\"" + scales_name + "\" is missing.", kHint);
      const auto size = block_size_of(scales_name, codes, scales->second);
      result.erase(key);
      result.erase(scales_name);
      result.emplace(*name + std::string(moment.whole), dequantize(codes, scales->second, moment.map(), size));
    }
  }
  return result;
}
}  // namespace cinch::optim
