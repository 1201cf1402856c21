#include "cinch/dryrun/internal/script_of_rule.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <unordered_map>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/call_values.h"
#include "cinch/record/recorder.h"

namespace cinch::dryrun::internal {
namespace {

std::size_t written_argument(const c10::OperatorHandle& op) {
  const auto& all = op.schema().arguments();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].alias_info() != nullptr && all[i].alias_info()->isWrite()) return i;
  throw UsageError("op " + c10::toString(op.operator_name()) + " writes no argument: its rule cannot be in place");
}

/// Factories say where in an argument.
void set_meta_device(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& all = op.schema().arguments();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name() == "device") stack[i] = c10::Device(c10::DeviceType::Meta);
}

torch::jit::Stack layouts(const OpRule& rule, const OpArguments& arguments, const Twins& twins) {
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const record::Muted muted;  // Numbers become small tensors on the way: none of the program's.
  if (rule.kind == OpRule::Kind::kInPlace) return {twins.stack()[written_argument(arguments.op())]};
  torch::jit::Stack stack;
  if (rule.shape) {
    auto tensors = rule.shape(arguments);
    auto next = tensors.begin();
    for (const auto& result : arguments.op().schema().returns())
      if (*result.type() == *c10::IntType::get()) stack.emplace_back(0);  // A length that backward gets anew.
      else if (next != tensors.end()) stack.emplace_back(std::move(*next++));
    return stack;
  }
  stack = twins.stack();
  if (twins.twins().empty()) set_meta_device(arguments.op(), stack);
  arguments.op().redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  return stack;
}

class ScriptWriter {
 public:
  std::size_t allocate(Bytes bytes) {
    script_.steps.push_back({true, next_, bytes});
    return next_++;
  }
  void allocate_scratch(const std::vector<Bytes>& all) {
    for (const auto bytes : all)
      if (bytes > Bytes()) scratch_.push_back({false, allocate(bytes), bytes});
  }
  void place(const at::Tensor& output, const Twins& twins) {
    using Kind = KernelScript::Place::Kind;
    if (const auto place = twins.place_of(output)) return script_.places.push_back(*place);
    const auto bytes = Bytes(static_cast<std::int64_t>(output.storage().nbytes()));
    auto [slot, fresh] = outputs_.try_emplace(output.storage().unsafeGetStorageImpl(), KernelScript::kNothing);
    if (fresh && bytes > Bytes()) slot->second = allocate(bytes);
    script_.places.push_back({Kind::kAllocation, slot->second});
  }
  /// Shapes that the op gave its arguments in place (squeeze_, resize_, out=).
  void relay(const Twins& twins) {
    for (std::size_t i = 0; i < twins.twins().size(); ++i) {
      const auto &twin = twins.twins()[i], &original = twins.originals()[i];
      const auto bytes = twin.storage().nbytes();
      const bool grows = bytes > original.storage().nbytes();
      if (!grows && twin.sizes() == original.sizes() && twin.strides() == original.strides() &&
          twin.storage_offset() == original.storage_offset())
        continue;
      script_.relaid.push_back({i, twin, grows ? allocate(Bytes(static_cast<std::int64_t>(bytes))) : KernelScript::kNothing});
    }
  }
  KernelScript finish(std::vector<c10::IValue> outputs) {
    script_.steps.insert(script_.steps.end(), scratch_.begin(), scratch_.end());
    script_.outputs = std::move(outputs);
    return std::move(script_);
  }

 private:
  KernelScript script_;
  std::vector<KernelScript::Step> scratch_;  ///< Their frees.
  std::unordered_map<const c10::StorageImpl*, std::size_t> outputs_;
  std::size_t next_ = 0;
};
}  // namespace

KernelScript script_of_rule(const OpRule& rule, const OpArguments& arguments, const Twins& twins) {
  auto outputs = layouts(rule, arguments, twins);
  ScriptWriter writer;
  const auto& scratch = arguments.on_cuda() ? rule.cuda_scratch : rule.scratch;
  if (rule.scratch_before && !arguments.on_cuda()) writer.allocate_scratch(rule.scratch_before(arguments));
  writer.relay(twins);
  for (const auto& value : outputs) for_each_tensor(value, [&](const at::Tensor& tensor) { writer.place(tensor, twins); });
  if (scratch) writer.allocate_scratch(scratch(arguments));
  return writer.finish(std::move(outputs));
}
}  // namespace cinch::dryrun::internal
