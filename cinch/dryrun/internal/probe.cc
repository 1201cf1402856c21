#include "cinch/dryrun/internal/probe.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cinch/dryrun/internal/call_values.h"
#include "cinch/dryrun/internal/fake.h"
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

void append(std::string& key, std::int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); }

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

std::string signature(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  std::string key = op.operator_name().name + '.' + op.operator_name().overload_name + '|';
  append(key, at::get_num_threads());
  std::map<const void*, std::int64_t> storages;
  for (const auto& value : arguments) append(key, value, storages);
  return key;
}

/// Its layout over a storage of its own.
at::Tensor meta_of(const at::Tensor& tensor) {
  return make_meta(tensor, make_meta_storage(0));
}

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
      script.places.push_back(place ? *place : KernelScript::Place{KernelScript::Place::Kind::kAllocation, capture.index_of(tensor)});
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
}  // namespace

const KernelScript& probe(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  static std::mutex lock;
  static auto* known = new std::unordered_map<std::string, KernelScript>;
  const auto policy = value_dependence(op, arguments).policy;
  if (policy && !has_fake(arguments[policy->argument])) {  // Exact, and of these values alone.
    thread_local KernelScript script;
    return script = run(op, arguments, policy);
  }
  auto key = signature(op, arguments);
  std::lock_guard guard(lock);
  if (auto it = known->find(key); it != known->end()) return it->second;
  return known->emplace(std::move(key), run(op, arguments, policy)).first->second;
}

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
