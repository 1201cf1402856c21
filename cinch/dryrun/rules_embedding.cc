// Tables looked up by index.
#include "cinch/dryrun/internal/layouts.h"
#include "cinch/dryrun/internal/rule_table.h"

namespace cinch::dryrun::internal {
namespace {

std::vector<at::Tensor> index_select_shape(const OpArguments& arguments) {
  const auto table = arguments.tensor(0), index = arguments.tensor(2);
  auto sizes = table.sizes().vec();
  if (!sizes.empty())
    sizes[static_cast<std::size_t>(c10::maybe_wrap_dim(arguments[1].toInt(), table.dim()))] = index.numel();
  return {empty_meta(sizes, table.scalar_type())};
}

std::vector<Bytes> table_copy(const OpArguments& arguments) { return contiguous_copy(arguments.tensor(0)); }

std::vector<at::Tensor> embedding_backward_shape(const OpArguments& arguments) {
  const auto gradient = arguments.tensor(0);
  return {empty_meta({arguments[2].toInt(), gradient.size(-1)}, gradient.scalar_type())};
}
}  // namespace

void add_embedding_rules(RuleTable& table) {
  table.add_all("embedding", {.kind = OpRule::Kind::kDecompose});
  table.add_all("index_select", {.kind = OpRule::Kind::kShape, .shape = index_select_shape, .scratch = table_copy, .looks_up = true});
  table.add_all("embedding_dense_backward", {.kind = OpRule::Kind::kShape, .shape = embedding_backward_shape});
  table.add_all(
      "index index_put_ _index_put_impl_ index_add_ index_fill_ _embedding_bag _embedding_bag_forward_only "
      "_embedding_bag_dense_backward",
      {.kind = OpRule::Kind::kProbe});
}
}  // namespace cinch::dryrun::internal
