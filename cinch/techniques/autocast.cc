#include "cinch/techniques/autocast.h"

#include <string>

#include <ATen/autocast_mode.h>

#include "cinch/core/error.h"

namespace cinch::techniques {
namespace {
at::DeviceType checked(at::DeviceType device, at::ScalarType dtype) {
  if (device != at::kCPU && device != at::kCUDA) {
    throw UsageError("autocast of device type " + c10::DeviceTypeName(device, true) + " is not supported",
                     "It exists for cpu and cuda.");
  }
  if (dtype != at::kBFloat16 && dtype != at::kHalf && dtype != at::kFloat) {
    throw UsageError(std::string("autocast to ") + c10::toString(dtype) + " is not supported",
                     "Use bfloat16 or half; float32 switches it off.");
  }
  return device;
}
}  // namespace

Autocast::Autocast(at::DeviceType device, at::ScalarType dtype)
    : device_(checked(device, dtype)),
      dtype_before_(at::autocast::get_autocast_dtype(device)),
      enabled_before_(at::autocast::is_autocast_enabled(device)),
      fresh_casts_(dtype != at::kFloat && dtype != dtype_before_) {
  // The cache knows a weight's cast by the weight alone: one of another type would be taken for it.
  if (fresh_casts_) at::autocast::clear_cache();
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device_, dtype != at::kFloat);
  if (dtype != at::kFloat) at::autocast::set_autocast_dtype(device_, dtype);
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0 || fresh_casts_) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
}
}  // namespace cinch::techniques
