// The kernel behind DispatchKey::Fake: every op of a dry run arrives here, below autograd and above the backends.
//
//   all arguments small and real      → run the kernel: scalars keep their values
//   the rule says decompose           → run the CPU kernel with fake arguments; its inner ops come here
//   else                              → a KernelScript from the rule or a probe, played as events; outputs are fake
#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/call_values.h"
#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/dryrun/internal/factories.h"
#include "cinch/dryrun/internal/fake.h"
#include "cinch/dryrun/internal/probe.h"
#include "cinch/dryrun/internal/script_of_rule.h"
#include "cinch/dryrun/internal/state.h"
#include "cinch/dryrun/internal/twins.h"
#include "cinch/dryrun/op_rules.h"

namespace cinch::dryrun::internal {
namespace {
const c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

/// What never changes of an op.
struct OpInfo {
  std::string name;             ///< "aten::add.Tensor" without the overload: as events say it.
  const OpRule* rule = nullptr;
  bool composite = false;       ///< No kernel of its own: always decomposes.
  std::vector<bool> writes;     ///< By argument.
  std::size_t device_argument = static_cast<std::size_t>(-1);  ///< Of factories and conversions.
};

const OpInfo& info_of_op(const c10::OperatorHandle& op) {
  static std::mutex lock;
  static auto* known = new std::unordered_map<const void*, OpInfo>;
  std::lock_guard guard(lock);
  auto [slot, fresh] = known->try_emplace(&op.schema());
  auto& info = slot->second;
  if (fresh) {
    info.name = op.operator_name().name;
    info.composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                     !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
    for (const auto& argument : op.schema().arguments()) {
      if (argument.name() == "device") info.device_argument = info.writes.size();
      info.writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    }
  }
  if (info.rule == nullptr) info.rule = find_rule(op.operator_name());  // a user may add one later
  return info;
}

[[noreturn]] void throw_unsupported(DryRun::State& state, const c10::OperatorHandle& op) {
  const auto* module = state.producer.context().module;
  throw UnsupportedError("no rule for op " + c10::toString(op.operator_name()) + " in " +
                             (module && !module->empty() ? "module " + *module : std::string("the root module")) +
                             ": its memory cannot be predicted",
                         "add one with cinch::dryrun::add_rule(), see cinch/dryrun/op_rules.h; an op whose result's shape "
                         "depends on values cannot have one");
}

bool runs_for_real(const OpInfo& info, const torch::jit::Stack& arguments) {
  bool any = false, all = true;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      any = true;
      all = all && !is_fake(tensor) && bytes_of(tensor) <= Bytes(kSmall);
      if (info.writes[i]) all = all && record::allocation_of(tensor).has_value();
    });
  return any && all;
}

trace::OpCall cost_of(const OpInfo& info, const OpArguments& arguments, const KernelScript& script) {
  trace::OpCall call;
  bool typed = false;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      const auto bytes = std::min(bytes_of(tensor), Bytes(static_cast<std::int64_t>(tensor.storage().nbytes())));
      call.read += bytes;
      if (info.writes[i]) call.written += bytes;
      if (!typed && at::isFloatingType(tensor.scalar_type())) {
        call.dtype = dtype_of(tensor.scalar_type());
        typed = true;
      }
    });
  call.written += script.kept();
  if (info.rule->flops) call.flops = info.rule->flops(arguments);
  return call;
}

bool moves_nothing(const OpInfo& info, const KernelScript& script) {
  return script.steps.empty() && std::find(info.writes.begin(), info.writes.end(), true) == info.writes.end();
}

/// Where a call's results are: what it is told, else with its arguments (a number may be on the host).
c10::Device device_of(const OpInfo& info, const torch::jit::Stack& arguments) {
  c10::Device device(c10::DeviceType::CPU);
  if (info.device_argument < arguments.size() && arguments[info.device_argument].isDevice())
    return arguments[info.device_argument].toDevice();
  for (const auto& value : arguments)
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) device = tensor.device();
    });
  return device;
}

