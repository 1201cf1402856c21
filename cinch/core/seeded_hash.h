#pragma once
// Hashing that a file cannot foresee: one that made its keys collide would cost a quadratic time.

#include <cstdint>
#include <random>

namespace cinch {

/// Of this process. Nothing that is written may depend on it.
inline const std::uint64_t kHashSeed = [] {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device() | 1;
}();

/// Folds the whole product: no difference of two words passes through whatever the seed is.
inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t word) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(hash ^ word ^ kHashSeed) * (kHashSeed ^ 0x9e3779b97f4a7c14);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}
}  // namespace cinch
