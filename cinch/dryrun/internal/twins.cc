#include "cinch/dryrun/internal/twins.h"

#include "cinch/dryrun/internal/call_values.h"
#include "cinch/dryrun/internal/fake.h"

namespace cinch::dryrun::internal {

Twins::Twins(Kind kind, const torch::jit::Stack& arguments) {
  stack_.reserve(arguments.size());
  for (const auto& value : arguments)
    stack_.push_back(map_tensors(value, [&](const at::Tensor& tensor) { return twin_of(tensor, kind); }));
}

at::Tensor Twins::twin_of(const at::Tensor& original, Kind kind) {
  const auto* storage = original.storage().unsafeGetStorageImpl();
  auto [slot, fresh] = storages_.try_emplace(storage);
  if (fresh) {
    const auto bytes = storage->nbytes();
    slot->second = kind == Kind::kMeta ? make_meta_storage(bytes) : make_stand_in_storage(bytes);
  }
  auto twin = kind == Kind::kMeta ? make_meta(original, slot->second) : make_stand_in(original, slot->second);
  const auto index = originals_.size();
  index_of_tensor_.emplace(twin.unsafeGetTensorImpl(), index);
  index_of_storage_.emplace(slot->second.unsafeGetStorageImpl(), index);
  originals_.push_back(original);
  twins_.push_back(twin);
  return twin;
}

std::optional<KernelScript::Place> Twins::place_of(const at::Tensor& output) const {
  using Kind = KernelScript::Place::Kind;
  if (auto it = index_of_tensor_.find(output.unsafeGetTensorImpl()); it != index_of_tensor_.end())
    return KernelScript::Place{Kind::kArgument, it->second};
  if (auto it = index_of_storage_.find(output.storage().unsafeGetStorageImpl()); it != index_of_storage_.end())
    return KernelScript::Place{Kind::kViewOfArgument, it->second};
  return std::nullopt;
}
}  // namespace cinch::dryrun::internal
