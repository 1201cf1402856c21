#include "cinch/dryrun/internal/factories.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/fake.h"

namespace cinch::dryrun::internal {
namespace {

struct Kind {
  at::ScalarType dtype;
  c10::Device device;
};

Kind kind_of(std::optional<at::ScalarType> dtype, std::optional<at::Device> device) {
  return {dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype())), device.value_or(c10::Device(at::kCPU))};
}

/// Small ones on the CPU are real, so that a program may write into what it makes.
at::Tensor make_by_factory(at::IntArrayRef sizes, std::optional<at::IntArrayRef> strides, Kind kind) {
  auto* state = DryRun::State::active();
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  auto layout = strides ? at::empty_strided(sizes, *strides, at::TensorOptions(kind.dtype).device(at::kMeta))
                        : at::empty(sizes, at::TensorOptions(kind.dtype).device(at::kMeta));
  if (kind.device.is_meta()) return layout;
  const auto bytes = layout.storage().nbytes();
  if (kind.device.is_cpu() && bytes > 0 && bytes <= static_cast<std::size_t>(kSmall)) {
    auto real = strides ? at::empty_strided(sizes, *strides, kind.dtype) : at::empty(sizes, kind.dtype);
    tell_shape(*state, real);
    return real;
  }
  auto memory = state->allocate(Bytes(static_cast<std::int64_t>(bytes)), kind.device);
  const auto* tag = static_cast<const record::AllocationTag*>(memory.get_context());
  if (tag != nullptr && tag->listener != 0) state->producer.tensor(tag->id, info_of(layout));
  return make_fake(layout, make_storage(std::move(memory), bytes));
}

at::Tensor fake_empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                      std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  require_active();
  const auto kind = kind_of(dtype, device);
  if (format && *format == at::MemoryFormat::ChannelsLast)
    return make_by_factory(sizes, c10::get_channels_last_strides_2d(sizes), kind);
  if (format && *format == at::MemoryFormat::ChannelsLast3d)
    return make_by_factory(sizes, c10::get_channels_last_strides_3d(sizes), kind);
  return make_by_factory(sizes, std::nullopt, kind);
}

at::Tensor fake_empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                              std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  require_active();
  return make_by_factory(sizes, strides, kind_of(dtype, device));
}

/// Nothing is known of values: whoever compares whole tensors gets "equal", as for item() of a mask.
bool fake_equal(const at::Tensor& left, const at::Tensor& right) {
  require_active();
  if (is_fake(left) || is_fake(right)) return left.sizes() == right.sizes();
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  return at::equal(left, right);
}

/// item(): see DryRun.
at::Scalar fake_item(const at::Tensor& tensor) {
  require_active();
  if (is_fake(tensor)) return at::isFloatingType(tensor.scalar_type()) ? at::Scalar(1.0) : at::Scalar(1);
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  return tensor.item();
}
}  // namespace

DryRun::State& require_active() {
  auto* state = DryRun::State::active();
  if (state == nullptr) throw UsageError("a tensor of a dry run that has ended was used");
  return *state;
}

void tell_shape(DryRun::State& state, const at::Tensor& tensor) {
  if (const auto id = record::allocation_of(tensor)) state.producer.tensor(*id, info_of(tensor));
}

void register_factories(torch::Library& aten) {
  aten.impl("empty.memory_format", &fake_empty);
  aten.impl("empty_strided", &fake_empty_strided);
  aten.impl("_local_scalar_dense", &fake_item);
  aten.impl("equal", &fake_equal);
}
}  // namespace cinch::dryrun::internal
