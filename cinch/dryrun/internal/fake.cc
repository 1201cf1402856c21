#include "cinch/dryrun/internal/fake.h"

#include <c10/core/DispatchKeySet.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>

#include "cinch/core/error.h"
#include "cinch/record/listener.h"

namespace cinch::dryrun::internal {
namespace {
using record::AllocationTag;

std::atomic<std::int64_t> g_alive{0};

void release_fake(void* context) {
  std::unique_ptr<AllocationTag> tag(static_cast<AllocationTag*>(context));
  g_alive -= tag->bytes;
  record::tell_freed(*tag);
}

struct Pages {
  void* address;
  std::size_t bytes;
};
void release_pages(void* context) {
  std::unique_ptr<Pages> pages(static_cast<Pages*>(context));
  munmap(pages->address, pages->bytes);
}

at::Tensor set_layout(at::Tensor tensor, const at::Tensor& layout) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(layout.sizes(), layout.strides(), layout.storage_offset());
  if (layout.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

at::Tensor with_layout(const at::Tensor& layout, c10::Storage storage, c10::DispatchKeySet keys) {
  return set_layout(at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, layout.dtype()), layout);
}

/// `grows_by`: kernels may let it grow; nullptr: they may not.
c10::Storage storage_over(c10::DataPtr memory, std::size_t bytes, c10::Allocator* grows_by = nullptr) {
  return c10::Storage(c10::Storage::use_byte_size_t{}, bytes, std::move(memory), grows_by, grows_by != nullptr);
}
}  // namespace

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DType::kFloat32;
    case at::kBFloat16: return DType::kBFloat16;
    case at::kHalf: return DType::kFloat16;
    case at::kDouble: return DType::kFloat64;
    case at::kLong: return DType::kInt64;
    case at::kInt: return DType::kInt32;
    case at::kShort: return DType::kInt16;
    case at::kChar: return DType::kInt8;
    case at::kByte: return DType::kUInt8;
    case at::kBool: return DType::kBool;
    case at::kComplexFloat: return DType::kComplex64;
    case at::kComplexDouble: return DType::kComplex128;
    case at::kComplexHalf: return DType::kComplex32;
    case at::kFloat8_e4m3fn: return DType::kFloat8E4M3Fn;
    case at::kFloat8_e5m2: return DType::kFloat8E5M2;
    case at::kFloat8_e4m3fnuz: return DType::kFloat8E4M3FnUz;
    case at::kFloat8_e5m2fnuz: return DType::kFloat8E5M2FnUz;
    case at::kFloat8_e8m0fnu: return DType::kFloat8E8M0Fnu;
    case at::kUInt16: return DType::kUInt16;
    case at::kUInt32: return DType::kUInt32;
    case at::kUInt64: return DType::kUInt64;
    default: throw UnsupportedError(std::string("tensors of type ") + c10::toString(type));
  }
}

trace::TensorInfo info_of(const at::Tensor& tensor) { return {dtype_of(tensor.scalar_type()), tensor.sizes().vec()}; }

c10::DataPtr allocate_fake(Bytes bytes, c10::Device device, bool told) {
  if (bytes == Bytes()) return {nullptr, device};
  record::set_fake_deleter(&release_fake);
  auto tag = std::make_unique<AllocationTag>();
  if (told) record::tell_allocated(bytes, *tag);
  tag->bytes = bytes.count();
  g_alive += bytes.count();
  return {nullptr, tag.release(), &release_fake, device};
}

Bytes fake_bytes_alive() noexcept { return Bytes(g_alive); }

namespace {
void refuse_access(c10::StorageImpl* storage) {  // The name says more than it does: every access to the data throws this.
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "a tensor of a dry run has no data; build small inputs with at::tensor(), larger ones before the dry run");
}
}  // namespace

c10::Storage make_storage(c10::DataPtr memory, std::size_t bytes) {
  auto storage = storage_over(std::move(memory), bytes);
  if (bytes > 0) refuse_access(storage.unsafeGetStorageImpl());
  return storage;
}

void grow(const at::Tensor& tensor, c10::DataPtr memory, std::size_t bytes) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
  refuse_access(storage);
}

void copy_layout(const at::Tensor& tensor, const at::Tensor& layout) {
  if (tensor.sizes() != layout.sizes() || tensor.strides() != layout.strides() ||
      tensor.storage_offset() != layout.storage_offset())
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes(), layout.strides(), layout.storage_offset());
}

at::Tensor make_fake(const at::Tensor& layout, c10::Storage storage) {
  const auto backend = storage.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  return with_layout(layout, std::move(storage), c10::DispatchKeySet({backend, c10::DispatchKey::Fake}));
}

at::Tensor make_fake_view(const at::Tensor& layout, const at::Tensor& base) {
  const auto keys = base.key_set() | c10::DispatchKeySet(c10::DispatchKey::Fake);
  return set_layout(at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()), keys, layout.dtype()),
                    layout);
}

at::Tensor make_meta(const at::Tensor& layout, c10::Storage storage) {
  return with_layout(layout, std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta));
}

c10::Storage make_meta_storage(std::size_t bytes) {
  return storage_over(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::Meta)), bytes,
                      c10::GetAllocator(c10::DeviceType::Meta));
}

c10::Storage make_stand_in_storage(std::size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  auto* const heap = c10::GetAllocator(c10::DeviceType::CPU);
  if (bytes == 0) return storage_over(c10::DataPtr(nullptr, cpu), 0, heap);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw Error("the system maps no " + std::to_string(bytes) + " bytes of zero pages");
  return storage_over({address, new Pages{address, bytes}, &release_pages, cpu}, bytes, heap);
}

at::Tensor make_stand_in(const at::Tensor& layout, c10::Storage storage) {
  return with_layout(layout, std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU));
}
}  // namespace cinch::dryrun::internal
