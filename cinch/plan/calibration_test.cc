#include "cinch/plan/calibration.h"

#include <gtest/gtest.h>

#include <string>

namespace cinch::plan {
namespace {

Calibration sample() {
  Calibration calibration{.matrix = {{1e6, 10e9}, {1e8, 30e9}}, .elementwise = {{1e3, 1e9}}};
  calibration.ops["aten::gelu"] = {{1e3, 2e9}};
  calibration.ops["aten::gelu:bfloat16"] = {{1e3, 3e9}};
  calibration.ops["matrix:bfloat16"] = {{1e6, 90e9}};
  calibration.ops["aten::add_"] = {{1e3, 4e9}};
  calibration.launch = Seconds(2e-6);
  calibration.disk_bytes_per_second = 1.5e9;
  return calibration;
}

double first_rate(const Calibration& calibration, std::string_view op, DType dtype, bool computes) {
  const auto* curve = curve_of(calibration, op, dtype, computes);
  return curve == nullptr ? 0 : curve->front().per_second;
}

TEST(Calibration, JsonReadsBackTheSame) {
  EXPECT_EQ(from_json(to_json(sample())), sample());
  EXPECT_EQ(from_json(to_json(Calibration{})), Calibration{});
}

TEST(Calibration, WhatIsNoneIsRefused) {
  EXPECT_EQ(from_json(""), std::nullopt);
  EXPECT_EQ(from_json("{}"), std::nullopt);
  EXPECT_EQ(from_json("[1, 2]"), std::nullopt);
  const std::string whole = to_json(sample());
  EXPECT_EQ(from_json(whole.substr(0, whole.size() / 2)), std::nullopt);
  const auto with = [&](auto change) {
    Calibration calibration = sample();
    change(calibration);
    return from_json(to_json(calibration));
  };
  EXPECT_EQ(with([](Calibration& c) { c.matrix = {{1e8, 1e9}, {1e6, 1e9}}; }), std::nullopt);
  EXPECT_EQ(with([](Calibration& c) { c.elementwise[0].per_second = 0; }), std::nullopt);
  EXPECT_EQ(with([](Calibration& c) { c.ops["aten::gelu"][0].per_second = -1e9; }), std::nullopt);
  EXPECT_EQ(with([](Calibration& c) { c.ops["aten::gelu"][0].size = 1e30; }), std::nullopt);
  EXPECT_EQ(with([](Calibration& c) { c.launch = Seconds(2); }), std::nullopt);
  EXPECT_EQ(with([](Calibration& c) { c.disk_bytes_per_second = -1; }), std::nullopt);
}

TEST(Calibration, AnOpHasItsOwnCurveForItsTypeOrThatOfAnOpAlike) {
  const Calibration calibration = sample();
  EXPECT_EQ(first_rate(calibration, "aten::gelu", DType::kFloat32, false), 2e9);
  EXPECT_EQ(first_rate(calibration, "aten::gelu", DType::kBFloat16, false), 3e9);
  EXPECT_EQ(first_rate(calibration, "aten::gelu", DType::kFloat16, false), 2e9);
  EXPECT_EQ(first_rate(calibration, "aten::mul_", DType::kFloat32, false), 4e9);
  EXPECT_EQ(first_rate(calibration, "aten::mul", DType::kFloat32, false), 1e9);
  EXPECT_EQ(first_rate(calibration, "aten::mul", DType::kBFloat16, false), 1e9);
  EXPECT_EQ(first_rate(calibration, "aten::addmm", DType::kFloat32, true), 10e9);
  EXPECT_EQ(first_rate(calibration, "aten::addmm", DType::kBFloat16, true), 90e9);
  EXPECT_EQ(curve_of({}, "aten::mm", DType::kFloat32, true), nullptr);
}

TEST(Calibration, SummaryBeginsWithTheGeneralCurves) {
  const auto rows = summarize(sample());
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0].name, "matrix");
  EXPECT_TRUE(rows[0].computes);
  EXPECT_EQ(rows[0].small.per_second, 10e9);
  EXPECT_EQ(rows[0].large.per_second, 30e9);
  EXPECT_EQ(rows[1].name, "elementwise");
  EXPECT_FALSE(rows[1].computes);
  EXPECT_TRUE(summarize({}).empty());
}
}  // namespace
}  // namespace cinch::plan
