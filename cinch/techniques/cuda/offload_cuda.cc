#include "cinch/techniques/cuda/offload_cuda.h"

#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cinch/techniques/internal/offload_cuda.h"

namespace cinch::techniques {
namespace {

/// For copies of one device; one for good.
c10::cuda::CUDAStream side_stream(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* streams = new std::map<c10::DeviceIndex, c10::cuda::CUDAStream>;
  const std::lock_guard lock(mutex);
  const auto found = streams->find(device);
  if (found != streams->end()) return found->second;
  return streams->emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)).first->second;
}

class CudaAway final : public internal::Away {
 public:
  explicit CudaAway(const at::Tensor& flat) : options_(flat.options()), device_(flat.device().index()) {
    host_ = at::empty(flat.sizes(), options_.device(at::kCPU).pinned_memory(true));
    copy(host_, flat);
  }
  ~CudaAway() override {
    try {
      finish_leaving();
    } catch (const std::exception&) {  // the device failed, and says so to whoever uses it next
    }
  }
  /// The source may be freed by the host: its stream waits, and whoever gets the memory comes later on that stream.
  void finish_leaving() override { copied_.block(c10::cuda::getCurrentCUDAStream(device_)); }
  at::Tensor come_back() override {
    const c10::cuda::CUDAGuard device(device_);
    auto flat = at::empty(host_.sizes(), options_);
    copy(flat, host_);
    return flat;
  }
  void finish_coming() override { finish_leaving(); }

 private:
  void copy(const at::Tensor& to, const at::Tensor& from) {
    const c10::cuda::CUDAGuard device(device_);
    const auto side = side_stream(device_);
    at::cuda::CUDAEvent ready;
    ready.record(c10::cuda::getCurrentCUDAStream(device_));  // what is read is there; what is written is free
    ready.block(side);
    const c10::cuda::CUDAStreamGuard on_side(side);
    to.copy_(from, /*non_blocking=*/true);
    copied_.record(side);
  }

  const at::TensorOptions options_;
  const c10::DeviceIndex device_;
  at::Tensor host_;
  at::cuda::CUDAEvent copied_;
};

}  // namespace

void enable_cuda_offload() {
  internal::set_cuda_send(
      [](const at::Tensor& flat) -> std::unique_ptr<internal::Away> { return std::make_unique<CudaAway>(flat); });
}

}  // namespace cinch::techniques
