// The orders that keep offloaded state from races, on a device that only writes down what it is told to wait for.
#include "cinch/optim/internal/state_carrier.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace cinch::optim::internal {
namespace {
using testing::ElementsAre;

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);
const c10::Stream kComputing(c10::Stream::UNSAFE, kDevice, 0), kSide(c10::Stream::UNSAFE, kDevice, 7);

/// What was enqueued, in order. Copies are the host's, and done at once: whether they may be is what the order says.
std::vector<std::string>& told() {
  static auto* all = new std::vector<std::string>;
  return *all;
}
std::string name_of(const c10::Stream& stream) { return stream == kSide ? "side" : "computing"; }

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device getDevice() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device /*device*/) const noexcept override { return now; }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/, bool /*high*/) const override { return kSide; }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return std::exchange(now, stream); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new std::string;
    *static_cast<std::string*>(*event) = name_of(stream) + " so far";
    told().push_back("mark " + name_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    told().push_back(name_of(stream) + " waits for " + *static_cast<std::string*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<std::string*>(event);
  }
  void synchronizeEvent(void* event) const override {
    told().push_back("host waits for " + *static_cast<std::string*>(event));
  }
  static thread_local c10::Stream now;
};
thread_local c10::Stream Guard::now = kComputing;

void install() {
  static const bool once = [] {
    static const Guard guard;
    c10::impl::registerDeviceGuard(kType, &guard);
    return true;
  }();
  static_cast<void>(once);
  told().clear();
}

at::Tensor bytes(char value, std::int64_t count) { return at::full({count}, static_cast<int>(value), at::kByte); }
std::string content(const StateStore& store, std::size_t count) { return {store.data(), count}; }

TEST(StateCarrier, WaitsForWhatComputesAndIsWaitedForByIt) {
  install();
  StateStore store(64, {});
  std::memset(store.data() + 32, 'b', 32);
  auto buffer = bytes('a', 40);
  {
    const auto carrier = make_carrier(kDevice, /*pinned=*/true);
    carrier->begin(buffer, InStore{&store, 0, 32}, InStore{&store, 32, 32});
    EXPECT_THAT(told(), ElementsAre("mark computing", "side waits for computing so far", "mark side"));
    EXPECT_EQ(Guard::now, kComputing) << "what is enqueued next is the program's";
    told().clear();
    carrier->wait();
    EXPECT_THAT(told(), ElementsAre("computing waits for side so far")) << "the host does not";
    told().clear();
    carrier->settle();
    EXPECT_THAT(told(), ElementsAre("host waits for side so far"));
    told().clear();
  }
  EXPECT_THAT(told(), ElementsAre("host waits for side so far")) << "a store must not go before its copies";
  EXPECT_EQ(content(store, 32), std::string(32, 'a'));
  EXPECT_TRUE(at::equal(buffer, at::cat({bytes('b', 32), bytes('a', 8)})));
}

TEST(StateCarrier, WithNothingBegunWaitsForNothing) {
  install();
  {
    const auto carrier = make_carrier(kDevice, true);
    carrier->wait();
    carrier->settle();
  }
  EXPECT_THAT(told(), ElementsAre());
}

TEST(StateCarrier, OfTheCpuIsAThread) {
  StateStore store(64, {});
  std::memset(store.data() + 32, 'd', 32);
  const auto buffer = bytes('c', 32);
  const auto carrier = make_carrier(at::kCPU, true);
  carrier->begin(buffer, InStore{&store, 0, 32}, InStore{&store, 32, 32});
  carrier->wait();
  EXPECT_EQ(content(store, 32), std::string(32, 'c'));
  EXPECT_TRUE(at::equal(buffer, bytes('d', 32)));
}
}  // namespace
}  // namespace cinch::optim::internal
