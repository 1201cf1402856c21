#pragma once
// Tensors in error messages.

#include <string>

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

namespace cinch::techniques::internal {

/// "Float [32, 64]".
inline std::string describe(at::ScalarType dtype, at::IntArrayRef sizes) {
  std::string text = c10::toString(dtype);
  text += " [";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}
}  // namespace cinch::techniques::internal
