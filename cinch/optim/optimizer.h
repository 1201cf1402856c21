#pragma once
// Optimizers over fused ops.
//
//   auto optimizer = optim::adamw({{.parameters = optim::named(*model), .learning_rate = 3e-4}});
//   loss.backward();
//   optimizer->step({.max_grad_norm = 1.0});

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace cinch::optim {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double learning_rate = 0;
  double weight_decay = 0;
};
/// Parameters of `module` that require gradients, by module path; a tied one once, under its first name.
std::vector<NamedParameter> named(const torch::nn::Module& module);

struct StepOptions {
  std::optional<double> max_grad_norm;  ///< Global norm, accumulated in fp32, tied parameters once.
};
struct StepResult {
  at::Tensor
      grad_norm;  ///< Before clipping; undefined without max_grad_norm. Reading it is the caller's synchronisation.
};

/// Clipping is an argument of step(), not the loop's business: an optimizer that steps inside backward, or whose
/// gradients are sharded, must do it in its own order. Parameters without a gradient are passed over.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual StepResult step(const StepOptions& options = {}) = 0;
  /// Sets gradients to undefined.
  void zero_grad();
  std::span<ParameterGroup> groups() { return groups_; }
  void set_learning_rate(double rate);
  /// By "PARAMETER.exp_avg" and so on, for safetensors: views of the live state, not copies. A parameter that never had
  /// a gradient has no state: "PARAMETER.no_state" stands for it.
  virtual std::map<std::string, at::Tensor> state() const = 0;
  /// Copies in. Throws DataError: missing, extra, wrong shape or dtype, naming the key. All or nothing.
  virtual void load_state(const std::map<std::string, at::Tensor>& state) = 0;

 protected:
  explicit Optimizer(
      std::vector<ParameterGroup> groups);  ///< UsageError: no parameters, a rate that is not finite or < 0.
  std::vector<ParameterGroup> groups_;
};

/// `module`'s parameters in two groups: weights of two and more dimensions decay; biases, norms' and other vectors do
/// not. A group without parameters is left out.
std::vector<ParameterGroup> without_decay_of_vectors(const torch::nn::Module& module, double learning_rate,
                                                     double weight_decay);

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};
struct SgdOptions {
  double momentum = 0;
};
/// 1711.05101; at::_fused_adamw_.
std::unique_ptr<Optimizer> adamw(std::vector<ParameterGroup> groups, AdamWOptions options = {});
/// 1412.6980; weight decay is added to the gradient (L2), at::_fused_adam_.
std::unique_ptr<Optimizer> adam(std::vector<ParameterGroup> groups, AdamWOptions options = {});
std::unique_ptr<Optimizer> sgd(std::vector<ParameterGroup> groups, SgdOptions options = {});  ///< at::_fused_sgd_

struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99;
};
/// 2302.06675: steps by the sign of a momentum, with decoupled weight decay; one state of the parameter's size. Rates
/// are 3 to 10 times smaller than AdamW's. On the CPU and on CUDA: the same to the bit.
std::unique_ptr<Optimizer> lion(std::vector<ParameterGroup> groups, LionOptions options = {});

struct AdafactorOptions {
  double eps_square = 1e-30, eps_scale = 1e-3;  ///< Added to squared gradients; least root mean square of a parameter.
  double clip_threshold = 1;                    ///< Of an update's root mean square.
  double decay_rate = -0.8;                     ///< Step t averages squares with weight t^decay_rate for the new one.
  bool scale_parameter = false;                 ///< The rate is relative to the parameter's root mean square.
  bool relative_step = false;                   ///< The rate is min(0.01, 1/sqrt(t)), not the group's.
};
/// 1804.04235, without first moment, as transformers' Adafactor. Of squared gradients it keeps sums of rows and
/// columns: of [.., R, C] numbers [.., R] and [.., C], float32; vectors keep all. Parameters have to be contiguous
/// (UnsupportedError). On CUDA it is made of LibTorch's ops, with one temporary of the largest parameter's float32
/// size: reassociated, each step within some units in the last place of the CPU's.
std::unique_ptr<Optimizer> adafactor(std::vector<ParameterGroup> groups, AdafactorOptions options = {});
}  // namespace cinch::optim
