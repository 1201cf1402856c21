// Rows: linear layers, convolutions, norms, pooling, padding, resizing, embeddings.
#include <torch/nn/functional/normalization.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/functional/upsampling.h>
#include <torch/nn/functional/vision.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/distance.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/fold.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include "tests/modules.h"

namespace cinch::tests {
namespace {
namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Sizes = std::vector<std::int64_t>;

template <class Net, class Options>
Row layer(std::string name, Options options, MakeInput input) {
  return module_row(
      std::move(name), [options] { return Net(options); }, std::move(input));
}

void add_linear(Rows& rows) {
  rows.push_back(layer<nn::Linear>("Linear", nn::LinearOptions(90, 70), random({50, 90})));
  rows.push_back(layer<nn::Linear>("Linear_3d", nn::LinearOptions(90, 70), random({6, 20, 90})));
  rows.push_back(layer<nn::Linear>("Linear_no_bias", nn::LinearOptions(90, 70).bias(false), random({6, 20, 90})));
  rows.push_back(layer<nn::Linear>("Linear_transposed", nn::LinearOptions(50, 70), transposed({6, 90, 50})));
  rows.push_back(layer<nn::Linear>("Linear_transposed_2d", nn::LinearOptions(50, 70), transposed({90, 50})));
  rows.push_back(function_row("Bilinear", [](const Inputs& in) { return at::bilinear(in[0], in[1], in[2], in[3]); },
                              {random({40, 60}), random({40, 70}), random({30, 60, 70}), random({30})}));
  rows.push_back(function_row("CosineSimilarity",
                              [](const Inputs& in) { return nn::CosineSimilarity()->forward(in[0], in[1]); },
                              {random({64, 60}), random({64, 60})}));
  rows.push_back(function_row("PairwiseDistance",
                              [](const Inputs& in) { return nn::PairwiseDistance()->forward(in[0], in[1]); },
                              {random({64, 60}), random({64, 60})}));
}

void add_convolutions(Rows& rows) {
  const auto conv2 = [] { return nn::Conv2dOptions(8, 16, 3); };
  rows.push_back(layer<nn::Conv1d>("Conv1d", nn::Conv1dOptions(20, 30, 5).padding(2), random({6, 20, 100})));
  rows.push_back(layer<nn::Conv1d>(
      "Conv1d_strided_dilated", nn::Conv1dOptions(20, 30, 5).stride(2).dilation(3).bias(false), random({6, 20, 100})));
  rows.push_back(layer<nn::Conv1d>("Conv1d_grouped", nn::Conv1dOptions(20, 40, 3).groups(4), random({6, 20, 100})));
  rows.push_back(layer<nn::Conv2d>("Conv2d", conv2().padding(1), random({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_no_bias", conv2().bias(false), random({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_one_image", conv2(), random({1, 8, 40, 40})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_unbatched", conv2(), random({8, 40, 40})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_1x1", nn::Conv2dOptions(8, 16, 1), random({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_strided", conv2().stride(2).padding(1), random({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_dilated", conv2().dilation(2), random({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_grouped", conv2().groups(4), random({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_depthwise", nn::Conv2dOptions(16, 16, 3).groups(16).padding(1),
                                   random({4, 16, 24, 24})));
  rows.push_back(
      layer<nn::Conv2d>("Conv2d_same", nn::Conv2dOptions(8, 16, 4).padding(torch::kSame), random({4, 8, 24, 24})));
  rows.push_back(
      layer<nn::Conv2d>("Conv2d_reflect", conv2().padding(1).padding_mode(torch::kReflect), random({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_channels_last", conv2().padding(1), channels_last({4, 8, 24, 24})));
  rows.push_back(layer<nn::Conv2d>("Conv2d_transposed_input", conv2(), transposed({4, 8, 24, 28})));
  rows.push_back(module_row(
      "Conv2d_double",
      [=] {
        nn::Conv2d net(conv2());
        net->to(at::kDouble);
        return net;
      },
      random({4, 8, 24, 24}, at::kDouble)));
  rows.push_back(module_row(
      "Conv2d_bfloat16",
      [=] {
        nn::Conv2d net(conv2());
        net->to(at::kBFloat16);
        return net;
      },
      random({4, 8, 24, 24}, at::kBFloat16)));
  rows.push_back(layer<nn::Conv3d>("Conv3d", nn::Conv3dOptions(4, 8, 3).padding(1), random({2, 4, 10, 12, 12})));
  rows.push_back(layer<nn::Conv3d>("Conv3d_strided_grouped", nn::Conv3dOptions(4, 8, 3).stride(2).groups(2).bias(false),
                                   random({2, 4, 12, 12, 12})));
  rows.push_back(
      layer<nn::Conv3d>("Conv3d_dilated", nn::Conv3dOptions(4, 8, 3).dilation(2), random({2, 4, 12, 12, 12})));
  rows.push_back(
      layer<nn::Conv3d>("Conv3d_channels_last", nn::Conv3dOptions(4, 8, 3), channels_last({2, 4, 12, 12, 12})));
  rows.push_back(layer<nn::ConvTranspose1d>("ConvTranspose1d", nn::ConvTranspose1dOptions(20, 16, 4).stride(2),
                                            random({6, 20, 60})));
  rows.push_back(
      layer<nn::ConvTranspose2d>("ConvTranspose2d", nn::ConvTranspose2dOptions(8, 12, 3), random({4, 8, 20, 20})));
  rows.push_back(layer<nn::ConvTranspose2d>(
      "ConvTranspose2d_strided",
      nn::ConvTranspose2dOptions(8, 12, 3).stride(2).padding(1).output_padding(1).bias(false), random({4, 8, 20, 20})));
  rows.push_back(layer<nn::ConvTranspose2d>("ConvTranspose2d_grouped", nn::ConvTranspose2dOptions(8, 12, 3).groups(2),
                                            random({4, 8, 20, 20})));
  rows.push_back(layer<nn::ConvTranspose2d>("ConvTranspose2d_dilated", nn::ConvTranspose2dOptions(8, 12, 3).dilation(2),
                                            random({4, 8, 20, 20})));
  rows.push_back(layer<nn::ConvTranspose3d>("ConvTranspose3d", nn::ConvTranspose3dOptions(4, 6, 3).stride(2),
                                            random({2, 4, 8, 8, 8})));
}

void add_norms(Rows& rows) {
  rows.push_back(layer<nn::BatchNorm1d>("BatchNorm1d", nn::BatchNormOptions(80), random({60, 80})));
  rows.push_back(layer<nn::BatchNorm1d>("BatchNorm1d_3d", nn::BatchNormOptions(20), random({8, 20, 50})));
  rows.push_back(layer<nn::BatchNorm2d>("BatchNorm2d", nn::BatchNormOptions(8), random({4, 8, 20, 20})));
  rows.push_back(
      layer<nn::BatchNorm2d>("BatchNorm2d_not_affine", nn::BatchNormOptions(8).affine(false), random({4, 8, 20, 20})));
  rows.push_back(layer<nn::BatchNorm2d>("BatchNorm2d_no_statistics", nn::BatchNormOptions(8).track_running_stats(false),
                                        random({4, 8, 20, 20})));
  rows.push_back(
      layer<nn::BatchNorm2d>("BatchNorm2d_channels_last", nn::BatchNormOptions(8), channels_last({4, 8, 20, 20})));
  rows.push_back(module_row(
      "BatchNorm2d_evaluating",
      [] {
        nn::BatchNorm2d net(8);
        net->eval();
        return net;
      },
      random({4, 8, 20, 20})));
  rows.push_back(layer<nn::BatchNorm3d>("BatchNorm3d", nn::BatchNormOptions(4), random({2, 4, 10, 12, 12})));
  rows.push_back(layer<nn::InstanceNorm1d>("InstanceNorm1d", nn::InstanceNormOptions(20), random({8, 20, 50})));
  rows.push_back(
      layer<nn::InstanceNorm2d>("InstanceNorm2d", nn::InstanceNormOptions(8).affine(true), random({4, 8, 20, 20})));
  rows.push_back(layer<nn::InstanceNorm2d>(
      "InstanceNorm2d_statistics", nn::InstanceNormOptions(8).track_running_stats(true), random({4, 8, 20, 20})));
  rows.push_back(layer<nn::InstanceNorm3d>("InstanceNorm3d", nn::InstanceNormOptions(4), random({2, 4, 10, 12, 12})));
  rows.push_back(layer<nn::LayerNorm>("LayerNorm", nn::LayerNormOptions({64}), random({6, 20, 64})));
  rows.push_back(layer<nn::LayerNorm>("LayerNorm_2d_not_affine",
                                      nn::LayerNormOptions({20, 64}).elementwise_affine(false), random({6, 20, 64})));
  rows.push_back(layer<nn::LayerNorm>("LayerNorm_transposed", nn::LayerNormOptions({64}), transposed({6, 20, 64})));
  rows.push_back(layer<nn::GroupNorm>("GroupNorm", nn::GroupNormOptions(4, 16), random({4, 16, 14, 14})));
  rows.push_back(
      layer<nn::GroupNorm>("GroupNorm_channels_last", nn::GroupNormOptions(4, 16), channels_last({4, 16, 14, 14})));
  rows.push_back(
      layer<nn::LocalResponseNorm>("LocalResponseNorm", nn::LocalResponseNormOptions(2), random({4, 8, 20, 20})));
  rows.push_back(layer<nn::CrossMapLRN2d>("CrossMapLRN2d", nn::CrossMapLRN2dOptions(3), random({4, 8, 20, 20})));
  rows.push_back(function_row("RMSNorm", [](const Inputs& in) { return at::rms_norm(in[0], {64}, in[1]); },
                              {random({6, 20, 64}), random({64})}));
  rows.push_back(function_row("RMSNorm_no_weight", [](const Inputs& in) { return at::rms_norm(in[0], {64}); },
                              {random({6, 20, 64})}));
  rows.push_back(function_row("RMSNorm_bfloat16",
                              [](const Inputs& in) { return at::rms_norm(in[0], {64}, in[1], 1e-6); },
                              {random({6, 40, 64}, at::kBFloat16), random({64}, at::kBFloat16)}));
  rows.push_back(function_row("normalize", [](const Inputs& in) { return F::normalize(in[0]); }, {random({60, 80})}));
  rows.push_back(function_row("weight_norm",
                              [](const Inputs& in) { return at::linear(in[0], at::_weight_norm(in[1], in[2], 0)); },
                              {random({60, 80}), random({70, 80}), random({70, 1})}));
  rows.push_back(function_row("spectral_norm",
                              [](const Inputs& in) {
                                at::Tensor u, v;
                                {
                                  const at::NoGradGuard no_grad;
                                  v = F::normalize(at::mv(in[1].t(), in[2].detach()), F::NormalizeFuncOptions().dim(0));
                                  u = F::normalize(at::mv(in[1], v), F::NormalizeFuncOptions().dim(0));
                                }
                                return at::linear(in[0], in[1] / at::dot(u, at::mv(in[1], v)));
                              },
                              {random({60, 80}), random({70, 80}), random({70})}));
}

void add_pooling(Rows& rows) {
  const auto x1 = random({6, 20, 100}), x2 = random({4, 8, 24, 24}), x3 = random({2, 4, 12, 12, 12}),
             last2 = channels_last({4, 8, 24, 24});
  rows.push_back(layer<nn::MaxPool1d>("MaxPool1d", nn::MaxPool1dOptions(2), x1));
  rows.push_back(layer<nn::MaxPool2d>("MaxPool2d", nn::MaxPool2dOptions(2), x2));
  rows.push_back(layer<nn::MaxPool2d>("MaxPool2d_padded_strided",
                                      nn::MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true), x2));
  rows.push_back(layer<nn::MaxPool2d>("MaxPool2d_dilated", nn::MaxPool2dOptions(2).dilation(2), x2));
  rows.push_back(layer<nn::MaxPool2d>("MaxPool2d_channels_last", nn::MaxPool2dOptions(2), last2));
  rows.push_back(layer<nn::MaxPool2d>("MaxPool2d_unbatched", nn::MaxPool2dOptions(2), random({8, 40, 40})));
  rows.push_back(layer<nn::MaxPool2d>("MaxPool2d_transposed", nn::MaxPool2dOptions(2), transposed({4, 8, 24, 28})));
  rows.push_back(layer<nn::MaxPool3d>("MaxPool3d", nn::MaxPool3dOptions(2), x3));
  rows.push_back(layer<nn::AvgPool1d>("AvgPool1d", nn::AvgPool1dOptions(3), x1));
  rows.push_back(layer<nn::AvgPool2d>("AvgPool2d", nn::AvgPool2dOptions(2), x2));
  rows.push_back(layer<nn::AvgPool2d>("AvgPool2d_padded_strided",
                                      nn::AvgPool2dOptions(3).stride(2).padding(1).count_include_pad(false), x2));
  rows.push_back(layer<nn::AvgPool2d>("AvgPool2d_channels_last", nn::AvgPool2dOptions(2), last2));
  rows.push_back(layer<nn::AvgPool3d>("AvgPool3d", nn::AvgPool3dOptions(2), x3));
  rows.push_back(layer<nn::AdaptiveMaxPool1d>("AdaptiveMaxPool1d", nn::AdaptiveMaxPool1dOptions(25), x1));
  rows.push_back(layer<nn::AdaptiveMaxPool2d>("AdaptiveMaxPool2d", nn::AdaptiveMaxPool2dOptions({9, 11}), x2));
  rows.push_back(
      layer<nn::AdaptiveMaxPool2d>("AdaptiveMaxPool2d_channels_last", nn::AdaptiveMaxPool2dOptions({9, 11}), last2));
  rows.push_back(layer<nn::AdaptiveMaxPool3d>("AdaptiveMaxPool3d", nn::AdaptiveMaxPool3dOptions(5), x3));
  rows.push_back(layer<nn::AdaptiveAvgPool1d>("AdaptiveAvgPool1d", nn::AdaptiveAvgPool1dOptions(25), x1));
  rows.push_back(layer<nn::AdaptiveAvgPool2d>("AdaptiveAvgPool2d", nn::AdaptiveAvgPool2dOptions({9, 11}), x2));
  rows.push_back(layer<nn::AdaptiveAvgPool2d>("AdaptiveAvgPool2d_to_one", nn::AdaptiveAvgPool2dOptions(1), x2));
  rows.push_back(
      layer<nn::AdaptiveAvgPool2d>("AdaptiveAvgPool2d_channels_last", nn::AdaptiveAvgPool2dOptions({9, 11}), last2));
  rows.push_back(layer<nn::AdaptiveAvgPool3d>("AdaptiveAvgPool3d", nn::AdaptiveAvgPool3dOptions(5), x3));
  rows.push_back(layer<nn::FractionalMaxPool2d>("FractionalMaxPool2d",
                                                nn::FractionalMaxPool2dOptions(2).output_size(Sizes{15, 15}), x2));
  rows.push_back(layer<nn::FractionalMaxPool3d>("FractionalMaxPool3d",
                                                nn::FractionalMaxPool3dOptions(2).output_size(Sizes{7, 7, 7}), x3));
  rows.push_back(layer<nn::LPPool1d>("LPPool1d", nn::LPPool1dOptions(2, 3), x1));
  rows.push_back(layer<nn::LPPool2d>("LPPool2d", nn::LPPool2dOptions(2, 3), x2));
  const auto pairs = [](const Inputs& in, std::int64_t d) {
    const auto sizes = Sizes(static_cast<std::size_t>(d), 2);
    if (d == 1) {
      auto [y, where] = at::max_pool1d_with_indices(in[0], sizes);
      return F::max_unpool1d(y, where, F::MaxUnpool1dFuncOptions(2));
    }
    if (d == 2) {
      auto [y, where] = at::max_pool2d_with_indices(in[0], sizes);
      return F::max_unpool2d(y, where, F::MaxUnpool2dFuncOptions(2));
    }
    auto [y, where] = at::max_pool3d_with_indices(in[0], sizes);
    return F::max_unpool3d(y, where, F::MaxUnpool3dFuncOptions(2));
  };
  rows.push_back(function_row("MaxUnpool1d", [=](const Inputs& in) { return pairs(in, 1); }, {x1}));
  rows.push_back(function_row("MaxUnpool2d", [=](const Inputs& in) { return pairs(in, 2); }, {x2}));
  rows.push_back(function_row("MaxUnpool3d", [=](const Inputs& in) { return pairs(in, 3); }, {x3}));
}

void add_padding(Rows& rows) {
  const auto x1 = random({6, 20, 100}), x2 = random({4, 8, 24, 24}), x3 = random({2, 4, 12, 12, 12});
  rows.push_back(layer<nn::ConstantPad1d>("ConstantPad1d", nn::ConstantPad1dOptions(2, 1.5), x1));
  rows.push_back(layer<nn::ConstantPad2d>("ConstantPad2d", nn::ConstantPad2dOptions({1, 2, 3, 0}, 1.5), x2));
  rows.push_back(layer<nn::ConstantPad2d>("ConstantPad2d_channels_last", nn::ConstantPad2dOptions({1, 2, 3, 0}, 1.5),
                                          channels_last({4, 8, 24, 24})));
  rows.push_back(layer<nn::ConstantPad2d>("ConstantPad2d_negative", nn::ConstantPad2dOptions({-1, 2, 0, -3}, 1.5), x2));
  rows.push_back(layer<nn::ConstantPad3d>("ConstantPad3d", nn::ConstantPad3dOptions(1, 1.5), x3));
  rows.push_back(layer<nn::ZeroPad2d>("ZeroPad2d", nn::ZeroPad2dOptions(2), x2));
  rows.push_back(layer<nn::ReflectionPad1d>("ReflectionPad1d", nn::ReflectionPad1dOptions(3), x1));
  rows.push_back(layer<nn::ReflectionPad2d>("ReflectionPad2d", nn::ReflectionPad2dOptions(3), x2));
  rows.push_back(layer<nn::ReflectionPad2d>("ReflectionPad2d_channels_last", nn::ReflectionPad2dOptions(3),
                                            channels_last({4, 8, 24, 24})));
  rows.push_back(layer<nn::ReflectionPad3d>("ReflectionPad3d", nn::ReflectionPad3dOptions(1), x3));
  rows.push_back(layer<nn::ReplicationPad1d>("ReplicationPad1d", nn::ReplicationPad1dOptions(3), x1));
  rows.push_back(layer<nn::ReplicationPad2d>("ReplicationPad2d", nn::ReplicationPad2dOptions(3), x2));
  rows.push_back(layer<nn::ReplicationPad3d>("ReplicationPad3d", nn::ReplicationPad3dOptions(1), x3));
  rows.push_back(function_row("pad_circular",
                              [](const Inputs& in) {
                                return F::pad(in[0], F::PadFuncOptions({2, 2, 1, 1}).mode(torch::kCircular));
                              },
                              {x2}));
}

void add_resizing(Rows& rows) {
  const auto x1 = random({6, 20, 60}), x2 = random({4, 8, 14, 14}), x3 = random({2, 4, 6, 8, 8});
  const auto upsample = [] { return nn::UpsampleOptions().scale_factor(std::vector<double>{2, 1.5}); };
  const auto sizes = [](Sizes to) { return nn::UpsampleOptions().size(std::move(to)); };
  rows.push_back(layer<nn::Upsample>("Upsample_nearest_1d", sizes({90}).mode(torch::kNearest), x1));
  rows.push_back(layer<nn::Upsample>("Upsample_nearest_2d", upsample().mode(torch::kNearest), x2));
  rows.push_back(layer<nn::Upsample>("Upsample_nearest_2d_channels_last", upsample().mode(torch::kNearest),
                                     channels_last({4, 8, 14, 14})));
  rows.push_back(layer<nn::Upsample>("Upsample_nearest_3d", sizes({9, 12, 12}).mode(torch::kNearest), x3));
  rows.push_back(layer<nn::Upsample>("Upsample_linear", sizes({90}).mode(torch::kLinear).align_corners(false), x1));
  rows.push_back(layer<nn::Upsample>("Upsample_bilinear", upsample().mode(torch::kBilinear).align_corners(false), x2));
  rows.push_back(
      layer<nn::Upsample>("Upsample_bilinear_aligned", upsample().mode(torch::kBilinear).align_corners(true), x2));
  rows.push_back(layer<nn::Upsample>("Upsample_bilinear_channels_last",
                                     upsample().mode(torch::kBilinear).align_corners(false),
                                     channels_last({4, 8, 14, 14})));
  rows.push_back(layer<nn::Upsample>("Upsample_bicubic", upsample().mode(torch::kBicubic).align_corners(false), x2));
  rows.push_back(
      layer<nn::Upsample>("Upsample_trilinear", sizes({9, 12, 12}).mode(torch::kTrilinear).align_corners(false), x3));
  rows.push_back(
      function_row("interpolate_area",
                   [](const Inputs& in) {
                     return F::interpolate(in[0], F::InterpolateFuncOptions().size(Sizes{20, 20}).mode(torch::kArea));
                   },
                   {x2}));
  rows.push_back(function_row(
      "interpolate_nearest_exact",
      [](const Inputs& in) {
        return F::interpolate(in[0], F::InterpolateFuncOptions().size(Sizes{20, 20}).mode(torch::kNearestExact));
      },
      {x2}));
  rows.push_back(function_row("interpolate_antialias",
                              [](const Inputs& in) {
                                return at::_upsample_bilinear2d_aa(in[0], {9, 9}, false);
                              },
                              {random({4, 8, 24, 24})}));
  rows.push_back(layer<nn::Unfold>("Unfold", nn::UnfoldOptions(3).padding(1).stride(2), x2));
  rows.push_back(layer<nn::Fold>("Fold", nn::FoldOptions({12, 12}, {3, 3}), random({4, 36, 100})));
  rows.push_back(layer<nn::PixelShuffle>("PixelShuffle", nn::PixelShuffleOptions(2), x2));
  rows.push_back(layer<nn::PixelUnshuffle>("PixelUnshuffle", nn::PixelUnshuffleOptions(2), x2));
  rows.push_back(function_row("channel_shuffle", [](const Inputs& in) { return at::channel_shuffle(in[0], 4); }, {x2}));
  rows.push_back(function_row(
      "grid_sample",
      [](const Inputs& in) { return F::grid_sample(in[0], in[1], F::GridSampleFuncOptions().align_corners(false)); },
      {x2, random({4, 16, 18, 2})}));
  rows.push_back(function_row(
      "grid_sample_nearest_reflected",
      [](const Inputs& in) {
        return F::grid_sample(
            in[0], in[1],
            F::GridSampleFuncOptions().mode(torch::kNearest).padding_mode(torch::kReflection).align_corners(true));
      },
      {x2, random({4, 16, 18, 2})}));
  rows.push_back(function_row("grid_sample_bicubic",
                              [](const Inputs& in) { return at::grid_sampler_2d(in[0], in[1], 2, 0, false); },
                              {x2, random({4, 16, 18, 2})}));
  rows.push_back(function_row("grid_sample_3d",
                              [](const Inputs& in) { return at::grid_sampler_3d(in[0], in[1], 0, 0, false); },
                              {x3, random({2, 7, 8, 9, 3})}));
  rows.push_back(function_row("affine_grid",
                              [](const Inputs& in) {
                                return F::affine_grid(in[0], {4, 3, 24, 24});
                              },
                              {random({4, 2, 3})}));
  rows.push_back(function_row("affine_grid_3d",
                              [](const Inputs& in) {
                                return F::affine_grid(in[0], {4, 3, 10, 10, 10});
                              },
                              {random({4, 3, 4})}));
}

void add_embeddings(Rows& rows) {
  const auto words = indices({16, 40}, 500);
  rows.push_back(layer<nn::Embedding>("Embedding", nn::EmbeddingOptions(500, 48), words));
  rows.push_back(layer<nn::Embedding>("Embedding_padded_scaled",
                                      nn::EmbeddingOptions(500, 48).padding_idx(0).scale_grad_by_freq(true), words));
  rows.push_back(
      layer<nn::EmbeddingBag>("EmbeddingBag_sum", nn::EmbeddingBagOptions(500, 48).mode(torch::kSum), words));
  rows.push_back(layer<nn::EmbeddingBag>("EmbeddingBag_mean", nn::EmbeddingBagOptions(500, 48).mode(torch::kMean),
                                         indices({64, 40}, 500)));
  rows.push_back(layer<nn::EmbeddingBag>("EmbeddingBag_max", nn::EmbeddingBagOptions(500, 48).mode(torch::kMax),
                                         indices({64, 40}, 500)));
  rows.push_back(module_row(
      "EmbeddingBag_evaluating",
      [] {
        nn::EmbeddingBag net(500, 48);
        for (auto& parameter : net->parameters()) parameter.requires_grad_(false);
        return net;
      },
      words));
  rows.push_back(function_row(
      "EmbeddingBag_weighted",
      [](const Inputs& in) { return at::embedding_bag(in[0], in[1], at::arange(64) * 40, false, 0, false, in[2]); },
      {random({500, 48}), indices({2560}, 500), random({2560})}));
  rows.push_back(function_row("embedding_bag_dense_backward",
                              [](const Inputs& in) {
                                const auto bags = at::arange(2560).div(40, "floor");
                                return at::_embedding_bag_dense_backward(
                                    in[0].detach(), in[1], bags, at::full({64}, 40), at::empty({0}, at::kLong), 500,
                                    /*scale_grad_by_freq=*/false, /*mode=*/0, /*per_sample_weights=*/{});
                              },
                              {random({64, 48}), indices({2560}, 500)}));
  rows.push_back(function_row("embedding_renorm",
                              [](const Inputs& in) {
                                {
                                  const at::NoGradGuard no_grad;
                                  at::embedding_renorm_(const_cast<at::Tensor&>(in[0]), in[1], 0.1, 2.0);
                                }
                                return at::embedding(in[0], in[1]);
                              },
                              {random({100, 48}), indices({60}, 100)}));
  rows.push_back(function_row("one_hot",
                              [](const Inputs& in) { return at::one_hot(in[0], 100).to(at::kFloat).matmul(in[1]); },
                              {indices({64}, 100), random({100, 48})}));
}
}  // namespace

void add_layer_rows(Rows& rows) {
  add_linear(rows);
  add_convolutions(rows);
  add_norms(rows);
  add_pooling(rows);
  add_padding(rows);
  add_resizing(rows);
  add_embeddings(rows);
}
}  // namespace cinch::tests
