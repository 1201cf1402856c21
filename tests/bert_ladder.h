#pragma once
// BERT for classification as transformers 4.15 ran it on PyTorch of 2021, with its three optimizers: op by op, what
// lives as long as Python's variables made it live. Where LibTorch of today does otherwise it is written out, and said
// why.

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "cinch/techniques/autocast.h"

namespace cinch::tests::ladder {

namespace nn = torch::nn;

struct BertOptions {
  std::int64_t layers = 24, hidden = 1024, heads = 16, inner = 4096, vocabulary = 30'522, positions = 512;
  bool checkpointed = false;
  bool half = false;                ///< Under autocast: what a checkpoint's second run has to set again.
  bool softmax_keeps_input = true;  ///< Up to PyTorch 1.10 (pytorch/pytorch#64000).
};

/// A product, then the bias in place, as torch.nn.functional.linear did it. LibTorch's nn::Linear would multiply by
/// weight.t(), a view, whose cast autocast does not keep.
class LinearImpl : public nn::Module {
 public:
  LinearImpl(std::int64_t inputs, std::int64_t outputs)
      : weight_(register_parameter("weight", at::zeros({outputs, inputs}))),
        bias_(register_parameter("bias", at::zeros({outputs}))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (x.dim() == 2) return at::linear(x, weight_, bias_);
    const auto input = cast(x), weight = cast(weight_), bias = cast(bias_);
    auto y = at::matmul(input, weight.t());
    y.add_(bias);
    return y;
  }

 private:
  static at::Tensor cast(const at::Tensor& x) {
    return at::autocast::is_autocast_enabled(at::kCUDA) ? at::autocast::cached_cast(at::kHalf, x, at::kCUDA) : x;
  }
  at::Tensor weight_, bias_;
};
TORCH_MODULE(Linear);

/// Softmax whose node keeps its input beside its result.
struct Softmax : torch::autograd::Function<Softmax> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    auto y = x.softmax(-1);
    context->save_for_backward({x, y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradient) {
    const auto saved = context->get_saved_variables();
    return {at::_softmax_backward_data(gradient[0], saved[1], -1, saved[0].scalar_type())};
  }
};

inline nn::LayerNorm layer_norm(const BertOptions& options) {
  return nn::LayerNorm(nn::LayerNormOptions({options.hidden}).eps(1e-12));
}

/// norm(dropout(dense(x)) + residual).
class OutputImpl : public nn::Module {
 public:
  OutputImpl(std::int64_t inputs, const BertOptions& options)
      : dense_(register_module("dense", Linear(inputs, options.hidden))),
        norm_(register_module("LayerNorm", layer_norm(options))) {}
  at::Tensor forward(at::Tensor x, const at::Tensor& residual) {
    x = dense_->forward(x);
    x = at::dropout(x, 0.1, true);
    return norm_->forward(x + residual);
  }

 private:
  Linear dense_;
  nn::LayerNorm norm_;
};
TORCH_MODULE(Output);

class SelfAttentionImpl : public nn::Module {
 public:
  explicit SelfAttentionImpl(const BertOptions& options)
      : options_(options),
        query_(register_module("query", Linear(options.hidden, options.hidden))),
        key_(register_module("key", Linear(options.hidden, options.hidden))),
        value_(register_module("value", Linear(options.hidden, options.hidden))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto mixed = query_->forward(x);
    const auto key = by_head(key_->forward(x)), value = by_head(value_->forward(x)), query = by_head(mixed);
    auto scores = at::matmul(query, key.transpose(-1, -2));
    scores = scores / std::sqrt(static_cast<double>(query.size(-1)));
    scores = scores + mask;
    auto weights = options_.softmax_keeps_input ? Softmax::apply(scores) : scores.softmax(-1);
    weights = at::dropout(weights, 0.1, true);
    auto context = at::matmul(weights, value);
    context = context.permute({0, 2, 1, 3}).contiguous();
    return context.view(x.sizes());
  }

 private:
  at::Tensor by_head(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), options_.heads, x.size(2) / options_.heads}).permute({0, 2, 1, 3});
  }
  BertOptions options_;
  Linear query_, key_, value_;
};
TORCH_MODULE(SelfAttention);

