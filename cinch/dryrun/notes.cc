// What a dry run knows only in part.
#include "cinch/dryrun/internal/state.h"

namespace cinch::dryrun {

std::vector<std::string> DryRun::bounded() const { return {state_->bounded.begin(), state_->bounded.end()}; }

std::vector<std::string> DryRun::by_shape_alone() const {
  return {state_->by_shape_alone.begin(), state_->by_shape_alone.end()};
}
}  // namespace cinch::dryrun
