#include "cinch/techniques/offload.h"

#include <algorithm>
#include <future>
#include <utility>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/record/producer.h"
#include "cinch/techniques/internal/media.h"
#include "cinch/techniques/internal/moved_storages.h"
#include "cinch/techniques/internal/side_stream.h"
#include "cinch/techniques/internal/worker.h"

namespace cinch::techniques {
namespace {

/// In a dry run: a layout without bytes.
bool has_bytes(const at::Tensor& tensor) { return !tensor.key_set().has(c10::DispatchKey::Fake); }

Bytes bytes_of(const at::Tensor& flat) { return Bytes(static_cast<std::int64_t>(flat.nbytes())); }

/// Tells a dry run what a copy moves over the link between device and host.
void tell_copy(const at::Tensor& flat, const char* name, bool leaves) {
  auto* producer = record::Producer::active();
  if (producer == nullptr || has_bytes(flat)) return;
  const auto before = producer->exchange_op(trace::kNoOp);
  trace::OpCall call;
  (leaves ? call.read : call.written) = bytes_of(flat);
  producer->begin_op(name, call);
  producer->exchange_op(before);
}

}  // namespace

/// What handles share, and so what outlives the policy.
struct Offload::State {
  State(const OffloadOptions& options) : worker(options.before_copy) {
    if (options.folder.empty()) {
      medium = std::make_unique<internal::HostMemory>();
    } else {
      medium = std::make_unique<internal::SwapFile>(options.folder);
    }
    to_disk = !options.folder.empty();
  }

  class Stored;
  class Counted;
  static std::unique_ptr<internal::Away> send(const std::shared_ptr<State>& state, const at::Tensor& flat);

  void count_sent(Bytes bytes) {
    const std::lock_guard lock(mutex);
    stats.sent += bytes;
    stats.away += bytes;
    stats.away_peak = std::max(stats.away_peak, stats.away);
  }
  void count_fetched(Bytes bytes) {
    const std::lock_guard lock(mutex);
    stats.fetched += bytes;
  }
  void count_gone(Bytes bytes) noexcept {
    const std::lock_guard lock(mutex);
    stats.away -= bytes;
  }

  std::unique_ptr<internal::Medium> medium;
  bool to_disk = false;
  internal::Worker worker;  ///< Ends before the medium goes.
  std::mutex mutex;         ///< Of `stats`.
  OffloadStats stats;
  std::shared_ptr<internal::MovedStorages> storages;
};

/// A storage of the CPU, or of a dry run. It has a place in the medium only if it has bytes.
class Offload::State::Stored final : public internal::Away {
 public:
  Stored(std::shared_ptr<State> state, const at::Tensor& flat)
      : state_(std::move(state)), options_(flat.options()), elements_(flat.numel()), bytes_(flat.nbytes()) {
    if (has_bytes(flat)) {
      place_ = state_->medium->take(bytes_);
      const void* from = flat.const_data_ptr();
      job_ = state_->worker.run([medium = state_->medium.get(), place = *place_, from, bytes = bytes_] {
        medium->write(place, from, bytes);
      });
    }
    state_->count_sent(bytes_of(flat));
    tell_copy(flat, "cinch::offload", /*leaves=*/true);
  }
  ~Stored() override {
    if (job_.valid()) job_.wait();
    if (place_) state_->medium->give(*place_, bytes_);
    state_->count_gone(Bytes(static_cast<std::int64_t>(bytes_)));
  }

  void finish_leaving() override { finish(); }
  at::Tensor come_back() override {
    auto flat = at::empty({elements_}, options_);
    if (place_ && has_bytes(flat)) {
      void* to = flat.mutable_data_ptr();
      job_ = state_->worker.run(
          [medium = state_->medium.get(), place = *place_, to, bytes = bytes_] { medium->read(place, to, bytes); });
    }
    state_->count_fetched(bytes_of(flat));
    tell_copy(flat, "cinch::fetch", /*leaves=*/false);
    return flat;
  }
  void finish_coming() override { finish(); }

 private:
  void finish() {
    if (job_.valid()) job_.get();
  }

  std::shared_ptr<State> state_;
  at::TensorOptions options_;
  std::int64_t elements_;
  std::size_t bytes_;
  std::optional<std::uint64_t> place_;
  std::future<void> job_;
};

std::unique_ptr<internal::Away> Offload::State::send(const std::shared_ptr<State>& state, const at::Tensor& flat) {
  if (flat.is_cpu() || !has_bytes(flat)) return std::make_unique<Stored>(state, flat);
  if (!flat.is_cuda()) throw UnsupportedError("offloading from " + flat.device().str());
  if (state->to_disk) {
    throw UnsupportedError("offloading from " + flat.device().str() + " to a file", "leave `folder` empty");
  }
  return internal::send_on_side_stream(flat);
}

Offload::Offload(OffloadOptions options) : state_(std::make_shared<State>(options)) {
  state_->storages = std::make_shared<internal::MovedStorages>(
      [state = std::weak_ptr(state_)](const at::Tensor& flat, bool /*statistic*/) {
        return State::send(state.lock(), flat);
      },
      internal::MoveOptions{options.in_flight, std::move(options.keep), {}});
}

Offload::~Offload() = default;

std::unique_ptr<SavedHandle> Offload::pack(const at::Tensor& tensor) {
  auto moved = state_->storages->pack(tensor);
  return moved ? std::move(moved) : techniques::keep(tensor);
}

OffloadStats Offload::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

}  // namespace cinch::techniques
