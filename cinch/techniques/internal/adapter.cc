#include "cinch/techniques/internal/adapter.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace cinch::techniques::internal {
namespace {

/// The key of marked weights: above autocast and autograd, and used by nothing else here (torchdistx made it).
constexpr auto kKey = c10::DispatchKey::DeferredInit;

struct Mark final : c10::BackendMeta {
  Mark(std::shared_ptr<Adapter> of, at::ScalarType of_model, bool is_transposed)
      : adapter(std::move(of)), dtype(of_model), transposed(is_transposed) {}
  std::shared_ptr<Adapter> adapter;
  at::ScalarType dtype;  ///< The model's: a rounded weight is kept in another one.
  bool transposed;
};

const Mark* mark_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kKey)) return nullptr;
  return dynamic_cast<const Mark*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

/// `tensor`, which is nobody else's, with the mark.
at::Tensor marked(const at::Tensor& tensor, c10::intrusive_ptr<Mark> mark) {
  const auto* from = tensor.unsafeGetTensorImpl();
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), from->key_set().add(kKey),
                                                         from->dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  impl->set_backend_meta(std::move(mark));
  return result;
}

const Adapter* adapter_in(const at::Tensor& tensor, bool transposed) {
  const auto* mark = mark_of(tensor);
  return mark != nullptr && mark->transposed == transposed ? mark->adapter.get() : nullptr;
}

/// The ops as they are without us.
class [[nodiscard]] Below {
  c10::impl::ExcludeDispatchKeyGuard guard_{kKey};
};
class [[nodiscard]] WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

constexpr std::int64_t kBlock = 64;
std::int64_t block_of(std::int64_t columns) { return columns > 0 && columns % kBlock == 0 ? kBlock : columns; }

/// input [..., in] by a frozen weight that is kept in another dtype. It exists in this one while it is multiplied with,
/// both ways: autograd alone would keep it until backward.
struct RestoredLinear final : torch::autograd::Function<RestoredLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor& kept,
                            const std::optional<at::Tensor>& scales, const std::optional<at::Tensor>& frozen_bias,
                            at::ScalarType dtype) {
    const WithoutAutocast plain;
    // Not saved for backward: a policy on saved tensors would move or round what is a parameter.
    context->saved_data["kept"] = kept;
    context->saved_data["scales"] = scales;
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    context->saved_data["input"] = static_cast<std::int64_t>(input.scalar_type());
    const auto weight = BaseWeight::restore(kept, scales.value_or(at::Tensor()), dtype);
    return at::linear(input.to(dtype), weight, frozen_bias ? std::optional(frozen_bias->to(dtype)) : std::nullopt);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& incoming) {
    const Below below;
    const WithoutAutocast plain;
    auto& data = context->saved_data;
    const auto scales = data["scales"].isTensor() ? data["scales"].toTensor() : at::Tensor();
    const auto dtype = static_cast<at::ScalarType>(data["dtype"].toInt());
    const auto weight = BaseWeight::restore(data["kept"].toTensor(), scales, dtype);
    const auto gradient = at::matmul(incoming[0].to(dtype), weight);
    return {gradient.to(static_cast<at::ScalarType>(data["input"].toInt())), {}, {}, {}, {}};
  }
};

/// A marked copy of a weight that is trained. `copy`: what is called to make it.
struct TrainedCopy final : torch::autograd::Function<TrainedCopy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& self,
                            const std::function<at::Tensor()>& copy) {
    context->saved_data["dtype"] = static_cast<std::int64_t>(self.scalar_type());
    context->saved_data["device"] = self.device();
    return copy();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& incoming) {
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    return {incoming[0].to(context->saved_data["device"].toDevice(), dtype), {}};
  }
};

bool autocasts(const at::Tensor& tensor) { return at::autocast::is_autocast_enabled(tensor.device().type()); }

// ---- the ops --------------------------------------------------------------------------------------------------------

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const Below below;
  const auto plain = [&] { return at::linear(input, weight, bias); };
  const auto* adapter = adapter_in(weight, false);
  return adapter == nullptr ? plain() : adapter->linear(input, weight, bias, plain);
}

/// torch::nn::Linear multiplies by weight.t(): the mark goes along.
at::Tensor t(const at::Tensor& self) {
  const Below below;
  auto result = at::t(self);
  if (const auto* mark = mark_of(self)) {
    result.unsafeGetTensorImpl()->set_backend_meta(
        c10::make_intrusive<Mark>(mark->adapter, mark->dtype, !mark->transposed));
  }
  return result;
}

at::Tensor matmul(const at::Tensor& self, const at::Tensor& other) {
  const Below below;
  const auto plain = [&] { return at::matmul(self, other); };
  const auto* adapter = adapter_in(other, true);
  return adapter == nullptr ? plain() : adapter->linear(self, other.t(), {}, plain);
}

at::Tensor addmm(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  const Below below;
  const auto plain = [&] { return at::addmm(bias, input, weight, beta, alpha); };
  const auto* adapter = adapter_in(weight, true);
  if (adapter == nullptr || !beta.equal(1) || !alpha.equal(1)) return plain();
  return adapter->linear(input, weight.t(), bias, plain);
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, c10::SymInt padding, bool by_frequency,
                     bool sparse) {
  const Below below;
  const auto plain = [&] { return at::embedding_symint(weight, indices, padding, by_frequency, sparse); };
  const auto* mark = mark_of(weight);
  if (mark == nullptr || mark->transposed) return plain();
  return mark->adapter->embedding(weight, mark->dtype, indices, padding.expect_int(), plain);
}

