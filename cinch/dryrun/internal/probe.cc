#include "cinch/dryrun/internal/probe.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cinch/dryrun/dry_run.h"
#include "cinch/dryrun/internal/call_values.h"
#include "cinch/dryrun/internal/fake.h"
#include "cinch/dryrun/internal/probe_cache.h"
#include "cinch/dryrun/internal/twins.h"
#include "cinch/dryrun/internal/unknown_values.h"
#include "cinch/record/listener.h"

namespace cinch::dryrun::internal {
namespace {
using record::AllocationTag;

/// Listens while a kernel runs.
class Capture final : public record::Listener {
 public:
  Capture() : before_(record::exchange_listener(this)) {}
  ~Capture() override { record::exchange_listener(before_); }
  void on_allocate(Bytes bytes, AllocationTag& tag) override {
    tag.id = trace::AllocationId{static_cast<std::uint32_t>(allocations_)};
    steps_.push_back({true, allocations_++, bytes});
  }
  void on_free(const AllocationTag& tag) noexcept override {
    steps_.push_back({false, static_cast<std::size_t>(tag.id), Bytes(tag.bytes)});
  }
  const std::vector<KernelScript::Step>& steps() const { return steps_; }
  std::size_t index_of(const at::Tensor& tensor) const {
    const auto& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
    const auto* tag = record::tag_of(data.get_context(), data.get_deleter());
    return tag != nullptr && tag->listener == serial() ? static_cast<std::size_t>(tag->id) : KernelScript::kNothing;
  }

 private:
  std::vector<KernelScript::Step> steps_;
  std::size_t allocations_ = 0;
  record::Listener* before_;
};

void append(std::string& key, std::int64_t number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append(std::string& key, const c10::IValue& value, std::map<const void*, std::int64_t>& storages) {
  if (value.isTensor() && value.toTensor().defined()) {
    const auto& tensor = value.toTensor();
    append(key, static_cast<std::int64_t>(tensor.scalar_type()));
    append(key, tensor.dim());
    for (auto size : tensor.sizes()) append(key, size);
    for (auto stride : tensor.strides()) append(key, stride);
    append(key, tensor.storage_offset());
    append(key, tensor.unsafeGetTensorImpl()->is_wrapped_number());
    const auto alias = static_cast<std::int64_t>(storages.size());
    append(key, storages.try_emplace(tensor.storage().unsafeGetStorageImpl(), alias).first->second);
  } else if (value.isTensorList() || value.isList()) {
    append(key, -7);
    for (const c10::IValue& element : value.toListRef()) append(key, element, storages);
    append(key, -8);
  } else if (value.isGenerator()) {
    key += 'g';
  } else {
    std::ostringstream text;
    text << value;
    key += text.str();
    key += '|';
  }
}

/// What kernels look at beside their arguments.
void append_settings(std::string& key) {
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  const auto& context = at::globalContext();
  const bool flags[] = {context.userEnabledMkldnn(),     context.deterministicMkldnn(),
                        context.userEnabledNNPACK(),     context.deterministicAlgorithms(),
                        context.allowFP16ReductionCPU(), at::autocast::is_autocast_enabled(at::kCPU)};
  for (const bool flag : flags) key += flag ? '1' : '0';
  for (const auto op : {Op::CONV, Op::RNN, Op::MATMUL})
    append(key, static_cast<std::int64_t>(context.float32Precision(Backend::MKLDNN, op)));
  append(key, static_cast<std::int64_t>(at::autocast::get_autocast_dtype(at::kCPU)));
  append(key, static_cast<std::int64_t>(c10::get_default_dtype_as_scalartype()));
  append(key, at::get_num_threads());
}

std::string signature(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                      const std::optional<ValuePolicy>& policy) {
  std::string key = op.operator_name().name + '.' + op.operator_name().overload_name + '|';
  append_settings(key);
  if (policy) append(key, static_cast<std::int64_t>(policy->bound.value_or(Fill::kZeros)));
  std::map<const void*, std::int64_t> storages;
  for (const auto& value : arguments) append(key, value, storages);
  return key;
}

/// Its layout over a storage of its own.
at::Tensor meta_of(const at::Tensor& tensor) { return make_meta(tensor, make_meta_storage(0)); }

bool same_layout(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes() == right.sizes() && left.strides() == right.strides() &&
         left.storage_offset() == right.storage_offset();
}

KernelScript run(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                 const std::optional<ValuePolicy>& policy, Fill fill) {
  Twins twins(Twins::Kind::kStandIn, arguments);
  torch::jit::Stack stack = twins.stack();
  KernelScript script;
  c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  if (fill != Fill::kZeros) fill_all_twins(twins, fill);
  if (policy) fill_twins(twins, arguments, policy->argument, policy->bound.value_or(Fill::kZeros));
  Capture capture;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  script.steps = capture.steps();  // before the outputs die
  for (const auto& value : stack)
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const auto place = twins.place_of(tensor);
      script.places.push_back(
          place ? *place : KernelScript::Place{KernelScript::Place::Kind::kAllocation, capture.index_of(tensor)});
    });
  for (std::size_t i = 0; i < twins.twins().size(); ++i) {
    const auto& twin = twins.twins()[i];
    const auto grown = capture.index_of(twin);
    if (grown == KernelScript::kNothing && same_layout(twin, twins.originals()[i])) continue;
    script.relaid.push_back({i, meta_of(twin), grown});
  }
  for (const auto& value : stack)  // keep layouts, let the memory go
    script.outputs.push_back(map_tensors(value, meta_of));
  return script;
}

/// Zeros are in order for most kernels; probabilities must not sum to 0, matrices not be singular.
KernelScript run(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                 const std::optional<ValuePolicy>& policy) {
  try {
    return run(op, arguments, policy, Fill::kZeros);
  } catch (const c10::Error&) {
    for (const auto fill : {Fill::kOnes, Fill::kIdentity}) {
      try {
        return run(op, arguments, policy, fill);
      } catch (const c10::Error&) {  // The first error is the one to tell: the others may be of the values alone.
      }
    }
    throw;
  }
}

bool all_fake(const c10::IValue& argument) {
  bool any = false, all = true;
  for_each_tensor(argument, [&](const at::Tensor& tensor) {
    any = true;
    all = all && is_fake(tensor);
  });
  return any && all;
}

/// Of the process, for good.
struct Known {
  std::mutex lock;
  std::unordered_map<std::string, KernelScript> scripts;
  std::optional<ProbeCache> cache;  ///< Once something was asked.
  std::atomic<std::size_t> kernels_run = 0;
};
Known& known() {
  static auto* known = new Known;
  return *known;
}
}  // namespace

