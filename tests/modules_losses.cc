// Rows: losses.
#include <torch/nn/functional/loss.h>

#include "tests/modules.h"

namespace cinch::tests {
namespace {
namespace F = torch::nn::functional;

/// Labels that are no Inputs of a leaf's kind stay as they are.
template <class Function>
Row loss(std::string name, Function function, std::vector<MakeInput> inputs) {
  return function_row(std::move(name), function, std::move(inputs));
}

MakeInput signs(std::vector<std::int64_t> sizes) {
  return [=] { return at::ones(sizes, at::kLong); };
}

void add_cross_entropy(Rows& rows) {
  using Options = F::CrossEntropyFuncOptions;
  const auto logits = random({64, 100});
  const auto classes = indices({64}, 100);
  rows.push_back(
      loss("cross_entropy", [](const Inputs& in) { return F::cross_entropy(in[0], in[1]); }, {logits, classes}));
  rows.push_back(loss("cross_entropy_long", [](const Inputs& in) { return F::cross_entropy(in[0], in[1]); },
                      {random({1200, 20}), indices({1200}, 20)}));
  rows.push_back(
      loss("cross_entropy_weighted",
           [](const Inputs& in) { return F::cross_entropy(in[0], in[1], Options().weight(at::ones({100}))); },
           {logits, classes}));
  rows.push_back(loss("cross_entropy_ignored",
                      [](const Inputs& in) { return F::cross_entropy(in[0], in[1], Options().ignore_index(3)); },
                      {logits, classes}));
  rows.push_back(loss("cross_entropy_smoothed",
                      [](const Inputs& in) { return F::cross_entropy(in[0], in[1], Options().label_smoothing(0.1)); },
                      {logits, classes}));
  rows.push_back(loss("cross_entropy_smoothed_weighted",
                      [](const Inputs& in) {
                        return F::cross_entropy(in[0], in[1], Options().label_smoothing(0.1).weight(at::ones({100})));
                      },
                      {logits, classes}));
  rows.push_back(
      loss("cross_entropy_soft", [](const Inputs& in) { return F::cross_entropy(in[0], in[1]); }, {logits, logits}));
  rows.push_back(
      loss("cross_entropy_unreduced",
           [](const Inputs& in) { return F::cross_entropy(in[0], in[1], Options().reduction(torch::kNone)); },
           {random({3000, 10}), indices({3000}, 10)}));
  rows.push_back(loss("cross_entropy_2d", [](const Inputs& in) { return F::cross_entropy(in[0], in[1]); },
                      {random({4, 10, 20, 20}), indices({4, 20, 20}, 10)}));
  rows.push_back(loss("cross_entropy_2d_weighted",
                      [](const Inputs& in) {
                        return F::cross_entropy(in[0], in[1], Options().weight(at::ones({10})).reduction(torch::kSum));
                      },
                      {random({4, 10, 20, 20}), indices({4, 20, 20}, 10)}));
  rows.push_back(loss("cross_entropy_3d", [](const Inputs& in) { return F::cross_entropy(in[0], in[1]); },
                      {random({4, 10, 6, 8, 8}), indices({4, 6, 8, 8}, 10)}));
  rows.push_back(loss("cross_entropy_bfloat16", [](const Inputs& in) { return F::cross_entropy(in[0], in[1]); },
                      {random({64, 100}, at::kBFloat16), classes}));
  rows.push_back(loss("nll_loss", [](const Inputs& in) { return F::nll_loss(in[0], in[1]); }, {logits, classes}));
  rows.push_back(
      loss("nll_loss_2d_unreduced",
           [](const Inputs& in) { return F::nll_loss(in[0], in[1], F::NLLLossFuncOptions().reduction(torch::kNone)); },
           {random({4, 10, 30, 30}), indices({4, 30, 30}, 10)}));
}

void add_regression(Rows& rows) {
  const std::vector<MakeInput> pair{random({60, 80}), random({60, 80})};
  rows.push_back(loss(
      "mse_loss", [](const Inputs& in) { return F::mse_loss(in[0], in[1]); }, pair));
  rows.push_back(loss(
      "mse_loss_unreduced",
      [](const Inputs& in) { return F::mse_loss(in[0], in[1], F::MSELossFuncOptions(torch::kNone)); }, pair));
  rows.push_back(loss("mse_loss_transposed", [](const Inputs& in) { return F::mse_loss(in[0], in[1]); },
                      {transposed({60, 80}), random({60, 80})}));
  rows.push_back(loss("mse_loss_bfloat16", [](const Inputs& in) { return F::mse_loss(in[0], in[1]); },
                      {random({80, 80}, at::kBFloat16), random({80, 80}, at::kBFloat16)}));
  rows.push_back(loss("mse_loss_large",
                      [](const Inputs& in) { return F::mse_loss(in[0], in[1], F::MSELossFuncOptions(torch::kSum)); },
                      {random({200, 300}), random({200, 300})}));
  rows.push_back(loss(
      "l1_loss", [](const Inputs& in) { return F::l1_loss(in[0], in[1]); }, pair));
  rows.push_back(loss(
      "smooth_l1_loss", [](const Inputs& in) { return F::smooth_l1_loss(in[0], in[1]); }, pair));
  rows.push_back(loss(
      "huber_loss", [](const Inputs& in) { return F::huber_loss(in[0], in[1]); }, pair));
  rows.push_back(loss(
      "huber_loss_unreduced",
      [](const Inputs& in) { return F::huber_loss(in[0], in[1], F::HuberLossFuncOptions().reduction(torch::kNone)); },
      pair));
  rows.push_back(loss(
      "poisson_nll_loss",
      [](const Inputs& in) { return F::poisson_nll_loss(in[0], in[1], F::PoissonNLLLossFuncOptions().full(true)); },
      pair));
  rows.push_back(loss(
      "kl_div", [](const Inputs& in) { return F::kl_div(in[0], in[1], F::KLDivFuncOptions(torch::kBatchMean)); },
      pair));
  rows.push_back(loss(
      "kl_div_log_target",
      [](const Inputs& in) { return F::kl_div(in[0], in[1], F::KLDivFuncOptions(torch::kSum).log_target(true)); },
      pair));
  rows.push_back(loss(
      "binary_cross_entropy", [](const Inputs& in) { return F::binary_cross_entropy(in[0], in[1].detach()); }, pair));
  rows.push_back(loss(
      "binary_cross_entropy_weighted",
      [](const Inputs& in) {
        return at::binary_cross_entropy(in[0], in[1].detach(), at::ones({80}), at::Reduction::None);
      },
      pair));
  rows.push_back(loss(
      "binary_cross_entropy_with_logits",
      [](const Inputs& in) { return F::binary_cross_entropy_with_logits(in[0], in[1].detach()); }, pair));
  rows.push_back(loss(
      "binary_cross_entropy_with_logits_weighted",
      [](const Inputs& in) {
        return F::binary_cross_entropy_with_logits(
            in[0], in[1].detach(),
            F::BinaryCrossEntropyWithLogitsFuncOptions().pos_weight(at::ones({80})).weight(at::ones({60, 80})));
      },
      pair));
  rows.push_back(loss(
      "soft_margin_loss", [](const Inputs& in) { return F::soft_margin_loss(in[0], in[1].detach()); }, pair));
  rows.push_back(loss(
      "gaussian_nll",
      [](const Inputs& in) { return (0.5 * (at::log(in[2] + 1) + (in[0] - in[1]).square() / (in[2] + 1))).mean(); },
      {pair[0], pair[1], pair[0]}));
}

void add_ranking(Rows& rows) {
  const auto x = random({64, 60});
  const auto labels = indices({64}, 60);
  rows.push_back(loss("hinge_embedding_loss", [](const Inputs& in) { return F::hinge_embedding_loss(in[0], in[1]); },
                      {x, signs({64, 60})}));
  rows.push_back(loss("cosine_embedding_loss",
                      [](const Inputs& in) { return F::cosine_embedding_loss(in[0], in[1], in[2]); },
                      {x, x, signs({64})}));
  rows.push_back(loss("margin_ranking_loss",
                      [](const Inputs& in) { return F::margin_ranking_loss(in[0], in[1], in[2]); },
                      {x, x, signs({64, 60})}));
  rows.push_back(
      loss("multi_margin_loss", [](const Inputs& in) { return F::multi_margin_loss(in[0], in[1]); }, {x, labels}));
  rows.push_back(loss("multilabel_margin_loss",
                      [](const Inputs& in) { return F::multilabel_margin_loss(in[0], in[1]); },
                      {x, indices({64, 60}, 60)}));
  rows.push_back(loss("multilabel_soft_margin_loss",
                      [](const Inputs& in) { return F::multilabel_soft_margin_loss(in[0], in[1].detach()); }, {x, x}));
  rows.push_back(loss("triplet_margin_loss",
                      [](const Inputs& in) { return F::triplet_margin_loss(in[0], in[1], in[2]); }, {x, x, x}));
  rows.push_back(loss("triplet_margin_loss_swapped",
                      [](const Inputs& in) {
                        return F::triplet_margin_loss(in[0], in[1], in[2],
                                                      F::TripletMarginLossFuncOptions().swap(true));
                      },
                      {x, x, x}));
  rows.push_back(loss("triplet_margin_with_distance_loss",
                      [](const Inputs& in) { return F::triplet_margin_with_distance_loss(in[0], in[1], in[2]); },
                      {x, x, x}));
  rows.push_back(loss("ctc_loss",
                      [](const Inputs& in) {
                        const std::vector<std::int64_t> of_input(8, 50), of_target(8, 12);
                        return at::ctc_loss(in[0].log_softmax(2), in[1] + 1, of_input, of_target);
                      },
                      {random({50, 8, 20}), indices({8, 12}, 19)}));
  rows.push_back(loss("ctc_loss_tensors",
                      [](const Inputs& in) {
                        return F::ctc_loss(in[0].log_softmax(2), in[1] + 1, at::full({8}, 50, at::kLong),
                                           at::full({8}, 12, at::kLong));
                      },
                      {random({50, 8, 20}), indices({8, 12}, 19)}));
}
}  // namespace

void add_loss_rows(Rows& rows) {
  add_cross_entropy(rows);
  add_regression(rows);
  add_ranking(rows);
}
}  // namespace cinch::tests
