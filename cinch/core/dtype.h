#pragma once
// Element types, by the names PyTorch gives them.

#include <cstdint>
#include <optional>
#include <string_view>

#include "cinch/core/bytes.h"

namespace cinch {

/// Values are written to files: append, never renumber.
enum class DType : std::uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat64,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kComplex64,
  kComplex128,
  kFloat8E4M3Fn,
  kFloat8E5M2,
  kFloat8E4M3FnUz,
  kFloat8E5M2FnUz,
  kFloat8E8M0Fnu,
  kUInt16,
  kUInt32,
  kUInt64,
  kComplex32
};
inline constexpr int kDTypeCount = 21;

Bytes element_size(DType dtype);
/// "float32", "bfloat16", …
std::string_view name_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);
}  // namespace cinch
