#include "cinch/dryrun/internal/claim.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <mutex>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/attention_choice.h"

namespace cinch::dryrun::internal {
namespace {
const c10::Device kCuda(c10::DeviceType::CUDA, 0);
std::atomic<const device::DeviceSpec*> g_claimed{nullptr};

/// One device, one stream, and events that have always happened.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  static c10::Stream stream() noexcept { return c10::Stream(c10::Stream::DEFAULT, kCuda); }
  c10::Device exchangeDevice(c10::Device) const override { return kCuda; }
  c10::Device getDevice() const override { return kCuda; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

/// What LibTorch asks of CUDA before it chooses a kernel. cuDNN is part of LibTorch's CUDA builds.
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  long versionCuDNN() const override { return kCudnn; }
  long versionRuntimeCuDNN() const override { return kCudnn; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }

 private:
  static constexpr long kCudnn = 91900;  // 9.19, the one LibTorch 2.11's CUDA 13 build is made with.
};

std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const std::optional<at::Tensor>& mask, double dropout, bool causal,
                              std::optional<double> /*scale*/, bool grouped) {
  return attention_choice({query, key, value, mask.value_or(at::Tensor()), dropout, causal, grouped}, claimed());
}

void install() {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    const c10::impl::VirtualGuardImpl real(c10::DeviceType::CUDA);
    if (real.deviceCount() > 0) return;
    throw UnsupportedError("LibTorch's CUDA library is loaded but finds no device: cinch cannot stand in for it",
                           "link torch_cpu without torch_cuda, or predict on a machine with a card");
  }
  static const Guard guard;
  c10::impl::registerDeviceGuard(c10::DeviceType::CUDA, &guard);
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs args) { return std::unique_ptr<at::CUDAHooksInterface>(new Hooks(args)); });
  if (!at::detail::getCUDAHooks().hasCUDA())
    throw UnsupportedError("LibTorch was asked for CUDA before cinch could claim a device",
                           "make the first dry run on a card before other work of the process");
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
}
}  // namespace

void claim_cuda() {
  static std::once_flag once;
  std::call_once(once, install);
}

void claim_properties(const device::DeviceSpec* device) noexcept { g_claimed = device; }
const device::DeviceSpec* claimed() noexcept { return g_claimed; }
}  // namespace cinch::dryrun::internal
