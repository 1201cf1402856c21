// Rows: activations and dropout.
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>

#include "tests/modules.h"

namespace cinch::tests {
namespace {
namespace nn = torch::nn;
namespace F = torch::nn::functional;

template <class Net>
Row plain(std::string name) {
  return module_row(
      std::move(name), [] { return Net(); }, random({60, 80}));
}
template <class Net, class Options>
Row with(std::string name, Options options, MakeInput input = random({60, 80})) {
  return module_row(
      std::move(name), [options] { return Net(options); }, std::move(input));
}

/// On a copy: a leaf cannot be written in place.
template <class Function>
Row in_place(std::string name, Function function) {
  return function_row(std::move(name), [function](const Inputs& in) { return function(in[0] * 1.0); },
                      {random({60, 80})});
}
}  // namespace

void add_activation_rows(Rows& rows) {
  rows.push_back(plain<nn::ReLU>("ReLU"));
  rows.push_back(plain<nn::ReLU6>("ReLU6"));
  rows.push_back(plain<nn::LeakyReLU>("LeakyReLU"));
  rows.push_back(with<nn::GELU>("GELU", nn::GELUOptions()));
  rows.push_back(with<nn::GELU>("GELU_tanh", nn::GELUOptions().approximate("tanh")));
  rows.push_back(with<nn::GELU>("GELU_bfloat16", nn::GELUOptions(), random({80, 80}, at::kBFloat16)));
  rows.push_back(with<nn::GELU>("GELU_transposed", nn::GELUOptions(), transposed({60, 80})));
  rows.push_back(with<nn::GELU>("GELU_channels_last", nn::GELUOptions(), channels_last({4, 8, 14, 14})));
  rows.push_back(plain<nn::SiLU>("SiLU"));
  rows.push_back(plain<nn::Mish>("Mish"));
  rows.push_back(plain<nn::ELU>("ELU"));
  rows.push_back(plain<nn::SELU>("SELU"));
  rows.push_back(plain<nn::CELU>("CELU"));
  rows.push_back(plain<nn::GLU>("GLU"));
  rows.push_back(plain<nn::PReLU>("PReLU"));
  rows.push_back(with<nn::PReLU>("PReLU_by_channel", nn::PReLUOptions().num_parameters(80)));
  rows.push_back(plain<nn::RReLU>("RReLU"));
  rows.push_back(with<nn::Softmax>("Softmax", nn::SoftmaxOptions(1)));
  rows.push_back(with<nn::Softmax>("Softmax_first_dimension", nn::SoftmaxOptions(0)));
  rows.push_back(with<nn::Softmax>("Softmax_transposed", nn::SoftmaxOptions(1), transposed({60, 80})));
  rows.push_back(with<nn::Softmin>("Softmin", nn::SoftminOptions(1)));
  rows.push_back(with<nn::LogSoftmax>("LogSoftmax", nn::LogSoftmaxOptions(1)));
  rows.push_back(module_row(
      "Softmax2d", [] { return nn::Softmax2d(); }, random({4, 8, 14, 14})));
  rows.push_back(plain<nn::Softplus>("Softplus"));
  rows.push_back(plain<nn::Softshrink>("Softshrink"));
  rows.push_back(plain<nn::Softsign>("Softsign"));
  rows.push_back(plain<nn::Hardtanh>("Hardtanh"));
  rows.push_back(plain<nn::Hardshrink>("Hardshrink"));
  rows.push_back(plain<nn::Tanh>("Tanh"));
  rows.push_back(plain<nn::Tanhshrink>("Tanhshrink"));
  rows.push_back(plain<nn::Sigmoid>("Sigmoid"));
  rows.push_back(plain<nn::LogSigmoid>("LogSigmoid"));
  rows.push_back(with<nn::Threshold>("Threshold", nn::ThresholdOptions(0.5, 0.1)));
  const auto of = [&](const char* name, auto function) {
    rows.push_back(function_row(name, [function](const Inputs& in) { return function(in[0]); }, {random({60, 80})}));
  };
  of("hardswish", [](const at::Tensor& x) { return at::hardswish(x); });
  of("hardsigmoid", [](const at::Tensor& x) { return at::hardsigmoid(x); });
  of("gumbel_softmax", [](const at::Tensor& x) { return F::gumbel_softmax(x, F::GumbelSoftmaxFuncOptions().dim(1)); });
  of("gumbel_softmax_hard",
     [](const at::Tensor& x) { return F::gumbel_softmax(x, F::GumbelSoftmaxFuncOptions().dim(1).hard(true)); });
  rows.push_back(in_place("ReLU_in_place", [](at::Tensor x) { return x.relu_(); }));
  rows.push_back(in_place("ReLU6_in_place", [](at::Tensor x) { return at::relu6_(x); }));
  rows.push_back(in_place("LeakyReLU_in_place", [](at::Tensor x) { return at::leaky_relu_(x, 0.1); }));
  rows.push_back(in_place("ELU_in_place", [](at::Tensor x) { return at::elu_(x); }));
  rows.push_back(in_place("SiLU_in_place", [](at::Tensor x) { return at::silu_(x); }));
  rows.push_back(in_place("Mish_in_place", [](at::Tensor x) { return at::mish_(x); }));
  rows.push_back(in_place("hardswish_in_place", [](at::Tensor x) { return at::hardswish_(x); }));
  rows.push_back(in_place("hardsigmoid_in_place", [](at::Tensor x) { return at::hardsigmoid_(x); }));
  rows.push_back(in_place("RReLU_in_place", [](at::Tensor x) { return at::rrelu_(x, 0.1, 0.3, true); }));
  rows.push_back(in_place("Threshold_in_place", [](at::Tensor x) { return at::threshold_(x, 0.5, 0.1); }));
  rows.push_back(in_place("Sigmoid_in_place", [](at::Tensor x) { return x.sigmoid_(); }));
  rows.push_back(in_place("Tanh_in_place", [](at::Tensor x) { return x.tanh_(); }));
  rows.push_back(in_place("GELU_in_place", [](at::Tensor x) { return at::gelu_(x); }));
  rows.push_back(plain<nn::Dropout>("Dropout"));
  rows.push_back(module_row(
      "Dropout_evaluating",
      [] {
        nn::Dropout net;
        net->eval();
        return net;
      },
      random({60, 80})));
  rows.push_back(with<nn::Dropout>("Dropout_transposed", nn::DropoutOptions(0.3), transposed({60, 80})));
  rows.push_back(with<nn::Dropout>("Dropout_bfloat16", nn::DropoutOptions(0.3), random({80, 80}, at::kBFloat16)));
  rows.push_back(module_row(
      "Dropout2d", [] { return nn::Dropout2d(); }, random({4, 8, 14, 14})));
  rows.push_back(module_row(
      "Dropout3d", [] { return nn::Dropout3d(); }, random({2, 4, 10, 10, 10})));
  rows.push_back(function_row("native_dropout", [](const Inputs& in) { return at::native_dropout(in[0], 0.3, true); },
                              {random({60, 80})}));
  rows.push_back(plain<nn::AlphaDropout>("AlphaDropout"));
  rows.push_back(module_row(
      "FeatureAlphaDropout", [] { return nn::FeatureAlphaDropout(); }, random({4, 8, 14, 14})));
  rows.push_back(in_place("Dropout_in_place", [](at::Tensor x) { return at::dropout_(x, 0.3, true); }));
  rows.push_back(in_place("AlphaDropout_in_place", [](at::Tensor x) { return at::alpha_dropout_(x, 0.3, true); }));
}
}  // namespace cinch::tests
