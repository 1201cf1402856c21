#include "cinch/techniques/internal/op_log.h"

#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "cinch/techniques/internal/kept_outputs.h"

namespace cinch::techniques::internal {
namespace {

thread_local OpLog* current = nullptr;

bool leaves_memory_as_it_was(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") || name.starts_with("aten::resize");
}

bool gives_views(const at::RecordFunction& call) {
  const auto op = call.operator_name();
  if (!op) return true;
  const auto handle = c10::Dispatcher::singleton().findSchema(*op);
  if (!handle) return true;
  for (const auto& result : handle->schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

/// FNV-1a, eight bytes at a time.
std::uint64_t mix(std::uint64_t hash, const void* data, std::size_t bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3u;
  const auto* next = static_cast<const unsigned char*>(data);
  for (; bytes >= 8; bytes -= 8, next += 8) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, next, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  }
  for (; bytes > 0; --bytes, ++next) hash = (hash ^ *next) * kPrime;
  return hash;
}

std::unique_ptr<at::ObserverContext> started(const at::RecordFunction& call) {
  if (current != nullptr) current->on_call(call);
  return nullptr;
}

void ended(const at::RecordFunction& call, at::ObserverContext* /*context*/) {
  if (current != nullptr) current->on_return(call);
}

}  // namespace

OpLog::OpLog(bool values, at::ArrayRef<at::Tensor> updated) : values_(values) {
  for (const auto& tensor : updated) updated_.insert(tensor.storage().unsafeGetStorageImpl());
}

std::uint64_t OpLog::checksum(const std::vector<c10::IValue>& outputs) const {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto& output : outputs) {
    if (!output.isTensor()) continue;
    const auto& tensor = output.toTensor();
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.key_set().has(c10::DispatchKey::Fake)) continue;
    if (updated_.count(tensor.storage().unsafeGetStorageImpl()) != 0) continue;
    const auto plain = tensor.detach().cpu().contiguous();
    hash = mix(hash, plain.const_data_ptr(), plain.nbytes());
  }
  return hash;
}

void OpLog::begin_second_run() {
  forward_ = false;
  count_ = 0;
  depth_ = 0;
  difference_.reset();
}

void OpLog::on_call(const at::RecordFunction& call) {
  if (depth_++ > 0) return;
  if (forward_) {
    calls_.push_back({call.name(), std::nullopt});
    return;
  }
  const auto index = count_++;
  if (difference_) return;
  const std::string was = index < calls_.size() ? calls_[index].name : "the end";
  if (was != call.name()) difference_ = "op " + std::to_string(index) + " was " + was + ", now " + call.name();
}

void OpLog::on_return(const at::RecordFunction& call) {
  if (--depth_ > 0 || !values_ || difference_ || call.outputs().empty()) return;  // no outputs: it threw
  if (leaves_memory_as_it_was(call.name()) || gives_views(call)) return;
  const at::DisableRecordFunctionGuard unseen;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const NoKeeping unkept;
  const auto sum = checksum(call.outputs());
  if (forward_) {
    calls_.back().checksum = sum;
  } else if (const auto& first = calls_[count_ - 1]; first.checksum && *first.checksum != sum) {
    difference_ = "op " + std::to_string(count_ - 1) + ", " + first.name + ", gave other values than before";
  }
}

OpLogScope::OpLogScope(OpLog* log) {
  if (log == nullptr) return;
  before_ = std::exchange(current, log);
  enabled_.emplace(true);
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&started, &ended).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
}

OpLogScope::~OpLogScope() {
  if (callback_ == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(callback_);
  current = before_;
}

}  // namespace cinch::techniques::internal
