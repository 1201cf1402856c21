#include "cinch/optim/internal/ops.h"

#include <algorithm>
#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "cinch/optim/internal/adafactor_kernel.h"
#include "cinch/optim/internal/adamw_8bit_block.h"

namespace cinch::optim::internal {
namespace {
using List = std::vector<at::Tensor>;

/// Both overflow no float: they are counts of steps and moments' rates.
double correction(double beta, const at::Tensor& step) { return 1 - std::pow(beta, *step.const_data_ptr<float>()); }

// ---- AdamW with moments in 8 bits
// --------------------------------------------------------------------------------------

/// Steps one block; numbers narrower than float32 go through float32.
template <class Number>
void step_block(Number* parameters, const Number* gradients, const MomentBlock& moments, int count,
                const AdamWStep& step, BlockStep kernel) {
  if constexpr (std::is_same_v<Number, float>) {
    kernel(parameters, gradients, moments, count, step);
  } else {
    float wide_parameters[kLargestBlock] = {}, wide_gradients[kLargestBlock] = {};
    std::copy_n(parameters, count, wide_parameters);
    std::copy_n(gradients, count, wide_gradients);
    kernel(wide_parameters, wide_gradients, moments, count, step);
    for (int i = 0; i < count; ++i) {
      const bool left_alone = wide_parameters[i] == static_cast<float>(parameters[i]);
      if (!left_alone) parameters[i] = static_cast<Number>(wide_parameters[i]);
    }
  }
}

void adamw_8bit_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList codes1, at::TensorList scales1,
                    at::TensorList codes2, at::TensorList scales2, at::TensorList steps, double learning_rate,
                    double beta1, double beta2, double weight_decay, double eps, std::int64_t block_size) {
  const BlockStep kernel = block_steps().back().step;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_pair(parameters[i], gradients[i]);
    const AdamWStep step = adamw_step(steps[i], learning_rate, beta1, beta2, weight_decay, eps);
    const std::int64_t count = parameters[i].numel(), blocks = (count + block_size - 1) / block_size;
    auto *first = codes1[i].mutable_data_ptr<std::uint8_t>(), *second = codes2[i].mutable_data_ptr<std::uint8_t>();
    auto *scale1 = scales1[i].mutable_data_ptr<float>(), *scale2 = scales2[i].mutable_data_ptr<float>();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, parameters[i].scalar_type(), "cinch::adamw_8bit_", [&] {
      auto* parameter = parameters[i].mutable_data_ptr<scalar_t>();
      const auto* gradient = gradients[i].const_data_ptr<scalar_t>();
      at::parallel_for(0, blocks, std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / block_size),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t block = begin; block < end; ++block) {
                           const std::int64_t at = block * block_size;
                           step_block(parameter + at, gradient + at,
                                      {first + at, second + at, scale1 + block, scale2 + block},
                                      static_cast<int>(std::min(block_size, count - at)), step, kernel);
                         }
                       });
    });
    note_written(parameters[i]);
  }
}

// ---- Lion
// --------------------------------------------------------------------------------------------------------------

void lion_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList momenta, double learning_rate,
              double beta1, double beta2, double weight_decay) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_pair(parameters[i], gradients[i]);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, parameters[i].scalar_type(), "cinch::lion_", [&] {
      using Wide = at::opmath_type<scalar_t>;
      auto *parameter = parameters[i].mutable_data_ptr<scalar_t>(), *momentum = momenta[i].mutable_data_ptr<scalar_t>();
      const auto* gradient = gradients[i].const_data_ptr<scalar_t>();
      const auto rate = static_cast<Wide>(learning_rate), keep = static_cast<Wide>(1 - learning_rate * weight_decay);
      const auto old1 = static_cast<Wide>(beta1), new1 = static_cast<Wide>(1 - beta1);
      const auto old2 = static_cast<Wide>(beta2), new2 = static_cast<Wide>(1 - beta2);
      at::parallel_for(0, parameters[i].numel(), at::internal::GRAIN_SIZE, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k) {
          const Wide m = momentum[k], g = gradient[k];
          const Wide direction = old1 * m + new1 * g;
          const Wide sign = static_cast<Wide>((direction > 0) - (direction < 0));
          parameter[k] = static_cast<scalar_t>(static_cast<Wide>(parameter[k]) * keep - rate * sign);
          momentum[k] = static_cast<scalar_t>(old2 * m + new2 * g);
        }
      });
    });
    note_written(parameters[i]);
  }
}

// ---- Adafactor
// ---------------------------------------------------------------------------------------------------------

