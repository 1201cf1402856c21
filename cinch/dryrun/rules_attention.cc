// Scaled dot-product attention. Which kernel runs is decided above, by LibTorch itself.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

/// Two products a pair of query and key; a causal mask leaves half of the pairs out.
double products_flops(const at::Tensor& query, const at::Tensor& key, bool causal) {
  const double pairs = static_cast<double>(query.numel()) * static_cast<double>(key.size(-2));
  return 4.0 * pairs * (causal ? 0.5 : 1.0);
}

double forward_flops(const OpArguments& arguments) {
  return products_flops(arguments.tensor(0), arguments.tensor(1), arguments[4].toBool());
}

/// Five products where forward has two: the scores again, and the gradients of scores, query, key and value.
double backward_flops(const OpArguments& arguments) {
  return 2.5 * products_flops(arguments.tensor(1), arguments.tensor(2), arguments[7].toBool());
}
}  // namespace

void add_attention_rules(RuleTable& table) {
  table.add_all("_scaled_dot_product_flash_attention_for_cpu", {.kind = OpRule::Kind::kProbe, .flops = forward_flops});
  table.add_all("_scaled_dot_product_flash_attention_for_cpu_backward", {.kind = OpRule::Kind::kProbe, .flops = backward_flops});
  table.add_all("_safe_softmax", {.kind = OpRule::Kind::kProbe});
  table.add_all("_softmax _softmax_backward_data", {.kind = OpRule::Kind::kShape});
}
}  // namespace cinch::dryrun::internal
