#include "cinch/dryrun/dry_run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>

#include "cinch/dryrun/internal/claim.h"
#include "cinch/dryrun/internal/fake.h"
#include "cinch/dryrun/internal/probe.h"
#include "cinch/dryrun/internal/state.h"

namespace cinch::dryrun {
namespace {
std::atomic<DryRun::State*> g_active{nullptr};

at::Tensor default_generator_state() {
  record::Muted muted;
  return at::detail::getDefaultCPUGenerator().get_state();
}

trace::TraceHeader header(const device::DeviceSpec& device) {
  auto header = record::make_header(trace::TraceHeader::Source::kDryRun, at::get_num_threads());
  header.device_name = device.name;
  return header;
}

/// Parameters that a Session labelled by name keep it.
bool labelled(const at::Tensor& tensor) {
  const auto& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  const auto* tag = record::tag_of(data.get_context(), data.get_deleter());
  return tag != nullptr && tag->category == trace::Category::kParameter;
}
}  // namespace

DryRun::State* DryRun::State::active() noexcept { return g_active; }

DryRun::State::State(trace::Sink& sink, const device::DeviceSpec& target)
    : device(target),
      producer(sink, header(target), {}),
      generator_state(default_generator_state()),
      intercept(c10::DispatchKeySet(c10::DispatchKey::Fake)) {
  internal::install_fallback();
  producer.hears_real_memory = !on_cuda();
  internal::prepare_cuda();
  if (on_cuda()) internal::claim_cuda(device);
  g_active = this;
}

DryRun::State::~State() {
  cublas_workspaces.clear();
  g_active = nullptr;
  internal::save_probes();
  internal::release_cuda();
  for (auto& [impl, leaf] : leaves)
    if (leaf.tensor.grad().defined() && is_fake(leaf.tensor.grad())) leaf.tensor.mutable_grad() = leaf.grad;
  record::Muted muted;
  c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(generator_state);
}

c10::DataPtr DryRun::State::allocate(Bytes bytes, c10::Device where) {
  if (where.is_cuda()) where.set_index(0);  // The one there is; a program need not say which.
  return internal::allocate_fake(bytes, where, where.is_cuda() == on_cuda());
}

void DryRun::State::use_cublas() {
  auto [slot, fresh] = cublas_workspaces.try_emplace(std::this_thread::get_id());
  if (!fresh || device.cublas_workspace == Bytes()) return;
  slot->second = allocate(device.cublas_workspace, c10::Device(c10::DeviceType::CUDA, 0));
  producer.label(*static_cast<record::AllocationTag*>(slot->second.get_context()), trace::Category::kTemporary,
                 "cuBLAS workspace");
}

void DryRun::State::label_gradients() {
  for (auto& [impl, weak] : parameters)
    if (auto alive = weak.lock())
      record::label(at::Tensor(std::move(alive)).grad(), trace::Category::kGradient, "");
}

void DryRun::State::meet(const at::Tensor& tensor) {
  // Not what backward unpacks, nor a recomputation's inputs: leaves too, in a way.
  const bool parameter =
      at::GradMode::is_enabled() && tensor.requires_grad() && tensor.is_leaf() && !trace::current().recompute;
  const bool made_here = is_fake(tensor) || record::allocation_of(tensor);
  if (parameter) {
    parameters.try_emplace(tensor.unsafeGetTensorImpl(), tensor.getIntrusivePtr());
    // Each time: it may have moved to another device since.
    if (made_here && !labelled(tensor)) record::label(tensor, trace::Category::kParameter, "");
  }
  if (made_here || (on_cuda() && tensor.is_cpu())) return;
  if (parameter) leaves.try_emplace(tensor.unsafeGetTensorImpl(), Leaf{tensor, tensor.grad()});
  const auto* impl = tensor.storage().unsafeGetStorageImpl();
  if (impl->nbytes() == 0 || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
  auto [slot, fresh] = existing.try_emplace(impl, Existing{tensor.storage(), {}});
  if (!fresh) return;
  auto& tag = slot->second.tag;
  record::tell_allocated(Bytes(static_cast<std::int64_t>(impl->nbytes())), tag);
  producer.label(tag, tensor.requires_grad() ? trace::Category::kParameter : trace::Category::kInput, "");
  producer.tensor(tag.id, internal::info_of(tensor));
}

DryRun::DryRun(trace::Sink& sink, const device::DeviceSpec& device) : state_(new State(sink, device)) {}
DryRun::~DryRun() = default;

void DryRun::label_gradients() { state_->label_gradients(); }

std::vector<trace::AllocationId> DryRun::existing() const {
  std::vector<trace::AllocationId> ids;
  for (const auto& [impl, existing] : state_->existing) ids.push_back(existing.tag.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<std::string> DryRun::bounded() const { return {state_->bounded.begin(), state_->bounded.end()}; }
std::vector<std::string> DryRun::by_shape_alone() const {
  return {state_->by_shape_alone.begin(), state_->by_shape_alone.end()};
}

Bytes fake_bytes_alive() noexcept { return internal::fake_bytes_alive(); }

bool is_fake(const at::Tensor& tensor) noexcept {
  return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Fake);
}
}  // namespace cinch::dryrun
