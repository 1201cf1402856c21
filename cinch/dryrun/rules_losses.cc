// Losses.
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {

void add_loss_rules(RuleTable& table) {
  table.add_all("_log_softmax _log_softmax_backward_data nll_loss_forward nll_loss_backward", {.kind = OpRule::Kind::kShape});
  table.add_all("mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward "
                "binary_cross_entropy binary_cross_entropy_backward nll_loss2d_forward nll_loss2d_backward",
                {.kind = OpRule::Kind::kProbe});
  table.add_all("binary_cross_entropy_with_logits", {.kind = OpRule::Kind::kDecompose});
}
}  // namespace cinch::dryrun::internal