/// Plays the events of a call and gives what it returns.
std::vector<c10::IValue> play(DryRun::State& state, const KernelScript& script, const std::vector<at::Tensor>& originals,
                              c10::Device where) {
  std::vector<c10::DataPtr> memory;
  std::vector<Bytes> sizes;
  for (const auto& step : script.steps) {
    if (step.allocates) {
      memory.push_back(state.allocate(step.bytes, where));
      sizes.push_back(step.bytes);
    } else {
      memory[step.index].clear();
    }
  }
  std::unordered_map<std::size_t, c10::Storage> storages;
  std::size_t next = 0;
  auto materialize = [&](const at::Tensor& layout) -> at::Tensor {
    using Kind = KernelScript::Place::Kind;
    const auto place = script.places[next++];
    if (place.kind == Kind::kArgument) return originals[place.index];
    if (place.kind == Kind::kViewOfArgument) return make_fake_view(layout, originals[place.index]);
    if (place.index == KernelScript::kNothing) return make_fake(layout, make_storage(allocate_fake(Bytes(), where), 0));
    auto [slot, fresh] = storages.try_emplace(place.index);
    if (fresh) {
      const auto* tag = static_cast<const record::AllocationTag*>(memory[place.index].get_context());
      if (tag->listener != 0) state.producer.tensor(tag->id, info_of(layout));
      slot->second = make_storage(std::move(memory[place.index]), static_cast<std::size_t>(sizes[place.index].count()));
    }
    return make_fake(layout, slot->second);
  };
  std::vector<c10::IValue> results;
  for (const auto& value : script.outputs) results.push_back(map_tensors(value, materialize));
  return results;
}

void run_fake(DryRun::State& state, const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& arguments,
              torch::jit::Stack* stack) {
  for (const auto& value : arguments) for_each_tensor(value, [&](const at::Tensor& tensor) { state.meet(tensor); });
  const auto where = device_of(info, arguments);
  const OpArguments seen(op, arguments, at::get_num_threads(), where.is_cuda());
  std::vector<at::Tensor> originals;
  KernelScript made;
  const KernelScript* script = &made;
  if (info.rule->kind == OpRule::Kind::kProbe) {
    script = &probe(op, arguments);
    if (where.is_cuda()) script = &(made = without_scratch(*script));
    for (const auto& value : arguments) for_each_tensor(value, [&](const at::Tensor& t) { originals.push_back(t); });
  } else {
    const Twins twins(Twins::Kind::kMeta, arguments);
    made = script_of_rule(*info.rule, seen, twins);
    originals = twins.originals();
    if (checking_rules() && !where.is_cuda()) check_rule(op, arguments, made);
  }
  trace::OpId before = trace::kNoOp;
  const bool counts = !moves_nothing(info, *script);
  if (counts) {
    before = state.producer.exchange_op(trace::kNoOp);
    state.producer.begin_op(info.name, cost_of(info, seen, *script));
  }
  if (where.is_cuda() && info.rule->cublas) state.use_cublas();
  auto results = play(state, *script, originals, where);
  if (counts) state.producer.exchange_op(before);
  for (auto& value : results) stack->push_back(std::move(value));
}

void fake_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  auto* state = DryRun::State::active();
  if (state == nullptr)
    throw UsageError("op " + c10::toString(op.operator_name()) + " was given a tensor of a dry run that has ended",
                     "destroy what a dry run made before it ends; name captured optimizers in EstimateOptions");
  const auto& info = info_of_op(op);
  if (info.composite || (info.rule != nullptr && info.rule->kind == OpRule::Kind::kDecompose))
    return op.redispatchBoxed(kCpu, stack);
  const auto count = op.schema().arguments().size();
  torch::jit::Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  if (runs_for_real(info, arguments)) {
    c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
    const auto muted = state->mute_host();
    op.redispatchBoxed(kCpu, stack);
    const auto results = static_cast<std::ptrdiff_t>(op.schema().returns().size());
    for (auto value = stack->end() - results; value != stack->end(); ++value)
      for_each_tensor(*value, [&](const at::Tensor& tensor) { tell_shape(*state, tensor); });
    return;
  }
  if (info.rule == nullptr) throw_unsupported(*state, op);
  torch::jit::drop(*stack, count);
  run_fake(*state, op, info, arguments, stack);
}

}  // namespace

void install_fallback() {
  static auto* libraries = [] {
    auto* all = new std::vector<torch::Library>;  // for good: fake tensors may outlive statics
    all->emplace_back(torch::Library::IMPL, "_", c10::DispatchKey::Fake, __FILE__, __LINE__);
    all->back().fallback(torch::CppFunction::makeFromBoxedFunction<&fake_kernel>());
    all->emplace_back(torch::Library::IMPL, "aten", c10::DispatchKey::Fake, __FILE__, __LINE__);
    register_factories(all->back());
    return all;
  }();
  (void)libraries;
}
}  // namespace cinch::dryrun::internal
