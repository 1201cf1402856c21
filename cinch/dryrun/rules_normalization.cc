// Layer, group and batch normalization.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {

void add_normalization_rules(RuleTable& table) {
  table.add_all("native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward native_batch_norm "
                "native_batch_norm_backward _fused_rms_norm",
                {.kind = OpRule::Kind::kProbe});
}
}  // namespace cinch::dryrun::internal
