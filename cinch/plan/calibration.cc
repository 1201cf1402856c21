#include "cinch/plan/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace cinch::plan {
namespace {
using nlohmann::json;
using Points = std::vector<Calibration::Point>;

constexpr std::size_t kMostCurves = 1000, kMostPoints = 1000;
constexpr double kMostPerSecond = 1e18;
constexpr std::string_view kMatrix = "matrix", kElementwise = "elementwise";

/// Ops that cost what another one does, which stands for them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 33> kAlike{{
    {"aten::addmm", kMatrix},
    {"aten::addmm_", kMatrix},
    {"aten::bmm", kMatrix},
    {"aten::baddbmm", kMatrix},
    {"aten::baddbmm_", kMatrix},
    {"aten::sub_", "aten::add_"},
    {"aten::mul_", "aten::add_"},
    {"aten::div_", "aten::add_"},
    {"aten::relu_", "aten::add_"},
    {"aten::clamp_min_", "aten::add_"},
    {"aten::sigmoid", "aten::silu"},
    {"aten::tanh", "aten::silu"},
    {"aten::exp", "aten::silu"},
    {"aten::sin", "aten::silu"},
    {"aten::cos", "aten::silu"},
    {"aten::sigmoid_backward", "aten::silu_backward"},
    {"aten::tanh_backward", "aten::silu_backward"},
    {"aten::mean", "aten::sum"},
    {"aten::_fused_adam_", "aten::_fused_adamw_"},
    {"aten::_fused_sgd_", "aten::_fused_adamw_"},
    {"aten::_fused_rms_norm", "aten::native_layer_norm"},
    {"aten::native_group_norm", "aten::native_layer_norm"},
    {"aten::native_group_norm_backward", "aten::native_layer_norm_backward"},
    {"aten::_safe_softmax", "aten::_softmax"},
    {"aten::nll_loss2d_backward", "aten::nll_loss_backward"},
    {"aten::nll_loss2d_forward", "aten::nll_loss_forward"},
    {"aten::index", "aten::index_select"},
    {"aten::gather", "aten::index_select"},
    {"cinch::fetch", "cinch::offload"},
    {"cinch::offload_state", "cinch::offload"},
    {"cinch::fetch_state", "cinch::offload"},
    {"cinch::write_state", "cinch::offload"},
    {"cinch::read_state", "cinch::offload"},
}};

std::string_view representative(std::string_view op) {
  const auto found = std::ranges::find(kAlike, op, &std::pair<std::string_view, std::string_view>::first);
  return found == kAlike.end() ? op : found->second;
}

const Points* own_curve(const Calibration& calibration, std::string_view name) {
  const auto found = calibration.ops.find(name);
  return found == calibration.ops.end() || found->second.empty() ? nullptr : &found->second;
}

const Points* general_curve(const Calibration& calibration, bool computes) {
  const Points& points = computes ? calibration.matrix : calibration.elementwise;
  return points.empty() ? nullptr : &points;
}

json points_json(const Points& points) {
  json list = json::array();
  for (const auto& point : points) list.push_back({point.size, point.per_second});
  return list;
}

bool is_rate(double value) { return std::isfinite(value) && value > 0 && value <= kMostPerSecond; }

/// Throws json::exception for another shape.
std::optional<Points> points_of(const json& list) {
  if (!list.is_array() || list.size() > kMostPoints) return std::nullopt;
  Points points;
  for (const json& entry : list) {
    if (!entry.is_array() || entry.size() != 2) return std::nullopt;
    const Calibration::Point point{entry[0].get<double>(), entry[1].get<double>()};
    if (!is_rate(point.size) || !is_rate(point.per_second)) return std::nullopt;
    if (!points.empty() && point.size <= points.back().size) return std::nullopt;
    points.push_back(point);
  }
  return points;
}

std::optional<Calibration> calibration_of(const json& document) {
  Calibration result;
  auto matrix = points_of(document.at(kMatrix)), elementwise = points_of(document.at(kElementwise));
  const json& ops = document.at("ops");
  if (!matrix || !elementwise || !ops.is_object() || ops.size() > kMostCurves) return std::nullopt;
  result.matrix = *std::move(matrix);
  result.elementwise = *std::move(elementwise);
  for (const auto& [name, list] : ops.items()) {
    auto points = points_of(list);
    if (!points) return std::nullopt;
    result.ops[name] = *std::move(points);
  }
  result.launch = Seconds(document.at("launch_seconds").get<double>());
  result.disk_bytes_per_second = document.at("disk_bytes_per_second").get<double>();
  if (!(result.launch >= Seconds(0) && result.launch < Seconds(1))) return std::nullopt;
  if (result.disk_bytes_per_second != 0 && !is_rate(result.disk_bytes_per_second)) return std::nullopt;
  return result;
}

/// Where sizes are bytes, rates are of memory; flops are told by the name alone.
bool computes(std::string_view name) {
  if (name.ends_with(kBytesBeside)) return false;
  return name.starts_with(kMatrix) || name.starts_with("aten::convolution") ||
         name.starts_with("aten::_scaled_dot_product");
}
}  // namespace

double rate_at(const Points& curve, double size) {
  const auto above = std::ranges::lower_bound(curve, size, {}, &Calibration::Point::size);
  if (above == curve.begin()) return curve.front().per_second;
  if (above == curve.end()) return curve.back().per_second;
  const Calibration::Point& low = *(above - 1);
  const double part = std::log(size / low.size) / std::log(above->size / low.size);
  return low.per_second + part * (above->per_second - low.per_second);
}

const Points* curve_of(const Calibration& calibration, std::string_view op, DType dtype, bool computes) {
  const std::string_view name = representative(op);
  const std::string_view general = computes ? kMatrix : kElementwise;
  if (dtype != DType::kFloat32) {
    const std::string of_type = ":" + std::string(name_of(dtype));
    if (const auto* own = own_curve(calibration, std::string(name) + of_type)) return own;
    if (const auto* own = own_curve(calibration, name)) return own;
    if (const auto* own = own_curve(calibration, std::string(general) + of_type)) return own;
  }
  if (const auto* own = own_curve(calibration, name)) return own;
  return general_curve(calibration, computes);
}

std::string to_json(const Calibration& calibration) {
  json ops = json::object();
  for (const auto& [name, points] : calibration.ops) ops[name] = points_json(points);
  return json{{kMatrix, points_json(calibration.matrix)},
              {kElementwise, points_json(calibration.elementwise)},
              {"ops", std::move(ops)},
              {"launch_seconds", calibration.launch.count()},
              {"disk_bytes_per_second", calibration.disk_bytes_per_second}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Calibration> from_json(std::string_view text) {
  try {
    return calibration_of(json::parse(text));
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::vector<CurveSummary> summarize(const Calibration& calibration) {
  std::vector<CurveSummary> rows;
  const auto add = [&](std::string_view name, const Points& points) {
    if (points.empty()) return;
    rows.push_back(
        {std::string(name), computes(name), points.front(), points[points.size() / 2], points.back(), points});
  };
  add(kMatrix, calibration.matrix);
  add(kElementwise, calibration.elementwise);
  for (const auto& [name, points] : calibration.ops) add(name, points);
  return rows;
}
}  // namespace cinch::plan
