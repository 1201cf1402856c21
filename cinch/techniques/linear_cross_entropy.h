#pragma once
// The loss of a linear layer over many classes, a chunk of rows at a time: the logits never exist as a whole.
//
//   auto loss = cinch::linear_cross_entropy(hidden, head->weight, {}, targets, {.chunk_size = 512});
//
// instead of cross_entropy(head->forward(hidden), targets). In place of rows × classes logits, of which softmax and
// backward make copies, there are chunk_size × classes. A sum or mean makes its gradients while it has the logits, so
// nothing is computed twice.

#include <cstdint>
#include <optional>

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include "cinch/core/bytes.h"

namespace cinch::techniques {

struct LinearCrossEntropyOptions {
  std::int64_t chunk_size = 0;       ///< Rows whose logits exist at once. 0, or as many as there are: the plain ops.
  std::int64_t ignore_index = -100;  ///< Targets of this value do not count.
  double label_smoothing = 0;        ///< From 0 to 1: the share of a target that all classes divide.
  double z_loss = 0;                 ///< At least 0: adds this times logsumexp(logits)², of every row that counts.
  at::Reduction::Reduction reduction = at::Reduction::Mean;  ///< Mean: over the targets that count.
};

/// hidden [..., features], weight [classes, features], bias [classes] or none, targets int64 [...]. The loss is a
/// float32 scalar (float64 where the weight is), or with Reduction::None of the targets' shape, 0 where ignored.
///
/// Under autocast the products are in its dtype, the loss and the sum of the weight's gradient over chunks in float32.
/// Frozen inputs cost nothing; without grad mode no gradient is made. Equal to the plain ops bitwise where one chunk
/// holds all rows, else up to the order of sums: gradients within 1e-6 in norm in float32.
///
/// Without a reduction, and in float16, whose gradients need the loss scale, backward makes each chunk's logits again.
/// Throws UsageError for shapes and options that do not fit, and in a backward with create_graph: use chunk_size 0.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias, const at::Tensor& targets,
                                const LinearCrossEntropyOptions& options = {});

/// Bytes that a row of logits takes in a chunk: float32, and where `dtype`, that of the products, is another, those
/// too.
Bytes loss_chunk_row_bytes(std::int64_t classes, at::ScalarType dtype);

/// The most rows whose logits fit into `budget`, from 1 to `rows`; less than that nobody can have.
std::int64_t loss_chunk_size_for(Bytes budget, std::int64_t rows, std::int64_t classes,
                                 at::ScalarType dtype = at::kFloat);
}  // namespace cinch::techniques

namespace cinch {
using techniques::linear_cross_entropy;
using techniques::LinearCrossEntropyOptions;
}  // namespace cinch