const KernelScript& probe(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  auto& all = known();
  const auto policy = value_dependence(op, arguments).policy;
  if (policy && !all_fake(arguments[policy->argument])) {  // Of these values alone.
    thread_local KernelScript script;
    ++all.kernels_run;
    return script = run(op, arguments, policy);
  }
  auto key = signature(op, arguments, policy);
  std::lock_guard guard(all.lock);
  if (auto it = all.scripts.find(key); it != all.scripts.end()) return it->second;
  if (!all.cache) all.cache.emplace();
  auto script = all.cache->find(op, arguments, key);
  if (!script) {
    ++all.kernels_run;
    script = run(op, arguments, policy);
    all.cache->keep(op, key, *script);
  }
  return all.scripts.emplace(std::move(key), std::move(*script)).first->second;
}

void save_probes() noexcept {
  auto& all = known();
  std::lock_guard guard(all.lock);
  if (all.cache) all.cache->save();
}

void forget_probes() {
  auto& all = known();
  std::lock_guard guard(all.lock);
  all.scripts.clear();
  all.cache.reset();
}

std::size_t kernels_probed() { return known().kernels_run; }

Bytes KernelScript::peak() const {
  Bytes live, peak;
  for (const auto& step : steps) {
    live = step.allocates ? live + step.bytes : live - step.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

KernelScript without_scratch(const KernelScript& script) {
  std::map<std::size_t, std::size_t> kept;  // Old index → new.
  for (const auto& place : script.places)
    if (place.kind == KernelScript::Place::Kind::kAllocation && place.index != KernelScript::kNothing)
      kept.try_emplace(place.index, 0);
  for (const auto& relaid : script.relaid)
    if (relaid.allocation != KernelScript::kNothing) kept.try_emplace(relaid.allocation, 0);
  KernelScript result;
  for (const auto& step : script.steps)
    if (const auto found = kept.find(step.index); step.allocates && found != kept.end()) {
      found->second = result.steps.size();
      result.steps.push_back({true, found->second, step.bytes});
    }
  result.outputs = script.outputs;
  result.places = script.places;
  result.relaid = script.relaid;
  for (auto& relaid : result.relaid)
    if (relaid.allocation != KernelScript::kNothing) relaid.allocation = kept.at(relaid.allocation);
  for (auto& place : result.places)
    if (place.kind == KernelScript::Place::Kind::kAllocation && place.index != KernelScript::kNothing)
      place.index = kept.at(place.index);
  return result;
}

Bytes KernelScript::kept() const {
  Bytes live;
  for (const auto& step : steps) live = step.allocates ? live + step.bytes : live - step.bytes;
  return live;
}
}  // namespace cinch::dryrun::internal
