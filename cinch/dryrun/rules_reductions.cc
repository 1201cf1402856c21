// Sums and other reductions, joins, sorts.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {

void add_reduction_rules(RuleTable& table) {
  table.add_all("sum mean logsumexp var_mean std std_mean argmax.none", {.kind = OpRule::Kind::kDecompose});
  table.add_all("sum.dim_IntList cat amax amin argmax argmin", {.kind = OpRule::Kind::kShape});
  table.add_all("mean.dim prod max min var linalg_vector_norm norm cumsum sort topk gather scatter scatter_ scatter_add scatter_add_ "
                "all any flip roll",
                {.kind = OpRule::Kind::kProbe});
}
}  // namespace cinch::dryrun::internal
