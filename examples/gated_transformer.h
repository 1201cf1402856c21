#pragma once
// A language model written out by hand, as people write them: RMSNorm, rotary positions, softmax attention and a gated
// feed-forward from single ops, einsum for every product, AdamW with two states a parameter. No fused kernel anywhere:
// what it needs is decided by some thousand small allocations. tests/recorded_runs_test.cc predicts it on a card and
// compares with what PyTorch recorded there.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace cinch::examples {

struct GatedTransformerOptions {
  std::int64_t layers = 32, hidden_size = 2560, heads = 32, feed_forward = 10240, vocab_size = 10000, context = 128;
};

class HandNormImpl : public torch::nn::Module {
 public:
  explicit HandNormImpl(std::int64_t size, torch::Device device) : size_(size) {
    weight_ = register_parameter("weight", torch::ones({size}, device));
  }
  at::Tensor forward(const at::Tensor& input) {
    const auto x = input.to(torch::kFloat);
    const auto norm = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
    // One op a statement: a temporary of C++ would live to the end of a longer expression.
    auto rms = norm.pow(2);
    rms = rms / size_;
    rms = rms + 1e-5;
    rms = rms.sqrt();
    const auto normalized = x / rms;
    return at::einsum("d,bsd->bsd", {weight_, normalized}).to(input.scalar_type());
  }

 private:
  std::int64_t size_;
  at::Tensor weight_;
};
TORCH_MODULE(HandNorm);

class HandLinearImpl : public torch::nn::Module {
 public:
  HandLinearImpl(std::int64_t in, std::int64_t out, torch::Device device) {
    weight_ = register_parameter("weight", torch::empty({out, in}, device));
  }
  at::Tensor forward(const at::Tensor& x) { return at::einsum("oi,bsi->bso", {weight_, x}); }

 private:
  at::Tensor weight_;
};
TORCH_MODULE(HandLinear);

/// Rotates pairs of neighbours. The table of cosines and sines is a buffer [2, context, size / 2].
class RotaryImpl : public torch::nn::Module {
 public:
  RotaryImpl(std::int64_t size, std::int64_t context, torch::Device device) {
    table_ = register_buffer("table", torch::empty({2, context, size / 2}, device));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& positions) {
    const auto cosine = table_[0].index({positions});
    const auto sine = table_[1].index({positions});
    const auto even = x.slice(-1, 0, at::nullopt, 2), odd = x.slice(-1, 1, at::nullopt, 2);
    auto rotated = at::zeros_like(x);
    rotate(rotated.slice(-1, 0, at::nullopt, 2), even * cosine, odd * sine, -1);
    rotate(rotated.slice(-1, 1, at::nullopt, 2), even * sine, odd * cosine, 1);
    return rotated;
  }

 private:
  static void rotate(at::Tensor into, at::Tensor left, at::Tensor right, int sign) {
    const auto sum = sign > 0 ? left + right : left - right;
    left.reset();
    right.reset();
    into.copy_(sum);
  }
  at::Tensor table_;
};
TORCH_MODULE(Rotary);

class HandAttentionImpl : public torch::nn::Module {
 public:
  HandAttentionImpl(const GatedTransformerOptions& options, torch::Device device) : heads_(options.heads) {
    const auto size = options.hidden_size;
    q_ = register_module("q", HandLinear(size, size, device));
    k_ = register_module("k", HandLinear(size, size, device));
    v_ = register_module("v", HandLinear(size, size, device));
    output_ = register_module("output", HandLinear(size, size, device));
    rotary_ = register_module("rotary", Rotary(size / heads_, options.context, device));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto batch = x.size(0), length = x.size(1);
    const auto by_head = [&](const at::Tensor& y) { return y.view({batch, length, heads_, -1}).transpose(1, 2); };
    const auto q = by_head(q_->forward(x)), k = by_head(k_->forward(x)), v = by_head(v_->forward(x));
    const auto positions = torch::arange(length, torch::TensorOptions(torch::kLong).device(x.device()));
    const auto everywhere = positions.view({1, 1, length}).expand({batch, 1, length});
    const auto q_rotated = rotary_->forward(q, everywhere);
    const auto k_rotated = rotary_->forward(k, everywhere);
    auto mask = torch::ones({length, length}, x.device());
    mask = at::triu(mask, 1);
    mask = mask.to(torch::kBool);
    mask = mask.bitwise_not();
    const auto mixed = attend(q_rotated, k_rotated, v, mask.expand({batch, heads_, length, length}));
    return output_->forward(mixed);
  }

