#include "cinch/optim/offload.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/rule_optimizer.h"
#include "cinch/optim/internal/state_store.h"
#include "cinch/record/recorder.h"

namespace cinch::optim {
namespace {
using internal::StateStore;

constexpr std::size_t kAlignment = 64;

/// Where one tensor of state lies.
struct Placed {
  std::size_t offset = 0;  ///< In its parameter's part.
  std::vector<std::int64_t> sizes, strides;
  at::ScalarType dtype = at::kFloat;
};
/// One parameter's part of the store.
struct Part {
  std::size_t offset = 0, bytes = 0;
  std::vector<Placed> tensors;
};

/// Then there are no bytes to move, and no room is taken for them.
bool in_dry_run() { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake); }

class Offloaded final : public internal::RuleOptimizer {
 public:
  Offloaded(std::vector<ParameterGroup> groups, std::unique_ptr<internal::Rule> rule, OffloadOptions options)
      : RuleOptimizer(std::move(groups), std::move(rule)), options_(std::move(options)), parts_(state_.size()) {
    internal::for_each_parameter(groups_, [](const ParameterGroup&, const NamedParameter& parameter, std::size_t) {
      internal::check_on_cpu(parameter, "offloaded state");
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
    if (parts_[index].tensors.empty()) place(all_jobs());  // One room for all: nobody says which will have gradients.
    run({{&group, &parameter, index}});
  }

  void load_state(const std::map<std::string, at::Tensor>& state) override {
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

  /// Gives those that have none their parts of a store, at their first values. All or nothing.
  void place(const std::vector<Job>& jobs) {
    std::vector<Part> parts;
    std::vector<std::size_t> fresh;
    std::size_t bytes = 0;
    for (const auto& job : jobs) {
      if (!parts_[job.index].tensors.empty()) continue;
      fresh.push_back(job.index);
      parts.push_back(part_for(*job.parameter, bytes));
      bytes += parts.back().bytes;
    }
    if (fresh.empty()) return;
    const bool real = !in_dry_run();
    auto store = real ? std::make_shared<StateStore>(
                            bytes, options_.place == OffloadPlace::kDisk ? options_.folder : std::filesystem::path())
                      : nullptr;
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

  Part part_for(const NamedParameter& parameter, std::size_t offset) const {
    Part part;
    part.offset = offset;
    for (const auto& key : rule().keys(rule().kind_of(parameter))) {
      const auto layout = key.make(parameter.tensor);
      part.tensors.push_back({part.bytes, layout.sizes().vec(), layout.strides().vec(), layout.scalar_type()});
      part.bytes += (layout.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
    }
    part.bytes = std::max(part.bytes, kAlignment);
    return part;
  }

  void fill(const NamedParameter& parameter, const Part& part, const std::shared_ptr<StateStore>& store) const {
    const auto& keys = rule().keys(rule().kind_of(parameter));
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const auto first = keys[k].make(parameter.tensor);
      if (!store) continue;
      store->write(part.offset + part.tensors[k].offset, static_cast<const char*>(first.const_data_ptr()),
                   first.nbytes());
    }
  }

  /// Of the store itself, for state() and load_state().
  static ParameterState views(const Part& part, const std::shared_ptr<StateStore>& store) {
    ParameterState state;
    for (const auto& placed : part.tensors) {
      state.push_back(at::from_blob(
          store->data() + part.offset + placed.offset, placed.sizes, placed.strides, [store](void*) {},
          at::TensorOptions(placed.dtype)));
    }
    return state;
  }

  /// A buffer's bytes as the tensors of a part.
  static ParameterState views(const Part& part, const at::Tensor& buffer) {
    ParameterState state;
    for (const auto& placed : part.tensors) {
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

  void read(std::size_t index, const at::Tensor& buffer) const {
    if (stores_.at(index) == nullptr) return;
    stores_.at(index)->read(parts_[index].offset, static_cast<char*>(buffer.mutable_data_ptr()), parts_[index].bytes);
  }
  void write(std::size_t index, const at::Tensor& buffer) const {
    if (stores_.at(index) == nullptr) return;
    stores_.at(index)->write(parts_[index].offset, static_cast<const char*>(buffer.const_data_ptr()),
                             parts_[index].bytes);
  }

  /// Two buffers: in one a parameter is stepped; meanwhile the other one's content is written back, then the next read.
  void run(const std::vector<Job>& jobs) {
    std::size_t largest = 0;
    for (const auto& job : jobs) largest = std::max(largest, parts_[job.index].bytes);
    const auto options = jobs.front().parameter->tensor.options().dtype(at::kByte).requires_grad(false);
    std::vector<at::Tensor> buffers;
    for (std::size_t i = 0; i < std::min<std::size_t>(jobs.size(), 2); ++i) {
      buffers.push_back(at::empty({static_cast<std::int64_t>(largest)}, options));
      record::label(buffers.back(), trace::Category::kOptimizerState, "offloaded state, brought in");
    }
    // Until the first weight changes, a failure leaves all as it was.
    read(jobs.front().index, buffers.front());
    broken_ = true;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto& here = buffers[i % 2];
      const auto& there = buffers[jobs.size() > 1 ? (i + 1) % 2 : 0];
      auto moved = std::async(std::launch::async, [&, i] {
        if (i > 0) write(jobs[i - 1].index, there);
        if (i + 1 < jobs.size()) read(jobs[i + 1].index, there);
      });
      auto tensors = gather_one(*jobs[i].parameter, views(parts_[jobs[i].index], here));
      rule().prepare(tensors);
      rule().update(*jobs[i].group, tensors);
      moved.get();
    }
    write(jobs.back().index, buffers[(jobs.size() - 1) % 2]);
    broken_ = false;
  }

  const OffloadOptions options_;
  std::vector<Part> parts_;                                    ///< By parameter; without tensors: not placed yet.
  std::map<std::size_t, std::shared_ptr<StateStore>> stores_;  ///< By parameter; no store in a dry run.
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
