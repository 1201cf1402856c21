// Rows: recurrent layers, attention, transformers.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/utils/rnn.h>

#include "tests/modules.h"

namespace cinch::tests {
namespace {
namespace nn = torch::nn;

template <class Net, class Options>
Row layer(std::string name, Options options, MakeInput input) {
  return module_row(
      std::move(name), [options] { return Net(options); }, std::move(input));
}

/// A network of several inputs: its batch is made by `forward`.
template <class MakeNet, class Forward>
Row network(std::string name, MakeNet make_net, Forward forward) {
  return {std::move(name), [=] {
            auto net = make_net();
            return Learner{net->parameters(), [net, forward]() mutable { return forward(net); }};
          }};
}

template <class Net, class Options>
void add_recurrent_kind(Rows& rows, const std::string& kind) {
  const auto x = random({30, 8, 40});
  const auto options = [] { return Options(40, 48); };
  rows.push_back(layer<Net>(kind, options(), x));
  rows.push_back(layer<Net>(kind + "_layers_bidirectional", options().num_layers(2).bidirectional(true), x));
  rows.push_back(layer<Net>(kind + "_dropout_batch_first_no_bias",
                            options().num_layers(2).dropout(0.2).batch_first(true).bias(false), x));
  rows.push_back(module_row(
      kind + "_evaluating",
      [=] {
        Net net(options());
        net->eval();
        return net;
      },
      x));
  rows.push_back(network(
      kind + "_packed", [=] { return Net(options()); },
      [](Net& net) {
        const auto packed = nn::utils::rnn::pack_padded_sequence(at::rand({30, 8, 40}),
                                                                 at::tensor({30, 28, 25, 20, 20, 12, 9, 4}, at::kLong));
        const auto [output, state] = net->forward_with_packed_input(packed);
        return std::get<0>(nn::utils::rnn::pad_packed_sequence(output));
      }));
}

void add_recurrent(Rows& rows) {
  add_recurrent_kind<nn::RNN, nn::RNNOptions>(rows, "RNN");
  add_recurrent_kind<nn::LSTM, nn::LSTMOptions>(rows, "LSTM");
  add_recurrent_kind<nn::GRU, nn::GRUOptions>(rows, "GRU");
  rows.push_back(layer<nn::RNN>("RNN_relu", nn::RNNOptions(40, 48).nonlinearity(torch::kReLU), random({30, 8, 40})));
  rows.push_back(layer<nn::LSTM>("LSTM_projected", nn::LSTMOptions(40, 48).proj_size(24), random({30, 8, 40})));
  rows.push_back(layer<nn::LSTM>("LSTM_small", nn::LSTMOptions(8, 8), random({10, 4, 8})));
  rows.push_back(layer<nn::RNNCell>("RNNCell", nn::RNNCellOptions(40, 48), random({64, 40})));
  rows.push_back(layer<nn::LSTMCell>("LSTMCell", nn::LSTMCellOptions(40, 48), random({64, 40})));
  rows.push_back(layer<nn::GRUCell>("GRUCell", nn::GRUCellOptions(40, 48), random({64, 40})));
}

Row attention(std::string name, bool causal, bool masked, double dropout, std::int64_t key_heads,
              at::ScalarType dtype = at::kFloat) {
  const auto make = [=](std::int64_t heads) { return random({2, heads, 50, 16}, dtype); };
  return function_row(std::move(name),
                      [=](const Inputs& in) {
                        const auto mask = masked ? std::optional<at::Tensor>(at::zeros({50, 50}, dtype)) : std::nullopt;
                        return at::scaled_dot_product_attention(in[0], in[1], in[2], mask, dropout, causal,
                                                                std::nullopt, key_heads != 4);
                      },
                      {make(4), make(key_heads), make(key_heads)});
}

void add_attention(Rows& rows) {
  rows.push_back(attention("attention", false, false, 0, 4));
  rows.push_back(attention("attention_causal", true, false, 0, 4));
  rows.push_back(attention("attention_masked", false, true, 0, 4));
  rows.push_back(attention("attention_dropout", false, false, 0.1, 4));
  rows.push_back(attention("attention_causal_dropout", true, false, 0.1, 4));
  rows.push_back(attention("attention_grouped", true, false, 0, 2));
  rows.push_back(attention("attention_bfloat16", true, false, 0, 4, at::kBFloat16));
  rows.push_back(attention("attention_double", false, false, 0, 4, at::kDouble));
  rows.push_back(
      function_row("attention_bool_mask",
                   [](const Inputs& in) {
                     return at::scaled_dot_product_attention(in[0], in[1], in[2], at::ones({120, 120}, at::kBool));
                   },
                   {random({2, 4, 120, 16}), random({2, 4, 120, 16}), random({2, 4, 120, 16})}));
  const auto multihead = [] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(64, 4).dropout(0.1)); };
  rows.push_back(network("MultiheadAttention", multihead, [](auto& net) {
    const auto x = at::rand({30, 4, 64}).requires_grad_();
    return std::get<0>(net->forward(x, x, x));
  }));
  rows.push_back(network("MultiheadAttention_masked", multihead, [](auto& net) {
    const auto x = at::rand({30, 4, 64}), y = at::rand({40, 4, 64});
    return std::get<0>(net->forward(x, y, y, at::zeros({4, 40}, at::kBool), true, at::zeros({30, 40})));
  }));
  rows.push_back(network(
      "MultiheadAttention_other_sizes",
      [] {
        return nn::MultiheadAttention(
            nn::MultiheadAttentionOptions(64, 4).kdim(48).vdim(48).add_bias_kv(true).add_zero_attn(true));
      },
      [](auto& net) {
        return std::get<0>(net->forward(at::rand({30, 4, 64}), at::rand({40, 4, 48}), at::rand({40, 4, 48})));
      }));
}

void add_transformers(Rows& rows) {
  const auto encoder = [] {
    return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(64, 4).dim_feedforward(128));
  };
  const auto decoder = [] {
    return nn::TransformerDecoderLayer(
        nn::TransformerDecoderLayerOptions(64, 4).dim_feedforward(128).activation(torch::kGELU));
  };
  rows.push_back(module_row("TransformerEncoderLayer", encoder, random({30, 4, 64})));
  rows.push_back(module_row(
      "TransformerEncoder", [=] { return nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder(), 2)); },
      random({30, 4, 64})));
  rows.push_back(network("TransformerDecoderLayer", decoder, [](auto& net) {
    return net->forward(at::rand({30, 4, 64}), at::rand({40, 4, 64}));
  }));
  rows.push_back(network(
      "TransformerDecoder", [=] { return nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder(), 2)); },
      [](auto& net) {
        return net->forward(at::rand({30, 4, 64}), at::rand({40, 4, 64}));
      }));
  rows.push_back(network(
      "Transformer", [] { return nn::Transformer(nn::TransformerOptions(64, 4, 1, 1).dim_feedforward(128)); },
      [](auto& net) {
        return net->forward(at::rand({30, 4, 64}), at::rand({20, 4, 64}));
      }));
}
}  // namespace

void add_sequence_rows(Rows& rows) {
  add_recurrent(rows);
  add_attention(rows);
  add_transformers(rows);
}
}  // namespace cinch::tests
