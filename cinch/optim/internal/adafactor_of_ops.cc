// Adafactor (1804.04235) out of LibTorch's ops, for devices without a kernel of ours. adafactor_kernel.h has the same
// in loops. Whatever has a parameter's size lies in the scratch.
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "cinch/optim/internal/ops.h"

namespace cinch::optim::internal {
namespace {

/// Takes tensors one after the other from a scratch.
class Cutter {
 public:
  explicit Cutter(const at::Tensor& scratch) : scratch_(scratch) {}
  at::Tensor take(at::IntArrayRef sizes) {
    const auto count = c10::multiply_integers(sizes);
    at_ += count;
    return scratch_.narrow(0, at_ - count, count).view(sizes);
  }

 private:
  const at::Tensor& scratch_;
  std::int64_t at_ = 0;
};

struct Shapes {
  std::vector<std::int64_t> rows, columns, means;
  explicit Shapes(at::IntArrayRef sizes)
      : rows(sizes.begin(), sizes.end() - 1), columns(sizes.begin(), sizes.end()), means(rows) {
    columns.erase(columns.end() - 2);
    means.back() = 1;
  }
};

/// average ← beta × average + (1 - beta) × the mean over `dim` of the gradient's squares, each plus eps.
void average_squares(const at::Tensor& average, const at::Tensor& gradient, std::int64_t dim, double beta, double eps,
                     at::Tensor scratch) {
  at::linalg_vector_norm_out(scratch, gradient, 2, at::IntArrayRef(dim), /*keepdim=*/false, scratch.scalar_type());
  scratch.square_().div_(static_cast<double>(gradient.size(dim))).add_(eps);
  average.mul_(beta).add_(scratch, 1 - beta);
}

struct One {
  const at::Tensor &parameter, &gradient, &square;
  const at::Tensor* column;  ///< nullptr: `square` is of the parameter's size.
  double beta;
};

/// Before it is scaled.
void set_update(at::Tensor& update, const One& one, const AdafactorArguments& arguments, Cutter& cutter) {
  if (one.column == nullptr) {
    update.copy_(one.gradient).square_().add_(arguments.eps_square);
    one.square.mul_(one.beta).add_(update, 1 - one.beta);
    at::rsqrt_out(update, one.square).mul_(one.gradient);
    return;
  }
  const Shapes shapes(one.parameter.sizes());
  auto row = cutter.take(shapes.rows), column = cutter.take(shapes.columns), mean = cutter.take(shapes.means);
  average_squares(one.square, one.gradient, -1, one.beta, arguments.eps_square, row);
  average_squares(*one.column, one.gradient, -2, one.beta, arguments.eps_square, column);
  at::mean_out(mean, one.square, at::IntArrayRef{-1}, /*keepdim=*/true);
  at::div_out(row, one.square, mean).rsqrt_();
  at::rsqrt_out(column, *one.column);
  at::mul_out(update, one.gradient, row.unsqueeze(-1)).mul_(column.unsqueeze(-2));
}

void step_one(const One& one, double rate, const AdafactorArguments& arguments, const at::Tensor& scratch) {
  Cutter cutter(scratch);
  auto update = cutter.take(one.parameter.sizes());  // First: where vectors are aligned.
  auto size = cutter.take({}), relative = cutter.take({});
  const double root = std::sqrt(static_cast<double>(one.parameter.numel()));
  if (arguments.scale_parameter) {
    at::linalg_vector_norm_out(relative, one.parameter, 2, std::nullopt, false, relative.scalar_type());
    relative.div_(root).clamp_min_(arguments.eps_scale);
  }
  set_update(update, one, arguments, cutter);
  at::linalg_vector_norm_out(size, update, 2, std::nullopt, false, size.scalar_type());
  size.div_(root * arguments.clip_threshold).clamp_min_(1).reciprocal_().mul_(rate);
  if (arguments.scale_parameter) size.mul_(relative);
  update.mul_(size);
  // parameter × (1 - rate × decay) - update, rounded to the parameter's type once.
  if (arguments.scale_parameter) {
    relative.mul_(rate * arguments.weight_decay);
    update.addcmul_(one.parameter, relative).sub_(one.parameter);
  } else {
    update.sub_(one.parameter, 1 - rate * arguments.weight_decay);
  }
  one.parameter.copy_(update.neg_());
}
}  // namespace

std::int64_t adafactor_scratch(const at::Tensor& parameter) {
  constexpr std::int64_t kNumbers = 2;
  if (parameter.dim() < 2) return kNumbers + parameter.numel();
  const Shapes shapes(parameter.sizes());
  return kNumbers + parameter.numel() + c10::multiply_integers(shapes.rows) + c10::multiply_integers(shapes.columns) +
         c10::multiply_integers(shapes.means);
}

void adafactor_of_ops(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                      const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& columns,
                      const std::vector<at::Tensor>& steps, const at::Tensor& scratch,
                      const AdafactorArguments& arguments) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_pair(parameters[i], gradients[i]);
    if (parameters[i].numel() == 0) continue;
    const double step = *steps[i].const_data_ptr<float>();
    const double rate = arguments.relative_step ? std::min(1e-2, 1 / std::sqrt(step)) : arguments.learning_rate;
    const double beta = 1 - std::pow(step, arguments.decay_rate);
    step_one({parameters[i], gradients[i], rows[i], columns.empty() ? nullptr : &columns[i], beta}, rate, arguments,
             scratch);
  }
}
}  // namespace cinch::optim::internal
