// set_(): a tensor over other memory. Its own goes, if nobody else has it.
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "cinch/dryrun/internal/factories.h"
#include "cinch/dryrun/internal/fake.h"

namespace cinch::dryrun::internal {
namespace {

/// A card's is not, whatever its size.
bool is_real(const c10::Storage& storage) {
  if (!storage.device().is_cpu()) return false;
  return storage.nbytes() == 0 || storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
}

/// A fake tensor over `storage`, which grows if it is too small, as kernels let it.
at::Tensor make_over(DryRun::State& state, const at::Tensor& like, const c10::Storage& storage, std::int64_t offset,
                     at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto layout = at::empty({0}, at::TensorOptions(like.dtype()).device(at::kMeta));
  layout.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  auto made = make_fake(layout, storage);
  const auto needed =
      at::detail::computeStorageNbytes(sizes, strides, layout.element_size(), static_cast<std::size_t>(offset));
  if (needed > storage.nbytes())
    grow(made, state.allocate(Bytes(static_cast<std::int64_t>(needed)), storage.device()), needed);
  return made;
}

at::Tensor& set_storage(at::Tensor& self, const c10::Storage& storage, std::int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  auto& state = require_active();
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  const auto dense = c10::contiguous_strides(sizes);
  if (strides.size() != sizes.size()) strides = dense;
  // Whether it is fake is the memory's to say, whatever the tensor was.
  auto made = is_real(storage) ? at::empty({0}, self.dtype()).set_(storage, offset, sizes, strides)
                               : make_over(state, self, storage, offset, sizes, strides);
  self.unsafeGetTensorImpl()->shallow_copy_from(made.getIntrusivePtr());
  return self;
}

// By value: their signatures are those of LibTorch's kernels.
// NOLINTBEGIN(performance-unnecessary-value-param)
at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage storage) {
  const auto count = static_cast<std::int64_t>(storage.nbytes() / self.element_size());
  return set_storage(self, storage, 0, {count}, {1});
}

at::Tensor& set_part_of_storage(at::Tensor& self, c10::Storage storage, std::int64_t offset, at::IntArrayRef sizes,
                                at::IntArrayRef strides) {
  return set_storage(self, storage, offset, sizes, strides);
}
// NOLINTEND(performance-unnecessary-value-param)

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage(self, make_storage({nullptr, self.device()}, 0), 0, {0}, {1});
}
}  // namespace

void register_set(torch::Library& aten) {
  aten.impl("set_.source_Storage", &set_whole_storage);
  aten.impl("set_.source_Storage_storage_offset", &set_part_of_storage);
  aten.impl("set_.source_Tensor", &set_tensor);
  aten.impl("set_", &set_nothing);
}
}  // namespace cinch::dryrun::internal
