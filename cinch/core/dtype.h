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
  kComplex128
};
inline constexpr int kDTypeCount = 12;

Bytes element_size(DType dtype);
/// "float32", "bfloat16", …
std::string_view name_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);
}  // namespace cinch
