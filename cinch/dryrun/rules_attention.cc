// Scaled dot-product attention. Which kernel runs is decided above, by LibTorch itself.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {

void add_attention_rules(RuleTable& table) {
  table.add_all("_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward",
                {.kind = OpRule::Kind::kProbe});
  table.add_all("_safe_softmax", {.kind = OpRule::Kind::kProbe});
  table.add_all("_softmax _softmax_backward_data", {.kind = OpRule::Kind::kShape});
}
}  // namespace cinch::dryrun::internal
