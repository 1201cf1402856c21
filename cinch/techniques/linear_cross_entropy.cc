#include "cinch/techniques/linear_cross_entropy.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "cinch/core/error.h"
#include "cinch/techniques/internal/adapter.h"
#include "cinch/techniques/internal/describe.h"

namespace cinch::techniques {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What softmax and sums are computed in.
at::ScalarType work_dtype(at::ScalarType products) { return products == at::kDouble ? at::kDouble : at::kFloat; }

/// What at::linear() multiplies in here: autocast's dtype, else the weight's.
at::ScalarType product_dtype(const at::Tensor& weight) {
  const auto device = weight.device().type();
  if (weight.scalar_type() != at::kDouble && at::autocast::is_autocast_enabled(device)) {
    return at::autocast::get_autocast_dtype(device);
  }
  return weight.scalar_type();
}

/// Casts are ours to make: autocast would keep those of the weight, made without a graph, for others to find.
class [[nodiscard]] WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

/// Which gradients to make; those not wanted stay undefined.
struct Wanted {
  bool hidden = false, weight = false, bias = false;
  bool any() const { return hidden || weight || bias; }
};
struct Gradients {
  at::Tensor hidden, weight, bias;  ///< `hidden` in the products' dtype, the others in work_dtype().
};

/// What a chunk's logits are made of and compared with.
struct Problem {
  at::Tensor hidden;   ///< [rows, features]
  at::Tensor weight;   ///< [classes, features]
  at::Tensor bias;     ///< [classes] or undefined.
  at::Tensor targets;  ///< [rows]
  LinearCrossEntropyOptions options;
  at::ScalarType products;
};

/// Goes through the rows chunk by chunk, with logits that all chunks share.
class Chunks {
 public:
  explicit Chunks(const Problem& problem)
      : problem_(problem),
        work_(work_dtype(problem.products)),
        weight_(problem.weight.to(problem.products)),
        bias_(problem.bias.defined() ? problem.bias.to(problem.products) : at::Tensor()) {
    const auto options = problem.hidden.options();
    const auto chunk = problem.options.chunk_size, classes = weight_.size(0);
    logits_ = at::empty({chunk, classes}, options.dtype(work_));
    if (problem.products != work_) narrow_ = at::empty({chunk, classes}, options.dtype(problem.products));
    losses_ = at::empty({problem.hidden.size(0)}, options.dtype(work_));
  }

  /// The losses [rows] and, where wanted, the gradients of their sum weighted by `weights` [rows] (undefined: 1).
  std::pair<at::Tensor, Gradients> run(const Wanted& wanted, const at::Tensor& weights) {
    if (wanted.hidden) gradients_.hidden = at::empty_like(problem_.hidden, problem_.products);
    const auto rows = problem_.hidden.size(0);
    for (std::int64_t first = 0; first < rows; first += problem_.options.chunk_size) {
      const auto count = std::min(problem_.options.chunk_size, rows - first);
      const auto part = problem_.hidden.narrow(0, first, count).to(problem_.products);
      const auto logits = logits_.narrow(0, 0, count);
      make_logits(part, logits);
      losses_and_slopes(logits, first, wanted.any(), weights);
      if (wanted.any()) add_gradients(part, logits, first, wanted);
    }
    return {losses_, gradients_};
  }

 private:
  void make_logits(const at::Tensor& part, const at::Tensor& logits) {
    auto products = narrow_.defined() ? narrow_.narrow(0, 0, part.size(0)) : logits;
    if (bias_.defined()) {
      at::addmm_out(products, bias_, part, weight_.t());
    } else {
      at::mm_out(products, part, weight_.t());
    }
    if (narrow_.defined()) logits.copy_(products);
  }

