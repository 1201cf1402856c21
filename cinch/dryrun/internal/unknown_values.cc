#include "cinch/dryrun/internal/unknown_values.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "cinch/dryrun/dry_run.h"
#include "cinch/dryrun/internal/call_values.h"
#include "cinch/record/recorder.h"

namespace cinch::dryrun::internal {
namespace {

const std::unordered_map<std::string_view, ValuePolicy>& policies() {
  static const std::unordered_map<std::string_view, ValuePolicy> all{
      {"aten::nonzero", {0, Fill::kOnes}},
      {"aten::masked_select", {1, Fill::kOnes}},
      {"aten::_unique", {0, Fill::kDistinct}},
      {"aten::_unique2", {0, Fill::kDistinct}},
      {"aten::unique_consecutive", {0, Fill::kDistinct}},
      {"aten::unique_dim", {0, Fill::kDistinct}},
      {"aten::unique_dim_consecutive", {0, Fill::kDistinct}},
      {"aten::bincount", {0, std::nullopt}},
      {"aten::repeat_interleave", {0, std::nullopt}},
      {"aten::_pack_padded_sequence", {1, std::nullopt}},
      {"aten::linalg_lstsq", {0, Fill::kIdentity}},
      {"aten::linalg_matrix_exp", {0, Fill::kOnes}},             // A large norm: scaling and squaring.
      {"aten::_embedding_bag_backward", {4, Fill::kOnes}},  // No bag is empty.
  };
  return all;
}

bool selects_by_mask(const c10::IValue& indices) {
  bool mask = false;
  for_each_tensor(indices, [&](const at::Tensor& index) {
    mask = mask || index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  return mask;
}

/// A counter as bits: of a float they are numbers too, all different.
void write_distinct(const at::Tensor& tensor) {
  auto* data = static_cast<unsigned char*>(tensor.mutable_data_ptr());
  const auto size = tensor.element_size();
  const bool one_bit = tensor.scalar_type() == at::kBool;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const auto value = static_cast<std::uint64_t>(one_bit ? i % 2 : i);
    std::memcpy(data + i * static_cast<std::int64_t>(size), &value, std::min<std::size_t>(static_cast<std::size_t>(size), sizeof value));
  }
}

void write(const at::Tensor& tensor, Fill fill) {
  switch (fill) {
    case Fill::kZeros: return;
    case Fill::kOnes: tensor.fill_(1); return;
    case Fill::kDistinct:
      if (tensor.is_contiguous()) write_distinct(tensor);
      return;
    case Fill::kIdentity:
      if (tensor.dim() < 2 || tensor.size(-1) != tensor.size(-2)) tensor.fill_(1);
      else tensor.diagonal(0, -2, -1).fill_(1);
      return;
  }
}
}  // namespace

ValueDependence value_dependence(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  const auto& name = op.operator_name().name;
  if (name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_") {
    if (!selects_by_mask(arguments[1])) return {};
    return {ValuePolicy{1, Fill::kOnes}};
  }
  if (const auto found = policies().find(name); found != policies().end()) return {found->second};
  return {std::nullopt, op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)};
}

bool has_fake(const c10::IValue& argument) {
  bool fake = false;
  for_each_tensor(argument, [&](const at::Tensor& tensor) { fake = fake || is_fake(tensor); });
  return fake;
}

void fill_twins(const Twins& twins, const torch::jit::Stack& arguments, std::size_t argument, Fill fill) {
  const record::Muted muted;
  std::vector<at::Tensor> originals;
  for_each_tensor(arguments[argument], [&](const at::Tensor& tensor) { originals.push_back(tensor); });
  std::size_t next = 0;
  for_each_tensor(twins.stack()[argument], [&](const at::Tensor& twin) {
    const auto& original = originals[next++];
    if (is_fake(original)) write(twin, fill);
    else twin.copy_(original);
  });
}

void fill_all_twins(const Twins& twins, Fill fill) {
  const record::Muted muted;
  for (const auto& twin : twins.twins()) write(twin, fill);
}
}  // namespace cinch::dryrun::internal
