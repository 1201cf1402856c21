#include "cinch/techniques/internal/tensor_watch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/function.h>

namespace cinch::techniques::internal {
namespace {

/// Those that live, under a lock; a callback while there are any.
struct Watches {
  std::mutex lock;
  std::vector<TensorWatch*> all;
  at::CallbackHandle callback = 0;
};
Watches& watches() {
  static auto* all = new Watches;  // threads of devices outlive statics
  return *all;
}

thread_local int depth = 0;

/// Between the begin and the end of an op: the time of each watch when it began.
struct Began : at::ObserverContext {
  std::vector<std::pair<TensorWatch*, std::uint64_t>> at;
};

std::unique_ptr<at::ObserverContext> started(const at::RecordFunction& call) {
  const at::DisableRecordFunctionGuard unseen;
  auto began = std::make_unique<Began>();
  const std::lock_guard guard(watches().lock);
  for (auto* watch : watches().all) {
    watch->on_call(call, depth == 0);
    began->at.emplace_back(watch, watch->clock());
  }
  ++depth;
  return began;
}

void ended(const at::RecordFunction& call, at::ObserverContext* context) {
  const at::DisableRecordFunctionGuard unseen;
  --depth;
  const std::lock_guard guard(watches().lock);
  const auto& all = watches().all;
  for (const auto& [watch, began_at] : static_cast<Began*>(context)->at) {
    if (std::find(all.begin(), all.end(), watch) != all.end()) watch->on_return(call, began_at);
  }
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().has_storage()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined() && tensor.has_storage()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, visit);
  }
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

c10::weak_intrusive_ptr<c10::StorageImpl> weak_storage(const at::Tensor& tensor) {
  return c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_of(tensor)));
}

c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl> weak_tensor(const at::Tensor& tensor) {
  return c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>(tensor.getIntrusivePtr());
}
}  // namespace

TensorWatch::TensorWatch() {
  const std::lock_guard guard(watches().lock);
  auto& [lock, all, callback] = watches();
  all.push_back(this);
  if (all.size() > 1) return;
  callback = at::addGlobalCallback(at::RecordFunctionCallback(&started, &ended)
                                       .needsInputs(true)
                                       .needsOutputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
}

TensorWatch::~TensorWatch() {
  const std::lock_guard guard(watches().lock);
  auto& [lock, all, callback] = watches();
  std::erase(all, this);
  if (all.empty()) at::removeCallback(callback);
}

std::uint64_t TensorWatch::clock() const {
  const std::lock_guard guard(lock_);
  return clock_;
}

void TensorWatch::on_call(const at::RecordFunction& call, bool outermost) {
  const std::lock_guard guard(lock_);
  for (const auto& value : call.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!outermost) return;  // Within an op, its own temporaries are arguments too.
      if (!made_.contains(storage_of(tensor))) older_.try_emplace(storage_of(tensor), weak_storage(tensor));
      const auto* impl = tensor.unsafeGetTensorImpl();
      if (!tensors_.contains(impl)) tensors_.emplace(impl, SeenTensor{weak_tensor(tensor), {}});
    });
  }
}

void TensorWatch::on_return(const at::RecordFunction& call, std::uint64_t began_at) {
  const std::lock_guard guard(lock_);
  for (const auto& value : call.outputs())
    for_each_tensor(value, [&](const at::Tensor& tensor) { note_result(tensor, call, began_at); });
  if (tensors_.size() > sweep_at_) forget_the_dead();
}

void TensorWatch::note_result(const at::Tensor& tensor, const at::RecordFunction& call, std::uint64_t began_at) {
  const auto* storage = storage_of(tensor);
  const auto* impl = tensor.unsafeGetTensorImpl();
  tensors_.insert_or_assign(impl, SeenTensor{weak_tensor(tensor), call.name()});
  if (older_.contains(storage)) return;
  const auto [found, fresh] = made_.try_emplace(storage, weak_storage(tensor));
  auto& made = found->second;
  if (!fresh && made.order < began_at) return;  // a view of it, or a change in place
  if (fresh) {
    made.order = clock_++;
    const auto context = trace::current();
    if (context.module != nullptr) made.module = *context.module;
    made.phase = context.phase;
    made.step = context.step;
    if (const auto node = torch::autograd::get_current_node()) made.node = node->name();
  }
  made.op = call.name();
  made.sizes = tensor.sizes().vec();
  made.dtype = tensor.scalar_type();
}

void TensorWatch::forget_the_dead() {
  const auto dead = [](const auto& weak) { return weak.expired(); };
  std::erase_if(made_, [&](const auto& entry) { return dead(entry.second.storage); });
  std::erase_if(older_, [&](const auto& entry) { return dead(entry.second); });
  std::erase_if(tensors_, [&](const auto& entry) { return dead(entry.second.tensor); });
  sweep_at_ = std::max<std::size_t>(4096, 2 * tensors_.size());
}

std::vector<MadeStorage> TensorWatch::alive() const {
  std::vector<MadeStorage> result;
  const std::lock_guard guard(lock_);
  for (const auto& [storage, made] : made_)
    if (!made.storage.expired()) result.push_back(made);
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
  return result;
}

const MadeStorage* TensorWatch::find(const c10::StorageImpl* storage) const {
  const std::lock_guard guard(lock_);
  const auto found = made_.find(storage);
  return found == made_.end() ? nullptr : &found->second;
}

std::string TensorWatch::last_op(const at::TensorImpl* tensor) const {
  const std::lock_guard guard(lock_);
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? std::string() : found->second.op;
}

std::vector<at::Tensor> TensorWatch::tensors() const {
  std::vector<at::Tensor> result;
  const std::lock_guard guard(lock_);
  for (const auto& [impl, seen] : tensors_) {
    if (auto strong = seen.tensor.lock(); strong.defined()) result.emplace_back(std::move(strong));
  }
  return result;
}
}  // namespace cinch::techniques::internal
