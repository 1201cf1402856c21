#include "cinch/cli/dimension.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace cinch::cli {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // Of any one size of a job.
constexpr std::int64_t kMostLayers = 10'000;
constexpr std::int64_t kGoodMultiple = 8;  // Of a head's width, for the kernels' sake.

/// A key whose value is the step times `unit`.
Dimension plain(std::string what, const std::string& key, std::int64_t value, std::int64_t unit, std::int64_t most) {
  Dimension result{
      .what = std::move(what), .key = key, .own = value / unit, .most = most / unit, .value = {}, .changes = {}};
  result.value = [unit](std::int64_t step) { return step * unit; };
  result.changes = [key, unit](std::int64_t step) { return std::vector{fmt::format("{}={}", key, step * unit)}; };
  return result;
}

/// `size` in the proportion of `step` to `own`, at least 1.
std::int64_t scaled(std::int64_t size, std::int64_t step, std::int64_t own) {
  const auto exact = static_cast<long double>(size) * static_cast<long double>(step) / static_cast<long double>(own);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min<long double>(exact + 0.5L, kLargest)));
}

/// The step of a width that `least` has to divide.
std::int64_t unit_of(std::int64_t width, std::int64_t least) {
  for (const std::int64_t factor : {kGoodMultiple, std::int64_t{2}})
    if (width % (least * factor) == 0) return least * factor;
  return least;
}

template <typename Model>
std::optional<Dimension> width(const Model& model) {
  if constexpr (requires { model.hidden_size; }) {
    std::int64_t least = 1;
    if constexpr (requires { model.heads; }) least = model.heads;
    if constexpr (requires { model.rope_theta; }) least *= 2;  // Rotary embeddings want even heads.
    if (model.hidden_size % least != 0) least = 1;             // Heads of a size of their own.
    Dimension result =
        plain("width", "model.hidden_size", model.hidden_size, unit_of(model.hidden_size, least), kLargest);
    if constexpr (requires { model.intermediate_size; }) {
      result.changes = [changes = result.changes, size = model.intermediate_size, own = result.own](std::int64_t step) {
        std::vector<std::string> all = changes(step);
        all.push_back(fmt::format("model.intermediate_size={}", scaled(size, step, own)));
        return all;
      };
    }
    return result;
  } else if constexpr (requires { model.base_channels; }) {
    return plain("width", "model.base_channels", model.base_channels, unit_of(model.base_channels, 1), kLargest);
  } else if constexpr (requires { model.sizes; }) {
    if (model.sizes.size() < 3) return std::nullopt;  // Inputs and classes alone.
    Dimension result = plain("width", "model.sizes", model.sizes[1], unit_of(model.sizes[1], 1), kLargest);
    result.changes = [sizes = model.sizes, own = result.own](std::int64_t step) {
      std::vector<std::int64_t> other = sizes;
      for (std::size_t i = 1; i + 1 < other.size(); ++i) other[i] = scaled(sizes[i], step, own);
      return std::vector{fmt::format("model.sizes=[{}]", fmt::join(other, ", "))};
    };
    return result;
  } else {
    return std::nullopt;
  }
}

template <typename Model>
std::optional<Dimension> layers(const Model& model) {
  if constexpr (requires { model.layers; }) {
    return plain("layers", "model.layers", model.layers, 1, kMostLayers);
  } else if constexpr (requires { model.levels; }) {
    return plain("layers", "model.levels", model.levels, 1, 10);
  } else if constexpr (requires { model.depth; }) {
    static constexpr std::array<std::int64_t, 5> kDepths{18, 34, 50, 101, 152};  // The ResNets there are.
    const auto own = std::ranges::find(kDepths, model.depth) - kDepths.begin() + 1;
    Dimension result = plain("layers", "model.depth", own, 1, kDepths.size());
    result.value = [](std::int64_t step) { return kDepths.at(static_cast<std::size_t>(step - 1)); };
    result.changes = [value = result.value](std::int64_t step) {
      return std::vector{fmt::format("model.depth={}", value(step))};
    };
    return result;
  } else {
    return std::nullopt;
  }
}

template <typename Model>
std::optional<Dimension> context(const Model& model) {
  if constexpr (requires { model.context_length; })
    return plain("context", "model.context_length", model.context_length, 1, kLargest);
  return std::nullopt;
}
}  // namespace

std::optional<Dimension> dimension(const job::Job& job, const std::string& what) {
  if (what == "batch") return plain("batch", "train.batch_size", job.train.batch_size, 1, kLargest);
  return std::visit(
      [&](const auto& model) -> std::optional<Dimension> {
        if (what == "context") return context(model);
        if (what == "layers") return layers(model);
        if (what == "width") return width(model);
        return std::nullopt;
      },
      job.model);
}

const std::vector<std::string>& dimensions() {
  static const std::vector<std::string> names{"batch", "context", "layers", "width"};
  return names;
}
}  // namespace cinch::cli
