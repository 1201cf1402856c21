#include "cinch/optim/internal/state_carrier.h"

#include <future>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace cinch::optim::internal {
namespace {
using Place = std::optional<InStore>;

std::int64_t signed_size(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

class ByThread final : public StateCarrier {
 public:
  void begin(const at::Tensor& buffer, Place out, Place in) override {
    auto* bytes = static_cast<char*>(buffer.mutable_data_ptr());
    moved_ = std::async(std::launch::async, [bytes, out, in] {
      if (out) out->store->write(out->offset, bytes, out->bytes);
      if (in) in->store->read(in->offset, bytes, in->bytes);
    });
  }
  void wait() override {
    if (moved_.valid()) moved_.get();
  }
  void settle() override {}

 private:
  std::future<void> moved_;
};

/// Through LibTorch's interface to any device, so that nothing of CUDA is linked.
class ByStream : public StateCarrier {
 public:
  explicit ByStream(at::Device device)
      : device_(device),
        guard_(device.type()),
        side_(guard_.getStreamFromGlobalPool(device)),
        ready_(device.type()),
        moved_(device.type()) {}
  ~ByStream() override {
    try {
      ByStream::settle();              // What is under way writes into the store.
    } catch (const std::exception&) {  // The device failed, and says so to whoever uses it next.
    }
  }
  ByStream(const ByStream&) = delete;
  ByStream& operator=(const ByStream&) = delete;

  void begin(const at::Tensor& buffer, Place out, Place in) override {
    const c10::DeviceGuard here(device_);
    ready_.record(guard_.getStream(device_));
    ready_.block(side_);
    const c10::StreamGuard on_side(side_);
    if (out) in_store(*out).copy_(buffer.narrow(0, 0, signed_size(out->bytes)), /*non_blocking=*/true);
    if (in) buffer.narrow(0, 0, signed_size(in->bytes)).copy_(in_store(*in), /*non_blocking=*/true);
    moved_.record(side_);
    any_ = true;
  }
  void wait() override {
    if (any_) moved_.block(guard_.getStream(device_));
  }
  void settle() override {
    if (any_) moved_.synchronize();
  }

 protected:
  static at::Tensor in_store(const InStore& place) {
    return at::from_blob(place.store->data() + place.offset, {signed_size(place.bytes)}, at::kByte);
  }

  const at::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream side_;
  c10::Event ready_, moved_;
  bool any_ = false;
};

/// What lies in a file is in no pinned memory: a thread carries it on from there.
class ByStreamAndThread final : public ByStream {
 public:
  using ByStream::ByStream;
  ~ByStreamAndThread() override {
    if (thread_.valid()) thread_.wait();
  }
  void begin(const at::Tensor& buffer, Place out, Place in) override {
    ready_.record(guard_.getStream(device_));
    if (!stage_.defined() || stage_.numel() < buffer.numel())
      stage_ = at::empty({buffer.numel()}, at::TensorOptions(at::kByte).pinned_memory(true));
    thread_ = std::async(std::launch::async, [this, buffer, out, in] { carry(buffer, out, in); });
  }
  void wait() override {
    if (thread_.valid()) thread_.get();
    ByStream::wait();
  }

 private:
  void carry(const at::Tensor& buffer, Place out, Place in) {
    const c10::DeviceGuard here(device_);
    ready_.block(side_);
    if (out) {
      copy(stage_, buffer, out->bytes);
      out->store->write(out->offset, static_cast<const char*>(stage_.const_data_ptr()), out->bytes);
    }
    if (in) {
      in->store->read(in->offset, static_cast<char*>(stage_.mutable_data_ptr()), in->bytes);
      copy(buffer, stage_, in->bytes);
    }
  }
  /// Waits for it: the stage is used again.
  void copy(const at::Tensor& to, const at::Tensor& from, std::size_t bytes) {
    const c10::StreamGuard on_side(side_);
    to.narrow(0, 0, signed_size(bytes)).copy_(from.narrow(0, 0, signed_size(bytes)), /*non_blocking=*/true);
    moved_.record(side_);
    moved_.synchronize();
    any_ = true;
  }

  at::Tensor stage_;
  std::future<void> thread_;
};
}  // namespace

std::unique_ptr<StateCarrier> make_carrier(at::Device device, bool pinned) {
  if (device.is_cpu()) return std::make_unique<ByThread>();
  if (pinned) return std::make_unique<ByStream>(device);
  return std::make_unique<ByStreamAndThread>(device);
}
}  // namespace cinch::optim::internal
