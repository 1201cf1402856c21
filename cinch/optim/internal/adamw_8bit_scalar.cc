#include <algorithm>
#include <limits>
#include <vector>

#include "cinch/optim/internal/adamw_8bit_block.h"
#include "cinch/optim/internal/dynamic_map.h"

namespace cinch::optim::internal {

void update_rest(float* parameters, const float* gradients, const MomentBlock& moments, int begin, int count,
                 const AdamWStep& step, Moments& fresh) {
  const auto& values1 = DynamicMap::of_first_moment().values();
  const auto& values2 = DynamicMap::of_second_moment().values();
  for (int i = begin; i < count; ++i) {
    float first = values1[moments.first[i]] * *moments.first_scale;
    float second = values2[moments.second[i]] * *moments.second_scale;
    const float gradient = gradients[i];
    if (gradient * gradient <= std::numeric_limits<float>::max()) {
      first = std::fma(step.beta1, first, step.weight1 * gradient);
      second = std::fma(step.beta2, second, (step.weight2 * gradient) * gradient);
      const float change = step.step_size * first / std::fma(std::sqrt(second), step.inverse_correction2, step.eps);
      parameters[i] = std::fma(parameters[i], step.decay, -change);
    }
    fresh.first[i] = first;
    fresh.second[i] = second;
    fresh.largest_first = std::max(fresh.largest_first, std::abs(first));
    fresh.largest_second = std::max(fresh.largest_second, second);
  }
}

void quantize_rest(const MomentBlock& moments, int begin, int count, float inverse1, float inverse2,
                   const Moments& fresh) {
  const auto &map1 = DynamicMap::of_first_moment(), &map2 = DynamicMap::of_second_moment();
  for (int i = begin; i < count; ++i) {
    moments.first[i] = map1.nearest(fresh.first[i] * inverse1);
    const std::uint8_t code = map2.nearest(fresh.second[i] * inverse2);
    moments.second[i] = std::max<std::uint8_t>(code, fresh.second[i] > 0 ? 1 : 0);
  }
}

void step_block_scalar(float* parameters, const float* gradients, const MomentBlock& moments, int count,
                       const AdamWStep& step) {
  Moments fresh;
  update_rest(parameters, gradients, moments, 0, count, step, fresh);
  const float inverse1 = set_scale(fresh.largest_first, *moments.first_scale);
  const float inverse2 = set_scale(fresh.largest_second, *moments.second_scale);
  quantize_rest(moments, 0, count, inverse1, inverse2, fresh);
}

std::span<const NamedBlockStep> block_steps() {
  static const auto* all = [] {
    auto* steps = new std::vector<NamedBlockStep>{{"scalar", &step_block_scalar}};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) steps->push_back({"AVX2", &step_block_avx2});
    if (__builtin_cpu_supports("avx512f")) steps->push_back({"AVX-512", &step_block_avx512});
    return steps;
  }();
  return *all;
}
}  // namespace cinch::optim::internal