class LayerImpl : public nn::Module {
 public:
  explicit LayerImpl(const BertOptions& options)
      : attention_(register_module("attention", SelfAttention(options))),
        attention_output_(register_module("attention_output", Output(options.hidden, options))),
        intermediate_(register_module("intermediate", Linear(options.hidden, options.inner))),
        output_(register_module("output", Output(options.inner, options))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto mixed = attention_->forward(x, mask);
    const auto attended = attention_output_->forward(mixed, x);
    auto inner = intermediate_->forward(attended);
    inner = at::gelu(inner.to(at::kFloat));  // So did autocast before pytorch/pytorch#59639.
    return output_->forward(inner, attended);
  }

 private:
  SelfAttention attention_;
  Output attention_output_;
  Linear intermediate_;
  Output output_;
};
TORCH_MODULE(Layer);

/// torch.utils.checkpoint as it was: the first run without a graph, so that autocast keeps the weights' casts to its
/// end; the second one whole, with a backward of its own.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  struct Region : torch::CustomClassHolder {
    Region(Layer layer, bool half) : layer(std::move(layer)), half(half) {}
    Layer layer;
    bool half;
  };
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& mask,
                            Layer layer, bool half) {
    context->save_for_backward({x, mask});
    auto y = layer->forward(x, mask);
    context->saved_data["region"] = c10::IValue::make_capsule(c10::make_intrusive<Region>(std::move(layer), half));
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradient) {
    const auto saved = context->get_saved_variables();
    const auto capsule = context->saved_data["region"].toCapsule();
    auto& region = static_cast<Region&>(*capsule);
    const auto x = saved[0].detach().set_requires_grad(true);
    at::Tensor y;
    {
      const at::AutoGradMode with_graph(true);
      std::optional<techniques::Autocast> autocast;
      if (region.half) autocast.emplace(at::kCUDA, at::kHalf);
      y = region.layer->forward(x, saved[1]);
    }
    torch::autograd::backward({y}, gradient);
    return {x.grad(), {}, {}, {}};
  }
};

class BertImpl : public nn::Module {
 public:
  explicit BertImpl(const BertOptions& options)
      : options_(options),
        words_(register_module("word_embeddings", nn::Embedding(options.vocabulary, options.hidden))),
        positions_(register_module("position_embeddings", nn::Embedding(options.positions, options.hidden))),
        types_(register_module("token_type_embeddings", nn::Embedding(2, options.hidden))),
        norm_(register_module("LayerNorm", layer_norm(options))),
        position_ids_(register_buffer("position_ids", at::zeros({1, options.positions}, at::kLong))),
        type_ids_(register_buffer("token_type_ids", at::zeros({1, options.positions}, at::kLong))) {
    for (std::int64_t i = 0; i < options.layers; ++i)
      layers_.push_back(register_module("layer" + std::to_string(i), Layer(options)));
    pooler_ = register_module("pooler", Linear(options.hidden, options.hidden));
    classifier_ = register_module("classifier", Linear(options.hidden, 2));
  }
  /// Mean loss of int64 tokens [batch, length] and labels [batch].
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels) {
    const auto ones = at::ones(tokens.sizes(), at::TensorOptions(tokens.device()));
    auto mask = ones.unsqueeze(1).unsqueeze(1);
    mask = 1.0 - mask;
    mask = mask * -10000.0;
    const auto embedded = embed(tokens);
    auto x = embedded;
    for (auto& layer : layers_)
      x = options_.checkpointed ? Checkpoint::apply(x, mask, layer, options_.half) : layer->forward(x, mask);
    auto pooled = pooler_->forward(x.select(1, 0));
    pooled = pooled.tanh();
    pooled = at::dropout(pooled, 0.1, true);
    const auto logits = classifier_->forward(pooled);
    return at::cross_entropy_loss(logits.view({-1, 2}), labels.view({-1}));
  }

 private:
  at::Tensor embed(const at::Tensor& tokens) {
    const auto length = tokens.size(1);
    const auto types = type_ids_.narrow(1, 0, length).expand(tokens.sizes());
    const auto words = words_->forward(tokens);
    const auto of_types = types_->forward(types);
    auto sum = words + of_types;
    const auto positions = positions_->forward(position_ids_.narrow(1, 0, length));
    sum += positions;
    sum = norm_->forward(sum);
    return at::dropout(sum, 0.1, true);
  }
  BertOptions options_;
  nn::Embedding words_, positions_, types_;
  nn::LayerNorm norm_;
  at::Tensor position_ids_, type_ids_;
  std::vector<Layer> layers_;
  Linear pooler_{nullptr}, classifier_{nullptr};
};
TORCH_MODULE(Bert);

