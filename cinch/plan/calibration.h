#pragma once
// What was measured of this machine: rates of ops, each at several sizes. Made by train::calibrate(), kept as JSON.
//
//   auto calibration = from_json(text);            // nothing if it is none: measure again
//   for (const CurveSummary& row : summarize(*calibration)) ...

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/core/dtype.h"

namespace cinch::plan {
using Seconds = std::chrono::duration<double>;

/// Measured rates, each at several sizes, since a processor's caches and the system's fresh pages make small and large
/// ops differ by more than any plan does. Empty: the roofline alone speaks.
struct Calibration {
  struct Point {
    double size;        ///< Flops, or bytes read and written.
    double per_second;  ///< Of the same.
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> matrix;       ///< Ops with flops, by flops; rising sizes.
  std::vector<Point> elementwise;  ///< Ops without, by bytes moved; rising sizes.
  /// Ops that neither curve fits, by name ("aten::bernoulli_"): by flops where they have any, else by bytes. With
  /// another type than float32 "aten::gelu:bfloat16"; "matrix:bfloat16" and "elementwise:bfloat16" are the two curves
  /// above for it.
  std::map<std::string, std::vector<Point>, std::less<>> ops{};
  /// Of any op, beyond all that: dispatch, views, autograd's nodes. 0: the device's.
  Seconds launch{};
  /// Of a file that is written and read where a plan would keep tensors on disk, both ways alike. 0: not measured.
  double disk_bytes_per_second = 0;
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

/// Ends the name of a curve by bytes that an op with flops has beside its own: what it moves takes time on top
/// ("aten::convolution/bytes"; of float32, for all types).
inline constexpr std::string_view kBytesBeside = "/bytes";

/// Interpolated linearly in the logarithm of size; the nearest point's outside of them. `curve` is not empty.
double rate_at(const std::vector<Calibration::Point>& curve, double size);

/// The curve that says most of such an op: its own or that of an op alike, for `dtype` if there is one, else for
/// float32; else one of the two general ones. nullptr if that one is empty. `computes`: whether it has flops.
const std::vector<Calibration::Point>* curve_of(const Calibration& calibration, std::string_view op, DType dtype,
                                                bool computes);

std::string to_json(const Calibration& calibration);
/// Nothing for what is no calibration: other text, a size that does not rise, a rate that is no positive number.
std::optional<Calibration> from_json(std::string_view text);

/// One curve, ready to print.
struct CurveSummary {
  std::string name;       ///< "matrix", "elementwise", "aten::gelu:bfloat16"
  bool computes = false;  ///< Sizes are flops, else bytes.
  Calibration::Point small, middle, large;
  std::vector<Calibration::Point> points;
};
/// The two general curves first, then by name; empty curves left out.
std::vector<CurveSummary> summarize(const Calibration& calibration);
}  // namespace cinch::plan