  /// Puts the losses of the rows from `first` in place and turns their logits into the losses' derivatives by them.
  void losses_and_slopes(const at::Tensor& logits, std::int64_t first, bool slopes, const at::Tensor& weights) {
    const auto& [chunk_size, ignore_index, smoothing, z_loss, reduction] = problem_.options;
    const auto count = logits.size(0);
    const auto targets = problem_.targets.narrow(0, first, count).unsqueeze(1);
    const auto ignored = targets.eq(ignore_index);
    const auto index = targets.masked_fill(ignored, 0);

    auto loss = logits.gather(1, index).mul_(smoothing - 1);
    if (smoothing > 0) loss.sub_(logits.mean(1, true), smoothing);
    auto normalizer = logits.amax(1, true);
    logits.sub_(normalizer).exp_();
    auto sum = logits.sum(1, true);
    normalizer.add_(sum.log());  // now logsumexp
    loss.add_(normalizer);
    if (z_loss > 0) loss.addcmul_(normalizer, normalizer, z_loss);
    losses_.narrow(0, first, count).copy_(loss.masked_fill_(ignored, 0).squeeze(1));
    if (!slopes) return;

    auto weight = weights.defined() ? weights.narrow(0, first, count).unsqueeze(1) : at::ones_like(sum);
    weight = weight.masked_fill(ignored, 0);
    auto factor = weight.div(sum);
    if (z_loss > 0) factor.mul_(normalizer.mul_(2 * z_loss).add_(1));
    logits.mul_(factor);
    if (smoothing > 0) logits.sub_(weight, smoothing / static_cast<double>(logits.size(1)));
    logits.scatter_add_(1, index, weight.mul_(smoothing - 1));
  }

  void add_gradients(const at::Tensor& part, const at::Tensor& slopes, std::int64_t first, const Wanted& wanted) {
    auto products = slopes;
    if (narrow_.defined()) products = narrow_.narrow(0, 0, slopes.size(0)).copy_(slopes);
    if (wanted.hidden) {
      auto rows = gradients_.hidden.narrow(0, first, slopes.size(0));
      at::mm_out(rows, products, weight_);
    }
    if (wanted.bias) {
      auto sum = slopes.sum(0);
      gradients_.bias = first == 0 ? std::move(sum) : gradients_.bias.add_(sum);
    }
    if (wanted.weight) add_weight_gradient(products, part, first == 0);
  }

  void add_weight_gradient(const at::Tensor& slopes, const at::Tensor& part, bool first) {
    auto& sum = gradients_.weight;
    if (first) sum = at::empty(weight_.sizes(), weight_.options().dtype(work_));
    if (sum.scalar_type() == slopes.scalar_type()) {
      if (first) {
        at::mm_out(sum, slopes.t(), part);
      } else {
        sum.addmm_(slopes.t(), part);
      }
      return;
    }
    // In another dtype the product needs memory of its own: by pieces no larger than a chunk's logits.
    const auto classes = weight_.size(0);
    const auto features = std::max<std::int64_t>(1, part.size(1));
    const auto piece = std::max<std::int64_t>(1, classes * problem_.options.chunk_size / features);
    for (std::int64_t from = 0; from < classes; from += piece) {
      const auto count = std::min(piece, classes - from);
      const auto product = at::mm(slopes.narrow(1, from, count).t(), part);
      if (first) {
        sum.narrow(0, from, count).copy_(product);
      } else {
        sum.narrow(0, from, count).add_(product);
      }
    }
  }

