#pragma once
// The 256 values that 8 bits of optimizer state stand for, and the nearest of them to a number.
//
// "Dynamic" quantization, as in "8-bit Optimizers via Block-wise Quantization" (2110.02861, section 1.3) and in
// bitsandbytes, create_dynamic_map(): seven decades below 1, each with twice the linear steps of the one below it.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace cinch::optim::internal {

/// The map by formula, for processors that look up 16 or 32 entries in a register. Magnitudes lie in eight pieces:
/// seven decades of equal steps, and 1; the piece before them is 0.
struct DynamicMapLines {
  /// Of the float `k` of a place (for signed maps |code - zero|, above 0; else code + 1), by the low four bits of its
  /// exponent: the value is start + slope × (k - the power of two below it), rounded once.
  alignas(64) std::array<float, 16> start{}, slope{};
  /// Of a magnitude, by the low five bits of its exponent, from 2^-23 up: in which piece its power of two is, and from
  /// where on the next one begins, if it does below the next power of two.
  alignas(64) std::array<std::int32_t, 32> piece{};
  alignas(64) std::array<float, 32> next_piece{};
  /// By piece: the rank is first + the whole part of scale × magnitude + offset, that part from 0 to below limit. Exact
  /// but where the sum is within kUnsure of a whole number.
  alignas(64) std::array<float, 16> scale{}, offset{}, limit{};
  alignas(64) std::array<std::int32_t, 16> first{};
  static constexpr float kUnsure = 1e-4F;
};

/// Of numbers from -1 (signed) or 0 (unsigned) to 1. Without LibTorch.
class DynamicMap {
 public:
  explicit DynamicMap(bool is_signed);
  static const DynamicMap& of_first_moment();   ///< Signed.
  static const DynamicMap& of_second_moment();  ///< Unsigned.

  /// By code, rising. 0 and 1 are among them. Within a unit in the last place of bitsandbytes' numbers.
  const std::array<float, 256>& values() const { return values_; }
  std::uint8_t zero() const { return zero_; }  ///< The code of 0.

  /// How many of the magnitudes above 0 are at most `x`, rounded to the nearest: 0 is 0, a tie goes up. Numbers that
  /// share sign, exponent and seven bits of their fraction have at most one boundary between them, and the carry of an
  /// addition says on which side of it a number lies.
  static std::uint32_t rank(const std::uint32_t* ranks, float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
    const std::uint32_t bucket = std::clamp(bits >> 16, kFirstBucket, kLastBucket) - kFirstBucket;
    return (ranks[bucket] + (bits & 0xffffu)) >> 16;
  }
  const std::uint32_t* ranks() const { return ranks_.data(); }
  const DynamicMapLines& lines() const { return lines_; }

  /// Of the value nearest to `x`.
  std::uint8_t nearest(float x) const {
    const std::uint32_t above = rank(ranks(), x);
    // Below zero there is one value less: none is -1.
    return static_cast<std::uint8_t>(x < 0 ? zero_ - std::min<std::uint32_t>(above, zero_) : zero_ + above);
  }

  static constexpr std::uint32_t kFirstBucket = 0x3400;  ///< 2^-23: below every boundary.
  static constexpr std::uint32_t kLastBucket = 0x3f80;   ///< 1.

 private:
  std::array<float, 256> values_;
  std::uint8_t zero_ = 0;
  std::array<std::uint32_t, kLastBucket - kFirstBucket + 1> ranks_;
  DynamicMapLines lines_;
};
}  // namespace cinch::optim::internal
