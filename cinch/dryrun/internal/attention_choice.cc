#include "cinch/dryrun/internal/attention_choice.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace cinch::dryrun::internal {
namespace {

/// One question of the selection: the call, and the card's compute capability as 80, 86, ….
class Selection {
 public:
  Selection(const sdp::sdp_params& call, int capability) : call_(call), capability_(capability) {}

  bool cudnn() const {
    return at::globalContext().userEnabledCuDNNSDP() && capability_ >= 80 && low_precision() && shapes() &&
           sdp::check_attn_mask_shape(call_, kQuiet) && !at::globalContext().deterministicAlgorithms() &&
           call_.dropout * 16 == std::floor(call_.dropout * 16) &&
           sdp::check_nonzero_sequence_lengths_dense(call_, kQuiet) &&
           sdp::check_last_dim_stride_equals_1_dense<true>(call_, kQuiet) &&
           sdp::check_batch_size_and_num_heads_dense<true, false>(call_, kQuiet) && cudnn_shapes();
  }

  bool flash() const {
    return sdp::check_runtime_disabled_flash(call_, kQuiet) && capability_ >= 80 && low_precision() && shapes() &&
           !call_.attn_mask.has_value() && equal_heads() && head_size() <= 256 && flash_trains() &&
           !(call_.is_causal && call_.query.size(-2) != call_.key.size(-2)) &&
           sdp::check_batch_size_and_num_heads_dense<true, true>(call_, kQuiet) &&
           sdp::check_nonzero_sequence_lengths_dense(call_, kQuiet) &&
           sdp::check_last_dim_stride_equals_1_dense<true>(call_, kQuiet);
  }

  bool efficient() const {
    return sdp::check_runtime_disabled_mem_efficient(call_, kQuiet) && capability_ >= 50 && efficient_type() &&
           shapes() && call_.query.size(-1) == call_.key.size(-1) && aligned(call_.query.size(-1)) &&
           aligned(call_.value.size(-1)) && sdp::check_nonzero_sequence_lengths_dense(call_, kQuiet) &&
           sdp::check_last_dim_stride_equals_1_dense<false>(call_, kQuiet) &&
           sdp::check_batch_size_and_num_heads_dense<false, true>(call_, kQuiet);
  }

  /// cuDNN's attention is the first choice on data-center cards.
  bool cudnn_first() const { return capability_ / 10 == 9 || capability_ / 10 == 10; }

 private:
  static constexpr bool kQuiet = false;

  bool is(at::ScalarType type) const {
    return call_.query.scalar_type() == type && call_.key.scalar_type() == type && call_.value.scalar_type() == type;
  }
  bool low_precision() const { return is(at::kHalf) || (capability_ >= 80 && is(at::kBFloat16)); }
  bool efficient_type() const { return low_precision() || is(at::kFloat); }
  bool shapes() const { return sdp::check_tensor_shapes(call_, kQuiet); }
  std::int64_t head_size() const { return call_.query.size(-1); }
  bool equal_heads() const { return head_size() == call_.key.size(-1) && head_size() == call_.value.size(-1); }

  /// Backward of large heads does not fit into the shared memory of consumer cards.
  bool flash_trains() const {
    const bool consumer = (capability_ >= 86 && capability_ <= 89) || capability_ >= 120;
    if (!sdp::input_requires_grad(call_) || !consumer) return true;
    return head_size() <= 192 || (head_size() > 224 && call_.dropout == 0);
  }

  /// Rows must begin where a matrix instruction can load them.
  bool aligned(std::int64_t size) const {
    const bool half = !is(at::kFloat);
    const bool tensor_cores = capability_ >= 80 || (capability_ >= 70 && half);
    const std::int64_t base = capability_ >= 80 ? 4 : 1;
    const std::int64_t alignment = tensor_cores ? std::max<std::int64_t>(base, half ? 8 : 4) : base;
    return size > 0 && size % alignment == 0;
  }

  bool cudnn_shapes() const {
    const auto key_length = call_.key.size(2), value_size = call_.value.size(3);
    const bool wide = cudnn_first() && head_size() == 192 && value_size == 128;
    const std::int64_t limit = wide ? 192 : 128;
    return call_.query.size(0) <= 65535 && call_.query.size(1) <= 65535 && head_size() <= limit &&
           value_size <= limit && head_size() % 8 == 0 && value_size % 8 == 0 && key_length != 1 &&
           !(call_.dropout != 0 && call_.query.size(2) == 1);
  }

  const sdp::sdp_params& call_;
  int capability_;
};
}  // namespace

std::int64_t attention_choice(const sdp::sdp_params& call, const device::DeviceSpec* device) {
  const Selection can(call, device != nullptr && device->compute_capability > 0 ? device->compute_capability : 80);
  if (can.cudnn_first() && can.cudnn()) return static_cast<std::int64_t>(at::SDPBackend::cudnn_attention);
  if (can.flash()) return static_cast<std::int64_t>(at::SDPBackend::flash_attention);
  if (can.efficient()) return static_cast<std::int64_t>(at::SDPBackend::efficient_attention);
  return static_cast<std::int64_t>(at::SDPBackend::math);
}
}  // namespace cinch::dryrun::internal
