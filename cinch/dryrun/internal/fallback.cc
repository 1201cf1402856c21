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
#include "cinch/dryrun/internal/fake.h"
#include "cinch/dryrun/internal/probe.h"
#include "cinch/dryrun/internal/script_of_rule.h"
#include "cinch/dryrun/internal/state.h"
#include "cinch/dryrun/internal/twins.h"
#include "cinch/dryrun/op_rules.h"

namespace cinch::dryrun::internal {
namespace {
const c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// Small enough to compute for real: scalars, lists a program writes down, generator states.
constexpr std::int64_t kSmall = 8192;

/// What never changes of an op.
struct OpInfo {
  std::string name;             ///< "aten::add.Tensor" without the overload: as events say it.
  const OpRule* rule = nullptr;
  bool composite = false;       ///< No kernel of its own: always decomposes.
  std::vector<bool> writes;     ///< By argument.
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
    for (const auto& argument : op.schema().arguments())
      info.writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
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

/// Of a real tensor that was made in this run.
void tell_shape(DryRun::State& state, const at::Tensor& tensor) {
  if (const auto id = record::allocation_of(tensor)) state.producer.tensor(*id, info_of(tensor));
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

/// Plays the events of a call and gives what it returns.
std::vector<c10::IValue> play(DryRun::State& state, const KernelScript& script, const std::vector<at::Tensor>& originals) {
  std::vector<c10::DataPtr> memory;
  std::vector<Bytes> sizes;
  for (const auto& step : script.steps) {
    if (step.allocates) {
      memory.push_back(allocate_fake(step.bytes));
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
    if (place.index == KernelScript::kNothing) return make_fake(layout, make_storage(allocate_fake(Bytes()), 0));
    auto [slot, fresh] = storages.try_emplace(place.index);
    if (fresh) {
      const auto* tag = static_cast<const record::AllocationTag*>(memory[place.index].get_context());
      state.producer.tensor(tag->id, info_of(layout));
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
  const OpArguments seen(op, arguments, at::get_num_threads());
  std::vector<at::Tensor> originals;
  KernelScript made;
  const KernelScript* script = &made;
  if (info.rule->kind == OpRule::Kind::kProbe) {
    script = &probe(op, arguments);
    for (const auto& value : arguments) for_each_tensor(value, [&](const at::Tensor& t) { originals.push_back(t); });
  } else {
    const Twins twins(Twins::Kind::kMeta, arguments);
    made = script_of_rule(*info.rule, seen, twins);
    originals = twins.originals();
    if (checking_rules()) check_rule(op, arguments, made);
  }
  trace::OpId before = trace::kNoOp;
  const bool counts = !moves_nothing(info, *script);
  if (counts) {
    before = state.producer.exchange_op(trace::kNoOp);
    state.producer.begin_op(info.name, cost_of(info, seen, *script));
  }
  auto results = play(state, *script, originals);
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

// ---- ops that are not kernels on tensors ----------------------------------------------------------------------------

/// Factories: small ones are real, so that a program may write into what it makes.
at::Tensor make_by_factory(at::IntArrayRef sizes, std::optional<at::IntArrayRef> strides, at::ScalarType dtype) {
  auto* state = DryRun::State::active();
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  const auto layout = strides ? at::empty_strided(sizes, *strides, at::TensorOptions(dtype).device(at::kMeta))
                              : at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta));
  const auto bytes = layout.storage().nbytes();
  if (bytes > 0 && bytes <= static_cast<std::size_t>(kSmall)) {
    auto real = strides ? at::empty_strided(sizes, *strides, dtype) : at::empty(sizes, dtype);
    tell_shape(*state, real);
    return real;
  }
  auto memory = allocate_fake(Bytes(static_cast<std::int64_t>(bytes)));
  if (bytes > 0)
    state->producer.tensor(static_cast<const record::AllocationTag*>(memory.get_context())->id, info_of(layout));
  return make_fake(layout, make_storage(std::move(memory), bytes));
}

void require_active() {
  if (DryRun::State::active() == nullptr) throw UsageError("a tensor of a dry run that has ended was used");
}

at::Tensor fake_empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                      std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  require_active();
  const auto type = dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype()));
  if (format && *format == at::MemoryFormat::ChannelsLast)
    return make_by_factory(sizes, c10::get_channels_last_strides_2d(sizes), type);
  if (format && *format == at::MemoryFormat::ChannelsLast3d)
    return make_by_factory(sizes, c10::get_channels_last_strides_3d(sizes), type);
  return make_by_factory(sizes, std::nullopt, type);
}

at::Tensor fake_empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                              std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  require_active();
  return make_by_factory(sizes, strides, dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype())));
}

/// Nothing is known of values: whoever compares whole tensors gets "equal", as for item() of a mask.
bool fake_equal(const at::Tensor& left, const at::Tensor& right) {
  require_active();
  if (is_fake(left) || is_fake(right)) return left.sizes() == right.sizes();
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  return at::equal(left, right);
}

/// item(): see DryRun.
at::Scalar fake_item(const at::Tensor& tensor) {
  require_active();
  if (is_fake(tensor)) return at::isFloatingType(tensor.scalar_type()) ? at::Scalar(1.0) : at::Scalar(1);
  const c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
  return tensor.item();
}
}  // namespace

void install_fallback() {
  static auto* libraries = [] {
    auto* all = new std::vector<torch::Library>;  // for good: fake tensors may outlive statics
    all->emplace_back(torch::Library::IMPL, "_", c10::DispatchKey::Fake, __FILE__, __LINE__);
    all->back().fallback(torch::CppFunction::makeFromBoxedFunction<&fake_kernel>());
    all->emplace_back(torch::Library::IMPL, "aten", c10::DispatchKey::Fake, __FILE__, __LINE__);
    all->back().impl("empty.memory_format", &fake_empty);
    all->back().impl("empty_strided", &fake_empty_strided);
    all->back().impl("_local_scalar_dense", &fake_item);
    all->back().impl("equal", &fake_equal);
    return all;
  }();
  (void)libraries;
}
}  // namespace cinch::dryrun::internal
