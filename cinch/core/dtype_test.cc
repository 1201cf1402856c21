#include "cinch/core/dtype.h"

#include <gtest/gtest.h>

namespace cinch {
namespace {

TEST(DType, NamesAndSizesAreThoseOfPyTorch) {
  EXPECT_EQ(name_of(DType::kFloat32), "float32");
  EXPECT_EQ(name_of(DType::kBool), "bool");
  EXPECT_EQ(element_size(DType::kFloat32), Bytes(4));
  EXPECT_EQ(element_size(DType::kBFloat16), Bytes(2));
  EXPECT_EQ(element_size(DType::kFloat16), Bytes(2));
  EXPECT_EQ(element_size(DType::kFloat64), Bytes(8));
  EXPECT_EQ(element_size(DType::kInt64), Bytes(8));
  EXPECT_EQ(element_size(DType::kInt32), Bytes(4));
  EXPECT_EQ(element_size(DType::kInt16), Bytes(2));
  EXPECT_EQ(element_size(DType::kInt8), Bytes(1));
  EXPECT_EQ(element_size(DType::kUInt8), Bytes(1));
  EXPECT_EQ(element_size(DType::kBool), Bytes(1));
  EXPECT_EQ(element_size(DType::kComplex64), Bytes(8));
  EXPECT_EQ(element_size(DType::kComplex128), Bytes(16));
  EXPECT_EQ(element_size(DType::kComplex32), Bytes(4));
  EXPECT_EQ(element_size(DType::kUInt16), Bytes(2));
  EXPECT_EQ(element_size(DType::kUInt32), Bytes(4));
  EXPECT_EQ(element_size(DType::kUInt64), Bytes(8));
  EXPECT_EQ(name_of(DType::kFloat8E4M3FnUz), "float8_e4m3fnuz");
  EXPECT_EQ(name_of(DType::kComplex32), "complex32");
  for (const auto dtype : {DType::kFloat8E4M3Fn, DType::kFloat8E5M2, DType::kFloat8E4M3FnUz, DType::kFloat8E5M2FnUz,
                           DType::kFloat8E8M0Fnu})
    EXPECT_EQ(element_size(dtype), Bytes(1));
}

TEST(DType, IsFoundByItsName) {
  for (int i = 0; i < kDTypeCount; ++i) EXPECT_EQ(dtype_named(name_of(static_cast<DType>(i))), static_cast<DType>(i));
  EXPECT_EQ(dtype_named("float"), std::nullopt);
}
}  // namespace
}  // namespace cinch
