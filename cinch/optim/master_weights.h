#pragma once
// Weights in bfloat16 throughout: 2 bytes a parameter in forward and backward, gradients too. A bfloat16 has 8 bits of
// precision, so most steps are smaller than half its spacing and would be rounded away; either of these keeps them.
//
//   model->to(at::kBFloat16);
//   auto optimizer = optim::with_master_weights(optim::adamw({{.parameters = optim::named(*model), .learning_rate =
//   3e-4}})); auto lean = optim::with_stochastic_rounding(optim::adamw(…), /*seed=*/1);
//
// Both step in float32, with float32 state, parameter by parameter; parameters that are float32 already are stepped as
// ever. Beside the optimizer's own state: 4 bytes a parameter for masters, 8 bytes for stochastic rounding. During a
// step float32 copies of the largest parameter: one of masters (its gradient), two of stochastic rounding.

#include <cstdint>
#include <memory>

#include "cinch/optim/optimizer.h"

namespace cinch::optim {

/// Keeps a float32 copy of each bfloat16 parameter, "PARAMETER.master" of the state, made from the parameter when it is
/// stepped first; steps that, and rounds it to the parameter. Weights that are written by others afterwards are
/// overwritten by the next step: load weights together with the optimizer's state. `optimizer`: of adamw(), sgd() and
/// so on; UsageError for one that is wrapped. UnsupportedError for parameters other than float32 and bfloat16.
std::unique_ptr<Optimizer> with_master_weights(std::unique_ptr<Optimizer> optimizer);

/// Keeps no copy: rounds the stepped parameter up or down at random, with the probabilities that make its mean the
/// unrounded one. Reproducible: the numbers follow from `seed` and the state, "PARAMETER.rounding", whatever the number
/// of threads. A weight that is not finite becomes NaN. Otherwise as with_master_weights().
std::unique_ptr<Optimizer> with_stochastic_rounding(std::unique_ptr<Optimizer> optimizer, std::uint64_t seed);
}  // namespace cinch::optim