/// What Module::to() makes of a weight: the adapter goes along.
at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
  const Below below;
  const auto plain = [&] { return at::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format); };
  const auto* mark = mark_of(self);
  if (mark == nullptr) return plain();
  const auto copy = [&] {
    return marked(plain(), c10::make_intrusive<Mark>(mark->adapter, dtype.value_or(mark->dtype), mark->transposed));
  };
  return self.requires_grad() && at::GradMode::is_enabled() ? TrainedCopy::apply(self, copy) : copy();
}

void install() {
  static const auto* libraries = [] {
    auto* all = new std::vector<torch::Library>;  // for good: marked tensors may outlive statics
    all->emplace_back(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    all->back().fallback(torch::CppFunction::makeFallthrough());
    all->emplace_back(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    auto& aten = all->back();
    aten.impl("linear", TORCH_FN(linear));
    aten.impl("t", TORCH_FN(t));
    aten.impl("matmul", TORCH_FN(matmul));
    aten.impl("addmm", TORCH_FN(addmm));
    aten.impl("embedding", TORCH_FN(embedding));
    aten.impl("_to_copy", TORCH_FN(to_copy));
    return all;
  }();
  static_cast<void>(libraries);
}

}  // namespace

at::Tensor BaseWeight::round(const at::Tensor& weight, BaseWeights how) {
  kind = how;
  const at::NoGradGuard no_grad;
  if (how == BaseWeights::kAsTheyAre) return weight.detach();
  if (how == BaseWeights::kBFloat16) return weight.to(at::kBFloat16);
  const auto rows = weight.size(0), columns = weight.size(1);
  auto blocks = weight.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).view({rows, -1, block_of(columns)});
  scales = blocks.abs().amax(-1).div_(127);
  const auto divisor = scales.masked_fill(scales.eq(0), 1).unsqueeze(-1);
  return blocks.div_(divisor).round_().view({rows, columns}).to(at::kChar);
}

const at::Tensor& BaseWeight::scales_on(at::Device device) const {
  if (scales.defined() && scales.device() != device) scales = scales.to(device);
  return scales;
}

at::Tensor BaseWeight::restore(const at::Tensor& kept, const at::Tensor& scales, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  if (!scales.defined()) return kept.to(dtype);
  const auto rows = kept.size(0), columns = kept.size(1);
  auto weight = kept.to(at::kFloat).view({rows, scales.size(1), -1}).mul_(scales.unsqueeze(-1)).view({rows, columns});
  return weight.to(dtype);
}

at::Tensor Adapter::product() const {
  const auto product = at::matmul(b, a);
  return of_embedding ? product.t() : product;
}

at::Tensor Adapter::linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                           const std::function<at::Tensor()>& plain) const {
  const bool casts = autocasts(input) && weight.scalar_type() != at::kDouble && !weight.requires_grad();
  at::Tensor result;
  if (base.kind == BaseWeights::kAsTheyAre && !casts) {
    result = plain();
  } else {
    const auto dtype = casts ? at::autocast::get_autocast_dtype(input.device().type()) : input.scalar_type();
    const auto some = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
    const auto added = bias.value_or(at::Tensor());
    const bool frozen = added.defined() && !added.requires_grad();
    result = RestoredLinear::apply(input, weight.detach(), some(base.scales_on(weight.device())),
                                   frozen ? some(added) : std::nullopt, dtype);
    if (added.defined() && !frozen) result.add_(added.to(dtype));
  }
  if (of_embedding || kept.defined()) return result;  // a tied head is not adapted; a merged weight has it all
  auto x = input;
  const auto owner = module.lock();
  if (dropout > 0 && owner != nullptr && owner->is_training()) x = at::dropout(x, dropout, /*train=*/true);
  if (!autocasts(input)) x = x.to(a.scalar_type());
  const auto change = at::linear(at::linear(x, a), b);
  return result.add_(change.to(result.scalar_type()), scaling);
}

at::Tensor Adapter::embedding(const at::Tensor& weight, at::ScalarType dtype, const at::Tensor& indices,
                              std::int64_t padding, const std::function<at::Tensor()>& plain) const {
  at::Tensor result;
  if (base.kind == BaseWeights::kAsTheyAre) {
    result = plain();
  } else {
    const at::NoGradGuard no_grad;
    const auto flat = indices.reshape({-1});
    const auto& all_scales = base.scales_on(weight.device());
    const auto scales = all_scales.defined() ? all_scales.index_select(0, flat) : at::Tensor();
    auto sizes = indices.sizes().vec();
    sizes.push_back(weight.size(1));
    const auto rows = BaseWeight::restore(weight.index_select(0, flat), scales, dtype);
    result = at::_unsafe_view(rows, sizes);  // no view to autograd: it is added to, where gradients are wanted
  }
  if (!of_embedding || kept.defined()) return result;
  const auto change = at::linear(at::embedding(a.t(), indices, padding), b);
  return result.add_(change.to(result.scalar_type()), scaling);
}

void attach(const at::Tensor& parameter, const at::Tensor& weight, std::shared_ptr<Adapter> adapter) {
  install();
  parameter.set_data(marked(weight, c10::make_intrusive<Mark>(std::move(adapter), parameter.scalar_type(), false)));
}

std::shared_ptr<Adapter> adapter_of(const at::Tensor& weight) {
  const auto* mark = mark_of(weight);
  return mark == nullptr ? nullptr : mark->adapter;
}

}  // namespace cinch::techniques::internal
