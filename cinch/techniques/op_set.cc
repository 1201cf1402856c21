#include "cinch/techniques/op_set.h"

#include <optional>
#include <utility>

#include "cinch/core/error.h"
#include "cinch/techniques/internal/kept_outputs.h"

namespace cinch::techniques {
namespace {

/// "aten::sum.dim_IntList" → {"aten::sum", "dim_IntList"}
std::optional<c10::OperatorHandle> find(const std::string& name) {
  const auto dot = name.find('.');
  const auto overload = dot == std::string::npos ? std::string() : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
}

bool gives_new_tensors(const c10::OperatorHandle& op) {
  for (const auto& result : op.schema().returns()) {
    if (result.alias_info() != nullptr || result.type()->kind() == c10::TypeKind::ListType) return false;
  }
  return true;
}

/// Ops that some version or build of LibTorch lacks are left out.
std::vector<std::string> known(std::vector<std::string> names) {
  std::erase_if(names, [](const std::string& name) { return !find(name); });
  return names;
}

}  // namespace

OpSet::OpSet(const std::vector<std::string>& names) {
  std::unordered_set<c10::OperatorHandle> ops;
  for (const auto& name : names) {
    const auto op = find(name);
    if (!op)
      throw UsageError("There is no op \"" + name + "\".", "Write it as \"aten::addmm\" or \"aten::sum.dim_IntList\".");
    if (!gives_new_tensors(*op)) {
      throw UsageError("A checkpoint cannot keep the outputs of " + name + ": they are views, its arguments, or lists.",
                       "Keep the op that made its argument.");
    }
    internal::intercept(*op);
    ops.insert(*op);
  }
  ops_ = std::make_shared<const std::unordered_set<c10::OperatorHandle>>(std::move(ops));
}

const OpSet& OpSet::matmuls_and_attention() {
  static const auto* ops = new OpSet(
      known({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::mkldnn_rnn_layer",
             "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention",
             "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention"}));
  return *ops;
}

}  // namespace cinch::techniques