 private:
  static at::Tensor softmax(const at::Tensor& scores) {
    const auto largest = std::get<0>(scores.max(-1, /*keepdim=*/true));
    auto exponent = scores - largest;
    exponent = exponent.exp();
    return exponent / exponent.sum(-1, /*keepdim=*/true);
  }
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask) {
    auto scores = at::einsum("bhqd,bhkd->bhqk", {q, k});
    scores = scores / std::sqrt(static_cast<double>(q.size(-1)));
    {
      const auto hidden = mask.eq(0);
      scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    }
    const auto mixed = at::einsum("bhqk,bhkd->bhqd", {softmax(scores), v});
    return mixed.transpose(1, 2).reshape({q.size(0), q.size(2), -1});
  }

  std::int64_t heads_;
  HandLinear q_{nullptr}, k_{nullptr}, v_{nullptr}, output_{nullptr};
  Rotary rotary_{nullptr};
};
TORCH_MODULE(HandAttention);

class GatedFeedForwardImpl : public torch::nn::Module {
 public:
  GatedFeedForwardImpl(std::int64_t size, std::int64_t inner, torch::Device device) {
    gate_ = register_module("gate", HandLinear(size, inner, device));
    down_ = register_module("down", HandLinear(inner, size, device));
    up_ = register_module("up", HandLinear(size, inner, device));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto gate = gate_->forward(x), up = up_->forward(x);
    const auto silu = gate * gate.sigmoid();
    return down_->forward(silu * up);
  }

 private:
  HandLinear gate_{nullptr}, down_{nullptr}, up_{nullptr};
};
TORCH_MODULE(GatedFeedForward);

class GatedBlockImpl : public torch::nn::Module {
 public:
  GatedBlockImpl(const GatedTransformerOptions& options, torch::Device device) {
    attention_ = register_module("attention", HandAttention(options, device));
    feed_forward_ =
        register_module("feed_forward", GatedFeedForward(options.hidden_size, options.feed_forward, device));
    norm1_ = register_module("norm1", HandNorm(options.hidden_size, device));
    norm2_ = register_module("norm2", HandNorm(options.hidden_size, device));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto attended = x + attention_->forward(norm1_->forward(x));
    return attended + feed_forward_->forward(norm2_->forward(attended));
  }

 private:
  HandAttention attention_{nullptr};
  GatedFeedForward feed_forward_{nullptr};
  HandNorm norm1_{nullptr}, norm2_{nullptr};
};
TORCH_MODULE(GatedBlock);

class GatedTransformerImpl : public torch::nn::Module {
 public:
  GatedTransformerImpl(const GatedTransformerOptions& options, torch::Device device) {
    embedding_ = register_parameter("embedding", torch::empty({options.vocab_size, options.hidden_size}, device));
    for (std::int64_t i = 0; i < options.layers; ++i)
      blocks_.push_back(register_module("layer" + std::to_string(i), GatedBlock(options, device)));
    norm_ = register_module("norm", HandNorm(options.hidden_size, device));
    head_ = register_module("head", HandLinear(options.hidden_size, options.vocab_size, device));
  }
  /// int64 tokens [batch, length] to [batch, length, vocab_size].
  at::Tensor forward(const at::Tensor& tokens) {
    auto x = embedding_.index({tokens});
    for (auto& block : blocks_) x = block->forward(x);
    return head_->forward(norm_->forward(x));
  }

 private:
  at::Tensor embedding_;
  std::vector<GatedBlock> blocks_;
  HandNorm norm_{nullptr};
  HandLinear head_{nullptr};
};
TORCH_MODULE(GatedTransformer);

/// Mean cross entropy of logits [rows, classes]; the index of rows is made on the host, as torch.arange(n) is.
inline at::Tensor hand_cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  const auto largest = std::get<0>(logits.max(-1, /*keepdim=*/true));
  const auto shifted = logits - largest;
  const auto sum = shifted.exp().sum(-1);
  const auto chosen = shifted.index({torch::arange(logits.size(0)), targets});
  return (sum.log() - chosen).mean();
}

/// First step of AdamW: makes both states, then p -= rate * m / (sqrt(v) + eps).
inline std::vector<at::Tensor> hand_adamw_step(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> state;
  at::Tensor update;
  for (const auto& parameter : parameters) {
    const auto& gradient = parameter.grad();
    auto first = at::zeros_like(parameter), second = at::zeros_like(parameter);
    first.mul_(0.9).add_(gradient, 0.1);
    second.mul_(0.999).addcmul_(gradient, gradient, 0.001);
    const auto denominator = second.sqrt().add_(1e-8);
    update = first / denominator;
    at::Tensor(parameter).add_(update, -1e-3);
    state.insert(state.end(), {first, second});
  }
  return state;
}
}  // namespace cinch::examples
