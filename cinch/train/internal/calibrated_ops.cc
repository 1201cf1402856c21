#include "cinch/train/internal/calibrated_ops.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <initializer_list>
#include <memory>
#include <utility>

#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/optimizer.h"

namespace cinch::train::internal {
namespace {
using at::ScalarType;
using Points = std::vector<CalibratedPoint>;
using Prepare = std::function<Work(std::int64_t numbers)>;

constexpr std::int64_t kWidth = 256;     ///< Of the rows that are normalized and reduced: a small model's.
constexpr std::int64_t kClasses = 2048;  ///< Of a loss; rows of an embedding.
constexpr std::int64_t kSizes[] = {16 << 10, 128 << 10, 1 << 20, 4 << 20};
constexpr std::int64_t kFewSizes[] = {32 << 10, 512 << 10};

std::string name_for(std::string curve, ScalarType dtype) {
  return dtype == at::kBFloat16 ? std::move(curve) + ":bfloat16" : curve;
}

/// The three products of a linear layer, `rows` by `width` with square weights: its output, and the gradients of its
/// input and its weights. Dividing a batch changes the rows.
CalibratedPoint matrix(Memory& memory, ScalarType dtype, std::int64_t rows, std::int64_t width) {
  const auto activation = [&memory, dtype, rows, width](bool warm) {
    return (warm ? memory.warm(rows * width, dtype) : memory.cold(rows * width, dtype)).view({rows, width});
  };
  const auto weight = [&memory, dtype, width] { return memory.cold(width * width, dtype).view({width, width}); };
  return {name_for("matrix", dtype),
          "aten::mm",
          {[=] { at::mm(activation(true), weight().t()); }, [=] { at::mm(activation(true), weight()); },
           [=] { at::mm(activation(true).t(), activation(false)); }}};
}

void add_general(Points& all, Memory& memory, ScalarType dtype) {
  for (const auto& [rows, width] : std::initializer_list<std::pair<int, int>>{
           {2, 128}, {8, 256}, {32, 256}, {128, 256}, {512, 256}, {1024, 384}, {2048, 512}})
    all.push_back(matrix(memory, dtype, rows, width));
  for (std::int64_t size = 4 << 10; size <= Memory::kNumbers; size *= 4)
    all.push_back({name_for("elementwise", dtype), "aten::add", {[&memory, dtype, size] {
                     at::add(memory.warm(size, dtype), memory.cold(size, dtype));
                   }}});
}

/// A curve of `op`'s own.
void add_own(Points& all, const std::string& op, ScalarType dtype, std::span<const std::int64_t> sizes,
             const Prepare& prepare) {
  for (const std::int64_t size : sizes) all.push_back({name_for(op, dtype), op, {prepare(size)}});
}

void add_pointwise(Points& all, Memory& memory, ScalarType dtype) {
  const auto own = [&](const std::string& op, const Prepare& prepare) { add_own(all, op, dtype, kSizes, prepare); };
  const auto unary = [&](const std::string& op, auto function) {
    own(op, [&memory, dtype, function](std::int64_t n) -> Work {
      return [&memory, dtype, function, n] { function(memory.warm(n, dtype)); };
    });
  };
  const auto binary = [&](const std::string& op, auto function) {
    own(op, [&memory, dtype, function](std::int64_t n) -> Work {
      return [&memory, dtype, function, n] { function(memory.warm(n, dtype), memory.cold(n, dtype)); };
    });
  };
  unary("aten::gelu", [](const at::Tensor& x) { at::gelu(x); });
  binary("aten::gelu_backward", [](const at::Tensor& g, const at::Tensor& x) { at::gelu_backward(g, x); });
  unary("aten::silu", [](const at::Tensor& x) { at::silu(x); });
  binary("aten::silu_backward", [](const at::Tensor& g, const at::Tensor& x) { at::silu_backward(g, x); });
  binary("aten::add_", [](const at::Tensor& x, const at::Tensor& y) { x.add_(y, 1e-6); });
  unary("aten::sum", [](const at::Tensor& x) { at::sum(x.view({-1, kWidth}), {0}); });
  add_own(all, "aten::bernoulli_", dtype, kFewSizes,
          [dtype](std::int64_t n) -> Work { return [x = at::zeros({n}, dtype)] { x.bernoulli_(0.9); }; });
  own("aten::copy_", [&memory, dtype](std::int64_t n) -> Work {
    if (dtype != at::kFloat) return [&memory, dtype, n] { memory.warm(n, dtype).copy_(memory.cold(n)); };
    return [&memory, n] {  // Heads of attention, as they are laid side by side.
      const auto heads = memory.cold(n).view({-1, 8, 32}).transpose(0, 1);
      memory.warm(n).view({8, -1, 32}).copy_(heads);
    };
  });
}

/// What turns numbers into others row by row or channel by channel.
void add_rows(Points& all, Memory& memory) {
  const auto own = [&](const std::string& op, const Prepare& prepare) {
    add_own(all, op, at::kFloat, kSizes, prepare);
  };
  const auto rows = [&memory](std::int64_t n, std::int64_t width, bool warm) {
    return (warm ? memory.warm(n) : memory.cold(n)).view({-1, width});
  };
  const auto weights = at::ones({kWidth});
  own("aten::native_layer_norm", [=](std::int64_t n) -> Work {
    return [=] { at::native_layer_norm(rows(n, kWidth, true), {kWidth}, weights, weights, 1e-5); };
  });
  own("aten::native_layer_norm_backward", [=](std::int64_t n) -> Work {
    const auto sums = at::ones({n / kWidth, 1});
    return [=] {
      at::native_layer_norm_backward(rows(n, kWidth, true), rows(n, kWidth, false), {kWidth}, sums, sums, weights,
                                     weights, {true, true, true});
    };
  });
  own("aten::_softmax", [=](std::int64_t n) -> Work { return [=] { at::_softmax(rows(n, 128, true), -1, false); }; });
  own("aten::_softmax_backward_data", [=](std::int64_t n) -> Work {
    return [=] { at::_softmax_backward_data(rows(n, 128, true), rows(n, 128, false), -1, at::kFloat); };
  });
  own("aten::_log_softmax",
      [=](std::int64_t n) -> Work { return [=] { at::_log_softmax(rows(n, kClasses, true), -1, false); }; });
  own("aten::_log_softmax_backward_data", [=](std::int64_t n) -> Work {
    return [=] { at::_log_softmax_backward_data(rows(n, kClasses, true), rows(n, kClasses, false), -1, at::kFloat); };
  });
  own("aten::nll_loss_forward", [=](std::int64_t n) -> Work {
    const auto targets = at::zeros({n / kClasses}, at::kLong);
    return [=] { at::nll_loss_forward(rows(n, kClasses, true), targets, {}, at::Reduction::Sum, -100); };
  });
  own("aten::nll_loss_backward", [=](std::int64_t n) -> Work {
    const auto targets = at::zeros({n / kClasses}, at::kLong);
    const auto gradient = at::ones({}), weight = at::ones({});
    return [=] {
      at::nll_loss_backward(gradient, rows(n, kClasses, false), targets, {}, at::Reduction::Sum, -100, weight);
    };
  });
}

/// Rows of a table, far apart from one another.
at::Tensor indices(std::int64_t count) { return at::arange(count).mul_(977).remainder_(kClasses); }

void add_tables(Points& all, Memory& memory) {
  const auto own = [&](const std::string& op, const Prepare& prepare) {
    add_own(all, op, at::kFloat, kFewSizes, prepare);
  };
  own("aten::index_select", [&memory](std::int64_t n) -> Work {
    const auto rows = indices(n / kWidth);
    return [&memory, rows] { at::index_select(memory.cold(kClasses * kWidth).view({kClasses, kWidth}), 0, rows); };
  });
  own("aten::embedding_dense_backward", [&memory](std::int64_t n) -> Work {
    const auto rows = indices(n / kWidth);
    return [&memory, rows, n] {
      at::embedding_dense_backward(memory.warm(n).view({-1, kWidth}), rows, kClasses, -1, false);
    };
  });
}

/// Images of 16 × 16 pixels.
at::Tensor images(const at::Tensor& numbers, std::int64_t channels) { return numbers.view({-1, channels, 16, 16}); }

void add_images(Points& all, Memory& memory) {
  constexpr std::int64_t kChannels = 64;
  const auto own = [&](const std::string& op, const Prepare& prepare) {
    add_own(all, op, at::kFloat, std::span(kSizes).first(3), prepare);
  };
  const auto warm = [&memory](std::int64_t n) { return images(memory.warm(n), kChannels); };
  const auto cold = [&memory](std::int64_t n) { return images(memory.cold(n), kChannels); };
  const auto ones = at::ones({kChannels});
  own("aten::native_batch_norm", [=](std::int64_t n) -> Work {
    return [=, mean = at::zeros({kChannels}), variance = at::ones({kChannels})] {
      at::native_batch_norm(warm(n), ones, ones, mean, variance, true, 0.1, 1e-5);
    };
  });
  own("aten::native_batch_norm_backward", [=](std::int64_t n) -> Work {
    return [=] {
      at::native_batch_norm_backward(warm(n), cold(n), ones, ones, ones, ones, ones, true, 1e-5, {true, true, true});
    };
  });
  own("aten::max_pool2d_with_indices", [=](std::int64_t n) -> Work {
    return [=] { at::max_pool2d_with_indices(warm(n), {2, 2}, {2, 2}); };
  });
  own("aten::max_pool2d_with_indices_backward", [=](std::int64_t n) -> Work {
    const auto [pooled, places] =
        at::max_pool2d_with_indices(at::rand({n}).view({-1, kChannels, 16, 16}), {2, 2}, {2, 2});
    return [=, pooled = pooled, places = places] {
      at::max_pool2d_with_indices_backward(pooled, cold(n), {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, places);
    };
  });
}

void add_convolutions(Points& all, Memory& memory, ScalarType dtype) {
  for (const std::int64_t n : {16 << 10, 96 << 10, 512 << 10}) {
    constexpr std::int64_t kChannels = 64;
    const auto x = [&memory, dtype, n] { return images(memory.warm(n, dtype), kChannels); };
    const auto saved = [&memory, dtype, n] { return images(memory.cold(n, dtype), kChannels); };
    const auto w = at::rand({kChannels, kChannels, 3, 3}).to(dtype);
    all.push_back({name_for("aten::convolution", dtype), "aten::convolution", {[=] {
                     at::convolution(x(), w, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
                   }}});
    all.push_back({name_for("aten::convolution_backward", dtype), "aten::convolution_backward", {[=] {
                     at::convolution_backward(x(), saved(), w, std::nullopt, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1,
                                              {true, true, false});
                   }}});
  }
}

/// Small images and many channels: their weights, which are laid anew and whose gradient is as large, are most of what
/// moves.
void add_weights_of_convolutions(Points& all, Memory& memory) {
  for (const std::int64_t channels : {128, 512}) {
    const auto x = [&memory, channels] { return memory.warm(8 * channels * 4).view({8, channels, 2, 2}); };
    const auto w = [&memory, channels] {
      return memory.cold(channels * channels * 9).view({channels, channels, 3, 3});
    };
    all.push_back({"aten::convolution/bytes", "aten::convolution", {[=] {
                     at::convolution(x(), w(), {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
                   }}});
    all.push_back({"aten::convolution_backward/bytes", "aten::convolution_backward", {[=] {
                     at::convolution_backward(x(), x(), w(), std::nullopt, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1,
                                              {true, true, false});
                   }}});
  }
}

/// By the length of the sequences: short ones have less to compute for what they move.
void add_attention(Points& all, ScalarType dtype) {
  for (const std::int64_t length : {64, 128, 256, 512}) {
    const at::Tensor x = at::rand({2, 6, length, 32}).to(dtype);
    const auto forward = [=] {
      return at::_scaled_dot_product_flash_attention_for_cpu(x, x, x, 0.0, /*is_causal=*/true);
    };
    const std::string op = "aten::_scaled_dot_product_flash_attention_for_cpu";
    all.push_back({name_for(op, dtype), op, {[=] { forward(); }}});
    const auto [out, sums] = forward();
    all.push_back({name_for(op + "_backward", dtype), op + "_backward", {[=, out = out, sums = sums] {
                     at::_scaled_dot_product_flash_attention_for_cpu_backward(x, x, x, x, out, sums, 0.0, true);
                   }}});
  }
}

/// One step of one parameter; its state is made at the first.
Work step_of(std::unique_ptr<optim::Optimizer> (*make)(std::vector<optim::ParameterGroup>), std::int64_t numbers) {
  auto parameter = at::full({numbers}, 0.5);
  parameter.mutable_grad() = at::full({numbers}, 1e-3);
  std::shared_ptr<optim::Optimizer> optimizer = make({{.parameters = {{"x", parameter}}, .learning_rate = 1e-6}});
  return [optimizer] { optimizer->step(); };
}

void add_optimizers(Points& all, Memory& memory) {
  using Groups = std::vector<optim::ParameterGroup>;
  add_own(all, "aten::_fused_adamw_", at::kFloat, kSizes, [&memory](std::int64_t n) -> Work {
    return [&memory, n, step = std::vector<at::Tensor>{at::ones({})}] {
      const auto next = [&] { return std::vector<at::Tensor>{memory.cold(n)}; };
      at::_fused_adamw_(next(), next(), next(), next(), {}, step, /*lr=*/1e-6, 0.9, 0.999, 0.01, 1e-8, false, false);
    };
  });
  const auto own = [&](const std::string& op, auto make) {
    add_own(all, op, at::kFloat, kFewSizes, [make](std::int64_t n) { return step_of(make, n); });
  };
  own("cinch::adamw_8bit_", [](Groups groups) { return optim::adamw_8bit(std::move(groups)); });
  own("cinch::lion_", [](Groups groups) { return optim::lion(std::move(groups)); });
  own("cinch::adafactor_", [](Groups groups) { return optim::adafactor(std::move(groups)); });
}

/// As what is offloaded on the CPU moves: by another thread, to memory that is no tensor's.
void add_copies(Points& all, Memory& memory) {
  for (const std::int64_t n : kSizes) {
    const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
    all.push_back({"cinch::offload",
                   "",
                   {[&memory, n, bytes] {
                     const auto from = memory.cold(n), to = memory.cold(n);
                     std::async(std::launch::async, [&] {
                       std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), bytes);
                     }).get();
                   }},
                   static_cast<double>(bytes)});
  }
}
}  // namespace

Memory::Memory() : long_ago_(at::full({kNumbers}, 0.5)), just_made_(at::full({kNumbers}, 0.5)) {}

at::Tensor Memory::cold(std::int64_t numbers, ScalarType dtype) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t words = (numbers * size + 3) / 4;
  if (begin_ + words > kNumbers) begin_ = 0;
  const at::Tensor part = long_ago_.narrow(0, begin_, words).view(dtype).narrow(0, 0, numbers);
  begin_ += words;
  return part;
}

at::Tensor Memory::warm(std::int64_t numbers, ScalarType dtype) const {
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  return just_made_.narrow(0, 0, (numbers * size + 3) / 4).view(dtype).narrow(0, 0, numbers);
}

std::vector<CalibratedPoint> calibrated_points(Memory& memory) {
  Points all;
  for (const ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    add_general(all, memory, dtype);
    add_pointwise(all, memory, dtype);
    add_convolutions(all, memory, dtype);
    add_attention(all, dtype);
  }
  add_weights_of_convolutions(all, memory);
  add_rows(all, memory);
  add_tables(all, memory);
  add_images(all, memory);
  add_optimizers(all, memory);
  add_copies(all, memory);
  return all;
}
}  // namespace cinch::train::internal