/// `columns` is empty for parameters that are not factored.
void adafactor_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList rows, at::TensorList columns,
                   at::TensorList steps, const at::Tensor& scratch, double learning_rate, double weight_decay,
                   double eps_square, double eps_scale, double clip_threshold, double decay_rate, bool scale_parameter,
                   bool relative_step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_pair(parameters[i], gradients[i]);
    const double step = *steps[i].const_data_ptr<float>();
    const double rate = relative_step ? std::min(1e-2, 1 / std::sqrt(step)) : learning_rate;
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, parameters[i].scalar_type(), "cinch::adafactor_", [&] {
      using Wide = at::opmath_type<scalar_t>;
      AdafactorStep<Wide> constants{.rate = rate,
                                    .weight_decay = weight_decay,
                                    .beta = static_cast<Wide>(1 - std::pow(step, decay_rate)),
                                    .eps = static_cast<Wide>(eps_square),
                                    .clip_threshold = clip_threshold};
      auto* parameter = parameters[i].mutable_data_ptr<scalar_t>();
      const auto* gradient = gradients[i].const_data_ptr<scalar_t>();
      auto* row = rows[i].mutable_data_ptr<Wide>();
      if (scale_parameter)
        constants.rate *= std::max(eps_scale, root_mean_square<Wide>(parameter, parameters[i].numel()));
      if (columns.empty()) {
        step_whole(parameter, gradient, row, parameters[i].numel(), constants);
      } else {
        const MatrixShape shape = matrix_shape(parameters[i].sizes());
        step_factored(parameter, gradient, row, columns[i].mutable_data_ptr<Wide>(), shape,
                      scratch.mutable_data_ptr<Wide>(), constants);
      }
    });
    note_written(parameters[i]);
  }
}

// ---- registration
// ------------------------------------------------------------------------------------------------------

void register_ops() {
  static const auto* libraries = [] {
    auto* all = new std::vector<torch::Library>;  // for good, as ops may be called after statics are gone
    all->reserve(3);
    auto& define = all->emplace_back(torch::Library::FRAGMENT, "cinch", std::nullopt, __FILE__, __LINE__);
    define.def(
        "adamw_8bit_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] codes1, Tensor(c!)[] scales1, "
        "Tensor(d!)[] codes2, Tensor(e!)[] scales2, Tensor[] steps, float learning_rate, float beta1, float "
        "beta2, float weight_decay, float eps, int block_size) -> ()");
    define.def(
        "lion_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] momenta, float learning_rate, float "
        "beta1, float beta2, float weight_decay) -> ()");
    define.def(
        "adafactor_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] rows, Tensor(c!)[] columns, "
        "Tensor[] steps, Tensor(d!) scratch, float learning_rate, float weight_decay, float eps_square, float "
        "eps_scale, float clip_threshold, float decay_rate, bool scale_parameter, bool relative_step) -> ()");
    auto& cpu = all->emplace_back(torch::Library::IMPL, "cinch", c10::DispatchKey::CPU, __FILE__, __LINE__);
    cpu.impl("adamw_8bit_", &adamw_8bit_cpu);
    cpu.impl("lion_", &lion_cpu);
    cpu.impl("adafactor_", &adafactor_cpu);
    register_cuda_ops(all->emplace_back(torch::Library::IMPL, "cinch", c10::DispatchKey::CUDA, __FILE__, __LINE__));
    return all;
  }();
  (void)libraries;
}

template <class Kernel>
auto find_op(const char* name, Kernel* /*kernel*/) {
  register_ops();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Kernel>();
}
}  // namespace

void note_written(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

void check_pair(const at::Tensor& parameter, const at::Tensor& gradient) {
  TORCH_CHECK(gradient.scalar_type() == parameter.scalar_type() && gradient.strides() == parameter.strides() &&
                  gradient.sizes() == parameter.sizes(),
              "a gradient of ", gradient.scalar_type(), " ", gradient.sizes(), " for a parameter of ",
              parameter.scalar_type(), " ", parameter.sizes());
}

AdamWStep adamw_step(const at::Tensor& steps, double learning_rate, double beta1, double beta2, double weight_decay,
                     double eps) {
  return {.beta1 = static_cast<float>(beta1),
          .beta2 = static_cast<float>(beta2),
          .weight1 = static_cast<float>(1 - beta1),
          .weight2 = static_cast<float>(1 - beta2),
          .step_size = static_cast<float>(learning_rate / correction(beta1, steps)),
          .inverse_correction2 = static_cast<float>(1 / std::sqrt(correction(beta2, steps))),
          .eps = static_cast<float>(eps),
          .decay = static_cast<float>(1 - learning_rate * weight_decay)};
}

void adamw_8bit(const List& parameters, const List& gradients, const std::vector<List>& state, const List& steps,
                const AdamW8bitArguments& arguments) {
  static const auto op = find_op("cinch::adamw_8bit_", &adamw_8bit_cpu);
  op.call(parameters, gradients, state[0], state[1], state[2], state[3], steps, arguments.learning_rate,
          arguments.beta1, arguments.beta2, arguments.weight_decay, arguments.eps, arguments.block_size);
}

void lion(const List& parameters, const List& gradients, const List& momenta, const LionArguments& arguments) {
  static const auto op = find_op("cinch::lion_", &lion_cpu);
  op.call(parameters, gradients, momenta, arguments.learning_rate, arguments.beta1, arguments.beta2,
          arguments.weight_decay);
}

void adafactor(const List& parameters, const List& gradients, const List& rows, const List& columns, const List& steps,
               const at::Tensor& scratch, const AdafactorArguments& arguments) {
  static const auto op = find_op("cinch::adafactor_", &adafactor_cpu);
  op.call(parameters, gradients, rows, columns, steps, scratch, arguments.learning_rate, arguments.weight_decay,
          arguments.eps_square, arguments.eps_scale, arguments.clip_threshold, arguments.decay_rate,
          arguments.scale_parameter, arguments.relative_step);
}
}  // namespace cinch::optim::internal