/// Updates one parameter after the other from its gradient; states are made on first use..
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void update(at::Tensor parameter) = 0;
  void end_step() { local_.reset(); }

 protected:
  at::Tensor local_;  ///< What a variable of step() holds until it is assigned anew for the next parameter.
};

/// transformers.AdamW.
class AdamW final : public Optimizer {
 public:
  void update(at::Tensor parameter) override {
    const auto gradient = parameter.grad();
    auto& [first, second] = state_[parameter.unsafeGetTensorImpl()];
    if (!first.defined()) {
      first = at::zeros_like(parameter);
      second = at::zeros_like(parameter);
    }
    first.mul_(0.9).add_(gradient, 0.1);
    second.mul_(0.999).addcmul_(gradient, gradient, 0.001);
    local_ = second.sqrt().add_(1e-8);
    parameter.addcdiv_(first, local_, -5e-5);
  }

 private:
  std::map<const void*, std::pair<at::Tensor, at::Tensor>> state_;
};

/// transformers.Adafactor as its Trainer makes it: no first moment, a fixed rate; a row and a column of each matrix.
class Adafactor final : public Optimizer {
 public:
  void update(at::Tensor parameter) override {
    const auto gradient = parameter.grad();
    auto& state = state_[parameter.unsafeGetTensorImpl()];
    const bool factored = parameter.dim() >= 2;
    if (!state.row.defined()) {
      state.row = factored ? at::zeros({gradient.size(0)}, gradient.options()) : at::zeros_like(gradient);
      if (factored) state.column = at::zeros({gradient.size(1)}, gradient.options());
    }
    state.rms = root_mean_square(parameter);
    {
      const auto squared = gradient.pow(2);
      local_ = squared + 1e-30;
    }
    if (factored) {
      state.row.mul_(0.5).add_(local_.mean(-1), 0.5);
      state.column.mul_(0.5).add_(local_.mean(-2), 0.5);
      local_ = outer(state.row, state.column);
      local_.mul_(gradient);
    } else {
      state.row.mul_(0.5).add_(local_, 0.5);
      local_ = state.row.rsqrt().mul_(gradient);
    }
    local_.div_(root_mean_square(local_).clamp_(1.0));
    local_.mul_(5e-5);
    parameter.add_(-local_);
  }

 private:
  struct State {
    at::Tensor row, column, rms;
  };
  static at::Tensor root_mean_square(const at::Tensor& x) {
    return at::linalg_vector_norm(x, 2) / std::sqrt(static_cast<double>(x.numel()));
  }
  static at::Tensor outer(const at::Tensor& row, const at::Tensor& column) {
    const auto by_row = (row / row.mean(-1, /*keepdim=*/true)).rsqrt_().unsqueeze(-1);
    const auto by_column = column.unsqueeze(-2).rsqrt();
    return at::mul(by_row, by_column);
  }
  std::map<const void*, State> state_;
};

/// bitsandbytes.optim.Adam8bit: a byte for each moment and a float32 for each 2048 of them; tensors of less than 4096
/// elements in float32. One kernel updates, and takes nothing.
class Adam8bit final : public Optimizer {
 public:
  void update(at::Tensor parameter) override {
    auto& state = state_[parameter.unsafeGetTensorImpl()];
    if (!state.empty()) return;
    const bool small = parameter.numel() < 4096;
    for (int moment = 0; moment < 2; ++moment)
      state.push_back(at::zeros_like(parameter, parameter.options().dtype(small ? at::kFloat : at::kByte)));
    for (int moment = 0; moment < 2 && !small; ++moment)
      state.push_back(at::zeros({(parameter.numel() + 2047) / 2048}, at::TensorOptions(parameter.device())));
  }

 private:
  std::map<const void*, std::vector<at::Tensor>> state_;
};
}  // namespace cinch::tests::ladder
