#include "cinch/optim/offload.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/gpu.h"
#include "cinch/optim/internal/rule_optimizer.h"
#include "cinch/optim/internal/state_carrier.h"
#include "cinch/optim/internal/state_store.h"
#include "cinch/record/producer.h"
#include "cinch/record/recorder.h"

namespace cinch::optim {
namespace {
using internal::StateStore;

constexpr std::size_t kAlignment = 64;

/// Where one tensor of state lies.
struct Placed {
  std::size_t bytes = 0, offset = 0;  ///< From the beginning of its parameter's part.
  std::vector<std::int64_t> sizes, strides;
  at::ScalarType dtype = at::kFloat;
  bool stays = false;  ///< It is used where the store is: a number on the host, whatever device the parameter is on.
};
/// One parameter's part of the store.
struct Part {
  std::size_t offset = 0, bytes = 0;
  std::size_t moved = 0;  ///< So many of its bytes go through the buffers, from the first on.
  std::vector<Placed> tensors;
};
/// Its memory is pinned where copies of a device go there.
struct Store : StateStore {
  using StateStore::StateStore;
  std::optional<internal::Pinned> pinned = {};
};

/// Then there are no bytes to move, and no room is taken for them.
bool in_dry_run() { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake); }

/// What crosses the link between device and host, or disk, to whoever tells the time of a dry run.
void tell_copy(std::size_t bytes, const char* name, bool leaves) {
  auto* producer = record::Producer::active();
  if (producer == nullptr) return;
  const auto before = producer->exchange_op(trace::kNoOp);
  trace::OpCall call;
  (leaves ? call.read : call.written) = Bytes(static_cast<std::int64_t>(bytes));
  producer->begin_op(name, call);
  producer->exchange_op(before);
}

class Offloaded final : public internal::RuleOptimizer {
 public:
  Offloaded(std::vector<ParameterGroup> groups, std::unique_ptr<internal::Rule> rule, OffloadOptions options)
      : RuleOptimizer(std::move(groups), std::move(rule)),
        options_(std::move(options)),
        device_(groups_.front().parameters.front().tensor.device()),
        parts_(state_.size()) {
    const auto& first = groups_.front().parameters.front();
    internal::for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t) {
      internal::check_dense(parameter, "offloaded state");
      if (parameter.tensor.device() == device_) return;
      throw UnsupportedError("The parameter \"" + parameter.name + "\" is on " + parameter.tensor.device().str() +
                                 ", \"" + first.name + "\" on " + device_.str() +
                                 ": offloaded state is of one device's.",
                             "Make an optimizer for each device.");
    });
  }

  StepResult step(const StepOptions& options) override {
    const at::NoGradGuard no_grad;
    check_whole();
    StepResult result;
    if (options.max_grad_norm) result.grad_norm = clip_all(*options.max_grad_norm);
    std::vector<Job> jobs;
    internal::for_each_parameter(groups_,
                                 [&](const ParameterGroup& group, const NamedParameter& parameter, std::size_t i) {
                                   if (parameter.tensor.grad().defined()) jobs.push_back({&group, &parameter, i});
                                 });
    if (jobs.empty()) return result;
    place(jobs);
    run(jobs);
    return result;
  }

  void step_parameter(const ParameterGroup& group, const NamedParameter& parameter, std::size_t index) override {
    const at::NoGradGuard no_grad;
    check_whole();
    if (!is_placed(index)) place(all_jobs());  // One room for all: nobody says which will have gradients.
    run({{&group, &parameter, index}});
  }

  void load_state(const std::map<std::string, at::Tensor>& state) override {
    settle();
    const auto states = state_;
    const auto parts = parts_;
    const auto stores = stores_;
    try {
      if (!state.empty()) place(all_jobs());
      RuleOptimizer::load_state(state);
    } catch (...) {
      state_ = states;
      parts_ = parts;
      stores_ = stores;
      throw;
    }
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (!state_[i].empty()) continue;
      parts_[i] = {};
      stores_.erase(i);
    }
    broken_ = false;
  }

 private:
  struct Job {
    const ParameterGroup* group;
    const NamedParameter* parameter;
    std::size_t index;
  };

  std::vector<Job> all_jobs() const {
    std::vector<Job> jobs;
    internal::for_each_parameter(groups_,
                                 [&](const ParameterGroup& group, const NamedParameter& parameter, std::size_t i) {
                                   jobs.push_back({&group, &parameter, i});
                                 });
    return jobs;
  }

  void check_whole() const {
    if (!broken_) return;
    throw Error("An error of the disk left part of the parameters stepped.",
                "Load weights and state of the last checkpoint: cinch train --resume, or load_state().");
  }

  /// A dry run's places are no places.
  bool is_placed(std::size_t index) const {
    return !parts_[index].tensors.empty() && (in_dry_run() || stores_.at(index) != nullptr);
  }

  /// Gives those that have none their parts of a store, at their first values. All or nothing.
  void place(const std::vector<Job>& jobs) {
    std::vector<Part> parts;
    std::vector<std::size_t> fresh;
    std::size_t bytes = 0;
    for (const auto& job : jobs) {
      if (is_placed(job.index)) continue;
      fresh.push_back(job.index);
      parts.push_back(part_for(*job.parameter, bytes));
      bytes += parts.back().bytes;
    }
    if (fresh.empty()) return;
    const bool real = !in_dry_run();
    const auto store = real ? make_store(bytes) : nullptr;
    for (std::size_t i = 0, next = 0; i < jobs.size() && next < fresh.size(); ++i) {
      if (jobs[i].index != fresh[next]) continue;
      fill(*jobs[i].parameter, parts[next], store);
      ++next;
    }
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      stores_[fresh[i]] = store;
      if (real) state_[fresh[i]] = views(parts[i], store);
      parts_[fresh[i]] = std::move(parts[i]);
    }
  }

  std::shared_ptr<Store> make_store(std::size_t bytes) const {
    if (on_disk()) return std::make_shared<Store>(bytes, options_.folder);
    auto store = std::make_shared<Store>(bytes, std::filesystem::path());
    if (!device_.is_cpu()) store->pinned.emplace(store->data(), bytes, device_);
    return store;
  }

  Part part_for(const NamedParameter& parameter, std::size_t offset) const {
    Part part;
    part.offset = offset;
    for (const auto& key : rule().keys(rule().kind_of(parameter))) {
      const auto layout = key.make(parameter.tensor);
      part.tensors.push_back({layout.nbytes(), 0, layout.sizes().vec(), layout.strides().vec(), layout.scalar_type(),
                              /*stays=*/layout.device() != parameter.tensor.device()});
    }
    const auto place_those = [&part](bool that_stay) {
      for (auto& tensor : part.tensors) {
        if (tensor.stays != that_stay) continue;
        tensor.offset = part.bytes;
        part.bytes += (tensor.bytes + kAlignment - 1) / kAlignment * kAlignment;
      }
    };
    place_those(false);
    part.moved = part.bytes;
    place_those(true);
    part.bytes = std::max(part.bytes, kAlignment);
    return part;
  }

  void fill(const NamedParameter& parameter, const Part& part, const std::shared_ptr<Store>& store) const {
    const auto& keys = rule().keys(rule().kind_of(parameter));
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const auto first = keys[k].make(parameter.tensor);
      if (!store) continue;
      const auto on_host = first.cpu();
      store->write(part.offset + part.tensors[k].offset, static_cast<const char*>(on_host.const_data_ptr()),
                   on_host.nbytes());
    }
  }

  /// Of the store itself, for state() and load_state().
  static ParameterState views(const Part& part, const std::shared_ptr<Store>& store) {
    ParameterState state;
    for (const auto& placed : part.tensors) {
      state.push_back(at::from_blob(
          store->data() + part.offset + placed.offset, placed.sizes, placed.strides, [store](void*) {},
          at::TensorOptions(placed.dtype)));
    }
    return state;
  }

  /// The state of one parameter, over a buffer's bytes.
  ParameterState state_in(const Job& job, const at::Tensor& buffer) const {
    const auto& part = parts_[job.index];
    ParameterState state;
    for (std::size_t k = 0; k < part.tensors.size(); ++k) {
      const auto& placed = part.tensors[k];
      if (placed.stays) {
        const auto& keys = rule().keys(rule().kind_of(*job.parameter));
        state.push_back(state_[job.index].empty() ? keys[k].make(job.parameter->tensor) : state_[job.index][k]);
        continue;
      }
      const auto size = static_cast<std::int64_t>(c10::elementSize(placed.dtype));
      std::int64_t elements = 1;
      for (std::size_t d = 0; d < placed.sizes.size(); ++d) {
        elements = placed.sizes[d] == 0 ? 0 : elements + (placed.sizes[d] - 1) * placed.strides[d];
        if (elements == 0) break;
      }
      const auto bytes = buffer.narrow(0, static_cast<std::int64_t>(placed.offset), elements * size);
      state.push_back(bytes.view(placed.dtype).as_strided(placed.sizes, placed.strides));
    }
    return state;
  }

  internal::InStore in_store(const Job& job) const {
    return {stores_.at(job.index).get(), parts_[job.index].offset, parts_[job.index].moved};
  }

  /// Two buffers: in one a parameter is stepped; meanwhile the other one's content is written back, then the next read.
  void run(const std::vector<Job>& jobs) {
    std::size_t largest = 0;
    for (const auto& job : jobs) largest = std::max(largest, parts_[job.index].moved);
    const auto options = jobs.front().parameter->tensor.options().dtype(at::kByte).requires_grad(false);
    std::vector<at::Tensor> buffers;
    for (std::size_t i = 0; i < std::min<std::size_t>(jobs.size(), 2); ++i) {
      buffers.push_back(at::empty({static_cast<std::int64_t>(largest)}, options));
      record::label(buffers.back(), trace::Category::kOptimizerState, "offloaded state, brought in");
    }
    const Moves moves(in_dry_run() ? nullptr : &carrier(), on_disk());
    // Until the first weight changes, a failure leaves all as it was.
    moves.begin(buffers.front(), {}, in_store(jobs.front()));
    moves.wait();
    broken_ = true;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (jobs.size() > 1) {
        moves.begin(buffers[(i + 1) % 2], i > 0 ? std::optional(in_store(jobs[i - 1])) : std::nullopt,
                    i + 1 < jobs.size() ? std::optional(in_store(jobs[i + 1])) : std::nullopt);
      }
      auto tensors = gather_one(*jobs[i].parameter, state_in(jobs[i], buffers[i % 2]));
      rule().prepare(tensors);
      rule().update(*jobs[i].group, tensors);
      moves.wait();
    }
    moves.begin(buffers[(jobs.size() - 1) % 2], in_store(jobs.back()), {});
    moves.wait();
    broken_ = false;
  }

  /// A carrier while buffers are in use: they outlive what was begun, also where an exception ends it. A dry run has
  /// none, and is told.
  class Moves {
   public:
    Moves(internal::StateCarrier* carrier, bool on_disk) : carrier_(carrier), on_disk_(on_disk) {}
    ~Moves() {
      try {
        wait();
      } catch (const std::exception&) {  // Another one is on its way.
      }
    }
    Moves(const Moves&) = delete;
    Moves& operator=(const Moves&) = delete;
    void begin(const at::Tensor& buffer, std::optional<internal::InStore> out,
               std::optional<internal::InStore> in) const {
      if (carrier_ != nullptr) return carrier_->begin(buffer, out, in);
      if (out) tell_copy(out->bytes, on_disk_ ? "cinch::write_state" : "cinch::offload_state", /*leaves=*/true);
      if (in) tell_copy(in->bytes, on_disk_ ? "cinch::read_state" : "cinch::fetch_state", /*leaves=*/false);
    }
    void wait() const {
      if (carrier_ != nullptr) carrier_->wait();
    }

   private:
    internal::StateCarrier* carrier_;
    bool on_disk_;
  };

  bool on_disk() const { return options_.place == OffloadPlace::kDisk; }
  internal::StateCarrier& carrier() {
    if (!carrier_) carrier_ = internal::make_carrier(device_, /*pinned=*/!on_disk());
    return *carrier_;
  }
  void settle() const override {
    if (carrier_) carrier_->settle();
  }

  const OffloadOptions options_;
  const at::Device device_;
  std::vector<Part> parts_;                               ///< By parameter; without tensors: not placed yet.
  std::map<std::size_t, std::shared_ptr<Store>> stores_;  ///< By parameter; no store in a dry run.
  std::unique_ptr<internal::StateCarrier> carrier_;       ///< Since the first real step. Goes before the stores.
  bool broken_ = false;
};
}  // namespace

std::unique_ptr<Optimizer> offloaded(std::unique_ptr<Optimizer> optimizer, OffloadOptions options) {
  auto& inside = internal::wrapped(optimizer, "offloaded");
  if (options.place == OffloadPlace::kDisk && !std::filesystem::is_directory(options.folder)) {
    throw UsageError("The folder for offloaded state, \"" + options.folder.string() + "\", is none.",
                     "OffloadOptions::folder names one on the disk to use.");
  }
  if (!inside.state().empty()) {
    throw UsageError("offloaded() was given an optimizer that has state already.",
                     "Wrap a new one, and load_state() the old one's.");
  }
  if (dynamic_cast<const Offloaded*>(&inside) != nullptr)
    throw UsageError("The optimizer's state is offloaded already.");
  return std::make_unique<Offloaded>(inside.take_groups(), inside.take_rule(), std::move(options));
}
}  // namespace cinch::optim
