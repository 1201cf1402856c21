#include "cinch/dryrun/internal/claim.h"

#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <string>

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

/// Nobody draws from it: fake tensors have no values. Its state is as small as a CUDA generator's: seed and offset.
class Generator final : public c10::GeneratorImpl {
 public:
  Generator() : c10::GeneratorImpl(kCuda, c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(std::uint64_t seed) override { seed_ = seed; }
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override { return seed_; }
  void set_offset(std::uint64_t) override {}
  std::uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return at::zeros({16}, at::kByte).getIntrusivePtr();
  }

 private:
  Generator* clone_impl() const override { return new Generator(*this); }
  Generator(const Generator& other) : Generator() { seed_ = other.seed_; }
  std::uint64_t seed_ = c10::default_rng_seed_val;
};

/// What LibTorch asks of CUDA before it chooses a kernel. cuDNN is part of LibTorch's CUDA builds.
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return claimed() != nullptr; }
  bool hasCUDA() const override { return claimed() != nullptr; }
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
  c10::DeviceIndex deviceCount() const override { return claimed() != nullptr ? 1 : 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return deviceCount(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator(c10::make_intrusive<Generator>());
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::Generator(c10::make_intrusive<Generator>());
  }

 private:
  static constexpr long kCudnn = 91900;  // 9.19.0: what the wheel of LibTorch 2.11 requires (its METADATA).
};

std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const std::optional<at::Tensor>& mask, double dropout, bool causal,
                              std::optional<double> /*scale*/, bool grouped) {
  return attention_choice({query, key, value, mask, dropout, causal, grouped}, claimed());
}

/// Why there is no device to claim; empty if there is one, or a real one.
std::string install() {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    const c10::impl::VirtualGuardImpl real(c10::DeviceType::CUDA);
    return real.deviceCount() > 0 ? "" : "LibTorch's CUDA library is loaded but finds no device";
  }
  static const Guard guard;
  c10::impl::registerDeviceGuard(c10::DeviceType::CUDA, &guard);
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs args) { return std::unique_ptr<at::CUDAHooksInterface>(new Hooks(args)); });
  if (dynamic_cast<const Hooks*>(&at::detail::getCUDAHooks()) == nullptr)
    return "the process ran a backward pass before its first dry run, and LibTorch looked for devices then";
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
  return "";
}

const std::string& why_not() {
  static const std::string reason = install();
  return reason;
}
}  // namespace

void prepare_cuda() { static_cast<void>(why_not()); }

void claim_cuda(const device::DeviceSpec& device) {
  if (!why_not().empty())
    throw UnsupportedError("cannot predict for " + device.name + " in this process: " + why_not(),
                           "Make a dry run first thing in a program that is linked without torch_cuda.");
  g_claimed = &device;
}

void release_cuda() noexcept { g_claimed = nullptr; }
const device::DeviceSpec* claimed() noexcept { return g_claimed; }
}  // namespace cinch::dryrun::internal
