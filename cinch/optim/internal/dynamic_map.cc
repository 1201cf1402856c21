#include "cinch/optim/internal/dynamic_map.h"

#include <cmath>
#include <limits>
#include <vector>

namespace cinch::optim::internal {
namespace {
constexpr int kDecades = 7;

/// Steps of a decade, from 0.1 to 1 of its scale.
int steps_of(bool is_signed, int decade) { return 1 << (is_signed ? decade : decade + 1); }
double scale_of(int decade) { return std::pow(10.0, decade - (kDecades - 1)); }

/// The value of each step is its middle.
void set_values(bool is_signed, DynamicMapLines& lines) {
  for (int decade = 0; decade < kDecades; ++decade) {
    const int steps = steps_of(is_signed, decade), entry = (127 + (is_signed ? decade : decade + 1)) & 15;
    lines.start[entry] = static_cast<float>(scale_of(decade) * (0.1 + 0.45 / steps));
    lines.slope[entry] = static_cast<float>(scale_of(decade) * 0.9 / steps);
  }
  lines.start[(127 + (is_signed ? kDecades : kDecades + 1)) & 15] = 1;
}

/// The magnitudes above 0, rising.
std::vector<float> magnitudes(bool is_signed, const DynamicMapLines& lines) {
  std::vector<float> all;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int steps = steps_of(is_signed, decade), entry = (127 + (is_signed ? decade : decade + 1)) & 15;
    for (int i = 0; i < steps; ++i) {
      all.push_back(std::fma(lines.slope[entry], static_cast<float>(i), lines.start[entry]));
    }
  }
  all.push_back(1);
  return all;
}

/// The least float32 that is at least half-way from `low` to `high`: their sum is exact in double.
float boundary_between(float low, float high) {
  const double middle = (static_cast<double>(low) + static_cast<double>(high)) / 2;
  const auto boundary = static_cast<float>(middle);
  return boundary < middle ? std::nextafter(boundary, std::numeric_limits<float>::infinity()) : boundary;
}

/// `edges[i]`: from it on the rank is i + 1.
void set_pieces(bool is_signed, const std::vector<float>& edges, DynamicMapLines& lines) {
  std::vector<float> begins;  // Where the pieces after that of 0 begin.
  lines.offset[0] = lines.offset[kDecades + 1] = 0.5F;
  lines.limit.fill(0.5F);
  int first = 1;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int steps = steps_of(is_signed, decade), piece = decade + 1;
    begins.push_back(edges[static_cast<std::size_t>(first - 1)]);
    lines.first[piece] = first;
    lines.scale[piece] = static_cast<float>(steps / (0.9 * scale_of(decade)));
    lines.offset[piece] = static_cast<float>(-steps / 9.0);
    lines.limit[piece] = static_cast<float>(steps) - 0.5F;
    first += steps;
  }
  begins.push_back(edges.back());
  lines.first[kDecades + 1] = first;
  for (int exponent = -23; exponent <= 0; ++exponent) {
    const int entry = (127 + exponent) & 31;
    lines.next_piece[entry] = std::numeric_limits<float>::infinity();
    for (const float begin : begins) {
      if (begin <= std::ldexp(1.0F, exponent))
        ++lines.piece[entry];
      else if (begin < std::ldexp(1.0F, exponent + 1))
        lines.next_piece[entry] = begin;
    }
  }
}
}  // namespace

DynamicMap::DynamicMap(bool is_signed) : values_{}, ranks_{} {
  set_values(is_signed, lines_);
  const std::vector<float> positive = magnitudes(is_signed, lines_);
  zero_ = static_cast<std::uint8_t>(is_signed ? positive.size() - 1 : 0);
  std::vector<float> edges;
  for (std::size_t i = 0; i < positive.size(); ++i) {
    values_[zero_ + i + 1] = positive[i];
    if (i < zero_) values_[zero_ - i - 1] = -positive[i];
    edges.push_back(boundary_between(i == 0 ? 0.0F : positive[i - 1], positive[i]));
  }
  std::size_t below = 0;
  for (std::uint32_t bucket = kFirstBucket; bucket <= kLastBucket; ++bucket) {
    const auto edge = [&] { return std::bit_cast<std::uint32_t>(edges[below]); };
    const std::uint32_t first = bucket << 16;
    while (below < edges.size() && edge() <= first) ++below;
    auto& entry = ranks_[bucket - kFirstBucket];
    entry = static_cast<std::uint32_t>(below) << 16;
    if (below < edges.size() && edge() - first < 0x10000u) entry += 0x10000u - (edge() - first);
  }
  set_pieces(is_signed, edges, lines_);
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
