#pragma once
// Ops whose results' sizes, or whose success, depend on values that a dry run does not have.

#include <cstddef>
#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cinch/dryrun/internal/twins.h"

namespace cinch::dryrun::internal {

/// What stand-ins hold in place of values.
enum class Fill : std::uint8_t {
  kZeros,
  kOnes,      ///< All elements count: the most that nonzero() and masks can select.
  kDistinct,  ///< No two elements alike, as far as their type allows: the most that unique() can find.
  kIdentity,  ///< Unit matrices, ones elsewhere: what factorizations succeed on.
};

struct ValuePolicy {
  std::size_t argument;       ///< Whose values decide.
  std::optional<Fill> bound;  ///< Under which the result is largest; nothing: it has no natural bound.
};

/// Of a call whose result's sizes depend on values; nothing for all others. `unknown`: no policy is known for it.
struct ValueDependence {
  std::optional<ValuePolicy> policy;
  bool unknown = false;
};
ValueDependence value_dependence(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Whether a tensor of this argument is fake.
bool has_fake(const c10::IValue& argument);

/// Writes `fill` into the twins of the argument's tensors, and real tensors' own values where they are known.
void fill_twins(const Twins& twins, const torch::jit::Stack& arguments, std::size_t argument, Fill fill);
/// Writes `fill` into all twins.
void fill_all_twins(const Twins& twins, Fill fill);
}  // namespace cinch::dryrun::internal
