#pragma once
// Fake tensors: a layout, a storage with a lifetime and no bytes, and the dispatch key Fake.

#include <ATen/core/Tensor.h>

#include "cinch/core/bytes.h"
#include "cinch/trace/event.h"

namespace cinch::dryrun::internal {

/// Memory that is an allocation event now and a free event when the storage dies; `told` = false: nobody hears of it.
c10::DataPtr allocate_fake(Bytes bytes, c10::Device device = c10::Device(c10::DeviceType::CPU), bool told = true);

/// Bytes of fake memory alive in the process.
Bytes fake_bytes_alive() noexcept;

/// A storage over `memory`. Reading or writing its data throws instead of crashing.
c10::Storage make_storage(c10::DataPtr memory, std::size_t bytes);

/// Gives a fake tensor's storage other memory, and lets go of what it had: resize_(), or out= to a smaller tensor.
void grow(const at::Tensor& tensor, c10::DataPtr memory, std::size_t bytes);
/// The sizes and strides that an op gave its argument in place.
void copy_layout(const at::Tensor& tensor, const at::Tensor& layout);

/// A fake tensor of `layout`'s dtype, sizes, strides and offset over `storage`, on its device.
at::Tensor make_fake(const at::Tensor& layout, c10::Storage storage);

/// A fake view of `base`'s storage, which may be real. As a view in inference mode it stays what its base is.
at::Tensor make_fake_view(const at::Tensor& layout, const at::Tensor& base);

/// A tensor of the same layout on the Meta device, over `storage`.
at::Tensor make_meta(const at::Tensor& layout, c10::Storage storage);
c10::Storage make_meta_storage(std::size_t bytes);

/// A CPU tensor of the same layout over zero pages that take memory only where they are written.
/// Throws Error if the system maps none.
c10::Storage make_stand_in_storage(std::size_t bytes);
at::Tensor make_stand_in(const at::Tensor& layout, c10::Storage storage);

/// cinch's name of a type. Throws UnsupportedError for quantized and other rare ones.
DType dtype_of(at::ScalarType type);
/// dtype and sizes, for the trace.
trace::TensorInfo info_of(const at::Tensor& tensor);
}  // namespace cinch::dryrun::internal
