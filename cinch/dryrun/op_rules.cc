#include "cinch/dryrun/op_rules.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <mutex>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun {
namespace internal {

void RuleTable::add(std::string_view op, OpRule rule) {
  if (!rules_.emplace(op, std::move(rule)).second) throw UsageError("op " + std::string(op) + " has a rule already");
}

void RuleTable::add_all(std::string_view names, const OpRule& rule) {
  while (!names.empty()) {
    const auto end = std::min(names.find(' '), names.size());
    if (end > 0) add("aten::" + std::string(names.substr(0, end)), rule);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

const OpRule* RuleTable::find(const c10::OperatorName& op) const {
  if (!op.overload_name.empty())
    if (auto it = rules_.find(op.name + "." + op.overload_name); it != rules_.end()) return &it->second;
  auto it = rules_.find(op.name);
  return it == rules_.end() ? nullptr : &it->second;
}

std::vector<std::string> RuleTable::names() const {
  std::vector<std::string> all;
  for (const auto& [name, rule] : rules_) all.push_back(name);
  return all;
}

namespace {
RuleTable make_table() {
  RuleTable table;
  add_view_rules(table);
  add_pointwise_rules(table);
  add_matrix_rules(table);
  add_reduction_rules(table);
  add_embedding_rules(table);
  add_normalization_rules(table);
  add_attention_rules(table);
  add_cuda_attention_rules(table);
  add_cuda_rules(table);
  add_loss_rules(table);
  add_convolution_rules(table);
  add_pooling_rules(table);
  add_optimizer_rules(table);
  return table;
}

std::mutex g_lock;
RuleTable& table() {
  static auto* table = new RuleTable(make_table());
  return *table;
}
}  // namespace

std::vector<std::string> rule_names() {
  std::lock_guard guard(g_lock);
  return table().names();
}
}  // namespace internal

void add_rule(std::string_view op, OpRule rule) {
  std::lock_guard guard(internal::g_lock);
  internal::table().add(op, std::move(rule));
}

const OpRule* find_rule(const c10::OperatorName& op) {
  std::lock_guard guard(internal::g_lock);
  return internal::table().find(op);
}

at::Tensor OpArguments::tensor(std::size_t i) const {
  return values_[i].isTensor() ? values_[i].toTensor() : at::Tensor();
}

std::vector<at::Tensor> OpArguments::tensors(std::size_t i) const { return values_[i].toTensorVector(); }

at::Tensor empty_meta(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta));
}

at::Tensor empty_meta_like(const at::Tensor& tensor) {
  const auto strides = tensor.is_non_overlapping_and_dense() ? tensor.strides().vec()
                                                              : at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return at::empty_strided(tensor.sizes(), strides, at::TensorOptions(tensor.scalar_type()).device(at::kMeta));
}

Bytes bytes_of(const at::Tensor& tensor) { return bytes_of(tensor.numel(), tensor.scalar_type()); }
Bytes bytes_of(std::int64_t elements, at::ScalarType dtype) {
  return Bytes(elements) * static_cast<std::int64_t>(c10::elementSize(dtype));
}
}  // namespace cinch::dryrun
