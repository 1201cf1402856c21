#pragma once

#include "cinch/dryrun/internal/kernel_script.h"
#include "cinch/dryrun/internal/twins.h"
#include "cinch/dryrun/op_rules.h"

namespace cinch::dryrun::internal {

/// What the rule says of this call: outputs in order, then scratch beside them. `twins` are Meta tensors.
KernelScript script_of_rule(const OpRule& rule, const OpArguments& arguments, const Twins& twins);
}  // namespace cinch::dryrun::internal
