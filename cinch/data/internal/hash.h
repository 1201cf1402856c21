#pragma once
// Randomness without a state: a number from (seed, index). What is drawn at a position does not depend on what was drawn
// before it, so a source resumes from one number.

#include <cstdint>

namespace cinch::data {

/// SplitMix64's finalizer: every bit of the result depends on every bit of `value`.
constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t index) { return mix(mix(seed) ^ mix(~index)); }

/// Uniform in [0, count).
constexpr std::uint64_t draw_below(std::uint64_t count, std::uint64_t seed, std::uint64_t index) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(mix(seed, index)) * count) >> 64);
}

/// Where `index` goes in a permutation of [0, count) that `key` picks: a Feistel network over the next even number of
/// bits, walked until it lands inside. No table.
constexpr std::uint64_t permute(std::uint64_t index, std::uint64_t count, std::uint64_t key) {
  unsigned half = 1;
  while (half < 32 && (std::uint64_t{1} << (2 * half)) < count) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half, right = index & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (mix(key + round, right) & mask);
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}
}  // namespace cinch::data
