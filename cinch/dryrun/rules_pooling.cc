// Pooling, padding and resizing of images. In the layouts that kernels are written for they take nothing inside.
#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {

void add_pooling_rules(RuleTable& table) {
  const OpRule forward{.kind = OpRule::Kind::kShape, .probe_if = is_unusual<0>};
  const OpRule backward{.kind = OpRule::Kind::kShape, .probe_if = is_unusual<0, 1>};
  table.add_all(
      "max_pool2d_with_indices avg_pool2d avg_pool3d "
      "adaptive_max_pool2d reflection_pad1d replication_pad2d",
      forward);
  table.add_all("max_pool2d_with_indices_backward avg_pool2d_backward", backward);
}
}  // namespace cinch::dryrun::internal
