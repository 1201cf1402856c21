#include "cinch/core/dtype.h"

#include <array>

namespace cinch {
namespace {
struct Row {
  std::string_view name;
  std::int64_t size;
};
// In the order of DType.
constexpr std::array<Row, kDTypeCount> kRows{{{"float32", 4},
                                              {"bfloat16", 2},
                                              {"float16", 2},
                                              {"float64", 8},
                                              {"int64", 8},
                                              {"int32", 4},
                                              {"int16", 2},
                                              {"int8", 1},
                                              {"uint8", 1},
                                              {"bool", 1},
                                              {"complex64", 8},
                                              {"complex128", 16},
                                              {"float8_e4m3fn", 1},
                                              {"float8_e5m2", 1},
                                              {"float8_e4m3fnuz", 1},
                                              {"float8_e5m2fnuz", 1},
                                              {"float8_e8m0fnu", 1},
                                              {"uint16", 2},
                                              {"uint32", 4},
                                              {"uint64", 8},
                                              {"complex32", 4}}};
}  // namespace

Bytes element_size(DType dtype) { return Bytes(kRows.at(static_cast<std::size_t>(dtype)).size); }

std::string_view name_of(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}
}  // namespace cinch