  const Problem& problem_;
  const at::ScalarType work_;
  const at::Tensor weight_, bias_;
  at::Tensor logits_, narrow_, losses_;
  Gradients gradients_;
};

void refuse_second_derivative() {
  if (!c10::GradMode::is_enabled()) return;
  throw UsageError(
      "linear_cross_entropy in chunks has no second derivative, and backward was called with create_graph.",
      "Use chunk_size 0, which is made of plain ops.");
}

/// `gradient` in the dtype of the input it is for.
at::Tensor in_dtype(const at::Tensor& gradient, std::int64_t dtype) {
  return gradient.defined() ? gradient.to(static_cast<at::ScalarType>(dtype)) : gradient;
}

Wanted wanted_of(const at::Tensor& hidden, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (!c10::GradMode::is_enabled()) return {};
  return {hidden.requires_grad(), weight.requires_grad(), bias && bias->requires_grad()};
}

/// The sum of the losses, with the gradients made along with it.
struct SumNow final : torch::autograd::Function<SumNow> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& targets,
                            const LinearCrossEntropyOptions& options, at::ScalarType products, const Wanted& wanted) {
    const WithoutAutocast plain;
    const Problem problem{hidden, weight, bias.value_or(at::Tensor()), targets, options, products};
    const auto [losses, gradients] = Chunks(problem).run(wanted, /*weights=*/{});
    context->save_for_backward({gradients.hidden, gradients.weight, gradients.bias});
    context->saved_data["hidden"] = static_cast<std::int64_t>(hidden.scalar_type());
    context->saved_data["weight"] = static_cast<std::int64_t>(weight.scalar_type());
    return losses.sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    refuse_second_derivative();
    const WithoutAutocast plain;
    const bool keep = torch::autograd::get_current_graph_task_keep_graph();
    const auto saved = context->get_saved_variables();
    const auto scaled = [&](std::size_t i, const char* input) -> at::Tensor {
      if (!saved[i].defined() || !context->needs_input_grad(i)) return {};
      auto gradient = in_dtype(saved[i], context->saved_data[input].toInt());
      // What nobody will ask for again is scaled where it is.
      return keep && gradient.is_same(saved[i]) ? gradient.mul(incoming[0]) : gradient.mul_(incoming[0]);
    };
    return {scaled(0, "hidden"), scaled(1, "weight"), scaled(2, "weight"), {}, {}, {}, {}};
  }
};

/// The losses one by one. Their gradients wait for those that come in, and for the logits to be made again.
struct EachRow final : torch::autograd::Function<EachRow> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& targets,
                            const LinearCrossEntropyOptions& options, at::ScalarType products) {
    const WithoutAutocast plain;
    const Problem problem{hidden, weight, bias.value_or(at::Tensor()), targets, options, products};
    context->save_for_backward({hidden, weight, problem.bias, targets});
    auto& data = context->saved_data;
    data["chunk_size"] = options.chunk_size;
    data["ignore_index"] = options.ignore_index;
    data["label_smoothing"] = options.label_smoothing;
    data["z_loss"] = options.z_loss;
    data["products"] = static_cast<std::int64_t>(products);
    return Chunks(problem).run({}, {}).first;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    refuse_second_derivative();
    const WithoutAutocast plain;
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const Problem problem{saved[0],
                          saved[1],
                          saved[2],
                          saved[3],
                          {data["chunk_size"].toInt(), data["ignore_index"].toInt(), data["label_smoothing"].toDouble(),
                           data["z_loss"].toDouble()},
                          static_cast<at::ScalarType>(data["products"].toInt())};
    const Wanted wanted{context->needs_input_grad(0), context->needs_input_grad(1),
                        saved[2].defined() && context->needs_input_grad(2)};
    const auto gradients = Chunks(problem).run(wanted, incoming[0]).second;
    const auto hidden_dtype = static_cast<std::int64_t>(saved[0].scalar_type());
    const auto weight_dtype = static_cast<std::int64_t>(saved[1].scalar_type());
    return {in_dtype(gradients.hidden, hidden_dtype),
            in_dtype(gradients.weight, weight_dtype),
            in_dtype(gradients.bias, weight_dtype),
            {},
            {},
            {}};
  }
};

at::Tensor chunked(const at::Tensor& hidden, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                   const at::Tensor& targets, const LinearCrossEntropyOptions& options) {
  const auto products = product_dtype(weight);
  const auto wanted = wanted_of(hidden, weight, bias);
  if (options.reduction != at::Reduction::None && products != at::kHalf) {
    const auto sum = SumNow::apply(hidden, weight, bias, targets, options, products, wanted);
    return options.reduction == at::Reduction::Sum ? sum : sum / targets.ne(options.ignore_index).sum();
  }
  auto losses = EachRow::apply(hidden, weight, bias, targets, options, products);
  if (options.reduction == at::Reduction::None) return losses;
  const auto sum = losses.sum();
  return options.reduction == at::Reduction::Sum ? sum : sum / targets.ne(options.ignore_index).sum();
}

