// Through LibTorch's interface to any device, so that nothing of CUDA is linked.
#include "cinch/techniques/internal/side_stream.h"

#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace cinch::techniques::internal {
namespace {

c10::Stream computing(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

/// For copies of one device; one for good.
c10::Stream side(c10::Device device) {
  static std::mutex mutex;
  static auto* streams = new std::map<c10::DeviceIndex, c10::Stream>;
  const std::lock_guard lock(mutex);
  const auto found = streams->find(device.index());
  if (found != streams->end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return streams->emplace(device.index(), guard.getStreamFromGlobalPool(device)).first->second;
}

class OnHost final : public Away {
 public:
  explicit OnHost(const at::Tensor& flat)
      : options_(flat.options()), device_(flat.device()), owner_(computing(device_)), copied_(device_.type()) {
    host_ = at::empty(flat.sizes(), options_.device(at::kCPU).pinned_memory(true));
    copy(host_, flat);
  }
  ~OnHost() override {
    try {
      finish_leaving();
    } catch (const std::exception&) {  // the device failed, and says so to whoever uses it next
    }
  }
  /// The host may free the source: the stream that it was made on waits, and whoever gets the memory comes later on
  /// that stream. Another one may be current by now: where a graph is dropped, or walked.
  void finish_leaving() override {
    copied_.block(owner_);
    if (computing(device_) != owner_) copied_.block(computing(device_));
  }
  at::Tensor come_back() override {
    auto flat = at::empty(host_.sizes(), options_);
    owner_ = computing(device_);
    copy(flat, host_);
    return flat;
  }
  void finish_coming() override { finish_leaving(); }

 private:
  void copy(const at::Tensor& to, const at::Tensor& from) {
    const c10::DeviceGuard here(device_);
    c10::Event ready(device_.type());
    ready.record(owner_);  // what is read is there; what is written is free
    ready.block(side(device_));
    const c10::StreamGuard on_side(side(device_));
    to.copy_(from, /*non_blocking=*/true);
    copied_.record(side(device_));
  }

  const at::TensorOptions options_;
  const c10::Device device_;
  c10::Stream owner_;  ///< Of the memory on the device: current when it was made or saved.
  at::Tensor host_;
  c10::Event copied_;
};

}  // namespace

std::unique_ptr<Away> send_on_side_stream(const at::Tensor& flat) { return std::make_unique<OnHost>(flat); }

}  // namespace cinch::techniques::internal
