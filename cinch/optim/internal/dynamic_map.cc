#include "cinch/optim/internal/dynamic_map.h"

#include <cmath>
#include <limits>
#include <vector>

namespace cinch::optim::internal {
namespace {
constexpr int kDecades = 7;

/// The `count` + 1 numbers from 0.1 to 1 in equal steps, in float32 and from both ends, as torch.linspace has them.
std::vector<float> boundaries(int count) {
  std::vector<float> all;
  const float step = (1.0F - 0.1F) / static_cast<float>(count);
  for (int i = 0; i <= count; ++i) {
    const bool low = i < (count + 1) / 2;
    // Rounded once, as a fused multiply-add does.
    all.push_back(low ? std::fma(step, static_cast<float>(i), 0.1F)
                      : std::fma(-step, static_cast<float>(count - i), 1.0F));
  }
  return all;
}

/// The magnitudes above 0 and below 1, rising.
std::vector<float> magnitudes(bool is_signed) {
  std::vector<float> all;
  for (int decade = 0; decade < kDecades; ++decade) {
    const std::vector<float> edges = boundaries(1 << (is_signed ? decade : decade + 1));
    const double scale = std::pow(10.0, decade - (kDecades - 1));
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      const float middle = (edges[i] + edges[i + 1]) / 2.0F;
      all.push_back(static_cast<float>(scale) * middle);
    }
  }
  return all;
}

/// The least float32 that is at least half-way from `low` to `high`: their sum is exact in double.
std::uint32_t boundary_between(float low, float high) {
  const double middle = (static_cast<double>(low) + static_cast<double>(high)) / 2;
  auto boundary = static_cast<float>(middle);
  if (boundary < middle) boundary = std::nextafter(boundary, std::numeric_limits<float>::infinity());
  return std::bit_cast<std::uint32_t>(boundary);
}
}  // namespace

DynamicMap::DynamicMap(bool is_signed) : values_{}, ranks_{} {
  std::vector<float> positive = magnitudes(is_signed);
  zero_ = static_cast<std::uint8_t>(is_signed ? positive.size() : 0);
  positive.push_back(1.0F);
  for (std::size_t i = 0; i < positive.size(); ++i) {
    values_[zero_ + i + 1] = positive[i];
    if (i < zero_) values_[zero_ - i - 1] = -positive[i];
  }
  std::vector<std::uint32_t> edges;  // edges[i]: from it on the rank is i + 1.
  for (std::size_t i = 0; i < positive.size(); ++i) {
    edges.push_back(boundary_between(i == 0 ? 0.0F : positive[i - 1], positive[i]));
  }
  std::size_t below = 0;
  for (std::uint32_t bucket = kFirstBucket; bucket <= kLastBucket; ++bucket) {
    const std::uint32_t first = bucket << 16;
    while (below < edges.size() && edges[below] <= first) ++below;
    auto& entry = ranks_[bucket - kFirstBucket];
    entry = static_cast<std::uint32_t>(below) << 16;
    if (below < edges.size() && edges[below] - first < 0x10000u) entry += 0x10000u - (edges[below] - first);
  }
}

const DynamicMap& DynamicMap::of_first_moment() {
  static const DynamicMap map(/*is_signed=*/true);
  return map;
}

const DynamicMap& DynamicMap::of_second_moment() {
  static const DynamicMap map(/*is_signed=*/false);
  return map;
}
}  // namespace cinch::optim::internal