at::Tensor whole(const at::Tensor& hidden, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                 const at::Tensor& targets, const LinearCrossEntropyOptions& options) {
  const auto products = at::linear(hidden, weight, bias);
  const auto logits = products.to(work_dtype(products.scalar_type()));
  auto loss = at::cross_entropy_loss(logits, targets, /*weight=*/{}, options.reduction, options.ignore_index,
                                     options.label_smoothing);
  if (options.z_loss == 0) return loss;
  const auto ignored = targets.eq(options.ignore_index);
  const auto squares = logits.logsumexp(1).square().masked_fill(ignored, 0);
  if (options.reduction == at::Reduction::None) return loss.add(squares, options.z_loss);
  const auto sum = squares.sum();
  return loss.add(options.reduction == at::Reduction::Sum ? sum : sum / ignored.logical_not().sum(), options.z_loss);
}

std::string sizes_of(const at::Tensor& tensor) { return internal::describe(tensor.scalar_type(), tensor.sizes()); }

void check(const at::Tensor& hidden, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
           const at::Tensor& targets, const LinearCrossEntropyOptions& options) {
  const std::string name = "linear_cross_entropy: ";
  if (weight.dim() != 2 || hidden.dim() < 1 || hidden.size(-1) != weight.size(1)) {
    throw UsageError(name + "hidden is " + sizes_of(hidden) + ", weight " + sizes_of(weight) + ".",
                     "hidden is [..., features], weight [classes, features].");
  }
  if (const auto adapter = internal::adapter_of(weight);
      adapter != nullptr && (!adapter->of_embedding || adapter->base.kind != BaseWeights::kAsTheyAre)) {
    throw UsageError(name + "the weight has an adapter, or is kept rounded, and both would be passed over.",
                     "Leave the head out of LoraOptions::targets, or apply it and cross_entropy() apart.");
  }
  if (bias && (bias->dim() != 1 || bias->size(0) != weight.size(0))) {
    throw UsageError(name + "bias is " + sizes_of(*bias) + ", weight " + sizes_of(weight) + ".", "bias is [classes].");
  }
  if (targets.scalar_type() != at::kLong || targets.sizes() != hidden.sizes().slice(0, hidden.dim() - 1)) {
    throw UsageError(name + "targets are " + sizes_of(targets) + ", hidden " + sizes_of(hidden) + ".",
                     "targets are int64, one for each row of hidden.");
  }
  if (options.chunk_size < 0 || !(options.label_smoothing >= 0 && options.label_smoothing <= 1) ||
      !(options.z_loss >= 0)) {
    throw UsageError(name + "chunk_size " + std::to_string(options.chunk_size) + ", label_smoothing " +
                         std::to_string(options.label_smoothing) + ", z_loss " + std::to_string(options.z_loss) + ".",
                     "chunk_size and z_loss are at least 0, label_smoothing is from 0 to 1.");
  }
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const std::optional<at::Tensor>& given_bias, const at::Tensor& targets,
                                const LinearCrossEntropyOptions& options) {
  const auto bias = given_bias && given_bias->defined() ? given_bias : std::nullopt;
  check(hidden, weight, bias, targets, options);
  const auto rows = hidden.reshape({-1, weight.size(1)});
  const auto row_targets = targets.reshape({-1});
  const bool divides = options.chunk_size > 0 && options.chunk_size < rows.size(0);
  const auto loss =
      divides ? chunked(rows, weight, bias, row_targets, options) : whole(rows, weight, bias, row_targets, options);
  return options.reduction == at::Reduction::None ? loss.view(targets.sizes()) : loss;
}

Bytes loss_chunk_row_bytes(std::int64_t classes, at::ScalarType dtype) {
  const auto work = work_dtype(dtype);
  const auto bytes = c10::elementSize(work) + (dtype == work ? 0 : c10::elementSize(dtype));
  return Bytes(classes) * static_cast<std::int64_t>(bytes);
}

std::int64_t loss_chunk_size_for(Bytes budget, std::int64_t rows, std::int64_t classes, at::ScalarType dtype) {
  const auto row = std::max<std::int64_t>(1, loss_chunk_row_bytes(classes, dtype).count());
  return std::clamp<std::int64_t>(budget.count() / row, 1, std::max<std::int64_t>(1, rows));
}
}  // namespace cinch::techniques
