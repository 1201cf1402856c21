// The kernel behind DispatchKey::Fake: every op of a dry run arrives here, below autograd and above the backends.
//
//   all arguments small and real      → run the kernel: scalars keep their values
//   it has no kernel of its own, or its rule says decompose
//                                     → run the CPU kernel with fake arguments; its inner ops come here
//   else                              → a KernelScript from the rule or a probe, played as events; outputs are fake
#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/call_values.h"
#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/dryrun/internal/factories.h"
#include "cinch/dryrun/internal/fake.h"
#include "cinch/dryrun/internal/probe.h"
#include "cinch/dryrun/internal/script_of_rule.h"
#include "cinch/dryrun/internal/state.h"
#include "cinch/dryrun/internal/twins.h"
#include "cinch/dryrun/internal/unknown_values.h"
#include "cinch/dryrun/op_rules.h"

namespace cinch::dryrun::internal {
namespace {
const c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

/// For ops that nobody described.
const OpRule& automatic_rule() {
  static const OpRule rule{.kind = OpRule::Kind::kProbe};
  return rule;
}

/// What never changes of an op.
struct OpInfo {
  std::string name;             ///< "aten::add.Tensor" without the overload: as events say it.
  const OpRule* rule = nullptr;
  bool composite = false;       ///< No kernel of its own: always decomposes.
  bool composite_explicit = false;  ///< One kernel for all devices, which calls other ops: decomposes without a rule.
  bool has_cpu = false, has_meta = false;
  bool is_out = false;          ///< It writes into out=.
  bool is_cast = false;         ///< to(), as autocast calls it too.
  bool checks_factorization = false;  ///< Of values that are not there: taken to have succeeded.
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
    info.is_cast = info.name == "aten::_to_copy";
    info.checks_factorization = info.name == "aten::_linalg_check_errors";
    info.has_cpu = op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
    info.has_meta = op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
    info.composite_explicit =
        !info.has_cpu && (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                          op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional));
    for (const auto& argument : op.schema().arguments()) {
      if (argument.name() == "device") info.device_argument = info.writes.size();
      info.is_out = info.is_out || argument.is_out();
      info.writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    }
  }
  if (info.rule == nullptr) info.rule = find_rule(op.operator_name());  // a user may add one later
  const bool decomposes = info.rule == nullptr ? info.composite_explicit
                                               : info.rule->kind == OpRule::Kind::kDecompose && !info.composite;
  if (decomposes && info.is_out)  // The rule is of the variant without out=, which ends in this one; and kernels resize
    info.rule = &automatic_rule();  // what they write into, if its memory is there.
  return info;
}

/// "op aten::bincount in module head"
std::string place(DryRun::State& state, const c10::OperatorHandle& op) {
  const auto* module = state.producer.context().module;
  return "op " + c10::toString(op.operator_name()) + " in " +
         (module && !module->empty() ? "module " + *module : std::string("the root module"));
}

[[noreturn]] void throw_no_kernel(DryRun::State& state, const c10::OperatorHandle& op) {
  throw UnsupportedError("no rule for " + place(state, op) + ", and no CPU kernel to ask: its memory cannot be predicted",
                         "add one with cinch::dryrun::add_rule(), see cinch/dryrun/op_rules.h");
}

/// Throws for results whose sizes depend on values that are not there and have no bound; notes those that have one.
void apply_value_policy(DryRun::State& state, const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  const auto dependence = value_dependence(op, arguments);
  const bool unknown =
      dependence.policy ? has_fake(arguments[dependence.policy->argument]) : dependence.unknown;
  if (!unknown) return;
  if (!dependence.policy || !dependence.policy->bound)
    throw UnsupportedError("the size of the result of " + place(state, op) +
                               " depends on values, which a dry run does not have, and has no natural bound",
                           "keep it out of the step, give it small tensors made by at::tensor(), or add a rule with "
                           "cinch::dryrun::add_rule() that states a size");
  const auto* module = state.producer.context().module;
  state.bounded.insert(op.operator_name().name + (module && !module->empty() ? " in " + *module : std::string()));
}

/// A probe touches its arguments and results for real. Above the first bound the C++ Meta kernel gives the layout in no
/// time, if there is one; where there is none, a slow probe is better than no answer, up to what a machine has.
constexpr std::int64_t kProbeBytes = std::int64_t{256} << 20, kMostProbeBytes = std::int64_t{4} << 30;

std::int64_t bytes_of_arguments(const torch::jit::Stack& arguments) {
  std::int64_t bytes = 0;
  for (const auto& value : arguments)
    for_each_tensor(value, [&](const at::Tensor& tensor) { bytes += bytes_of(tensor).count(); });
  return bytes;
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
  const bool looks_up = info.rule != nullptr && info.rule->looks_up;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      auto bytes = std::min(bytes_of(tensor), Bytes(static_cast<std::int64_t>(tensor.storage().nbytes())));
      if (looks_up && i == 0) bytes = std::min(bytes, script.kept());
      call.read += bytes;
      if (info.writes[i]) call.written += bytes;
      if (!typed && at::isFloatingType(tensor.scalar_type())) {
        call.dtype = dtype_of(tensor.scalar_type());
        typed = true;
      }
    });
  call.written += script.kept();
  if (info.rule != nullptr && info.rule->flops) call.flops = info.rule->flops(arguments);
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
      for (const auto& relaid : script.relaid)  // A kernel lets go of the smaller memory as soon as it has the larger.
        if (relaid.allocation == step.index)
          grow(originals[relaid.argument], std::move(memory.back()), static_cast<std::size_t>(step.bytes.count()));
    } else {
      memory[step.index].clear();
    }
  }
  for (const auto& relaid : script.relaid) copy_layout(originals[relaid.argument], relaid.layout);
  std::unordered_map<std::size_t, c10::Storage> storages;
  std::size_t next = 0;
  auto materialize = [&](const at::Tensor& layout) -> at::Tensor {
    using Kind = KernelScript::Place::Kind;
    const auto place = script.places[next++];
    if (place.kind == Kind::kArgument) return originals[place.index];
    if (place.kind == Kind::kViewOfArgument) return make_fake_view(layout, originals[place.index]);
    if (place.index == KernelScript::kNothing) return make_fake(layout, make_storage(state.allocate(Bytes(), where), 0));
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

/// An op begins, and ends with this, also by an exception: what comes next is none of its own.
class [[nodiscard]] OpScope {
 public:
  OpScope(record::Producer& producer, const std::string& name, trace::OpCall call)
      : producer_(producer), before_(producer.exchange_op(trace::kNoOp)) {
    producer_.begin_op(name, std::move(call));
  }
  ~OpScope() { producer_.exchange_op(before_); }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  record::Producer& producer_;
  trace::OpId before_;
};

/// Whether a call's kernel is to be asked, and may be: what it takes inside counts on the CPU alone, so for a card
/// whatever else gives the layout will do.
bool must_probe(DryRun::State& state, const c10::OperatorHandle& op, const OpInfo& info, const OpRule& rule,
                const OpArguments& seen, const torch::jit::Stack& arguments) {
  const bool described = rule.kind == OpRule::Kind::kShape;
  if (rule.kind != OpRule::Kind::kProbe && !(described && rule.probe_if && rule.probe_if(seen))) return false;
  apply_value_policy(state, op, arguments);
  const bool has_layout = rule.shape || info.has_meta;
  if (seen.on_cuda() && has_layout) return false;
  const auto bytes = bytes_of_arguments(arguments);
  // A function that was written for a probed op is for what cannot be probed: its kernel's scratch is worth the time.
  if (has_layout && bytes > (rule.shape && !described ? kMostProbeBytes : kProbeBytes)) {
    state.by_shape_alone.insert(info.name);
    return false;
  }
  if (bytes > kMostProbeBytes)
    throw UnsupportedError(place(state, op) + " is too large to run on stand-ins, and nothing else gives its layout",
                           "add a rule with cinch::dryrun::add_rule(), see cinch/dryrun/op_rules.h");
  return true;
}

void run_fake(DryRun::State& state, const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& arguments,
              torch::jit::Stack* stack) {
  for (const auto& value : arguments) for_each_tensor(value, [&](const at::Tensor& tensor) { state.meet(tensor); });
  const auto where = device_of(info, arguments);
  const OpArguments seen(op, arguments, at::get_num_threads(), where.is_cuda());
  std::vector<at::Tensor> originals;
  KernelScript made;
  const KernelScript* script = &made;
  const OpRule& rule = info.rule != nullptr ? *info.rule : automatic_rule();
  if (must_probe(state, op, info, rule, seen, arguments)) {
    script = &probe(op, arguments);
    if (where.is_cuda()) script = &(made = without_scratch(*script));
    for (const auto& value : arguments) for_each_tensor(value, [&](const at::Tensor& t) { originals.push_back(t); });
  } else {
    const Twins twins(Twins::Kind::kMeta, arguments);
    made = script_of_rule(rule, seen, twins);
    originals = twins.originals();
    if (checking_rules() && !where.is_cuda() && rule.kind != OpRule::Kind::kProbe)
      check_rule(op, arguments, made, rule.racing ? rule.racing(seen) : Bytes());
  }
  std::optional<OpScope> scope;
  if (!moves_nothing(info, *script)) scope.emplace(state.producer, info.name, cost_of(info, seen, *script));
  if (where.is_cuda() && rule.cublas) state.use_cublas();
  auto results = play(state, *script, originals, where);
  for (auto& value : results) stack->push_back(std::move(value));
}

/// A cast of a weight is told apart from other tensors: under autocast all of them together may be gigabytes.
void run_cast(DryRun::State& state, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto from = (*stack)[stack->size() - op.schema().arguments().size()].toTensor();
  op.redispatchBoxed(kCpu, stack);
  const auto original = record::allocation_of(from), copy = record::allocation_of(stack->back().toTensor());
  if (original && copy) state.producer.name_copy(*copy, *original);
}

void fake_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  auto* state = DryRun::State::active();
  if (state == nullptr)
    throw UsageError("op " + c10::toString(op.operator_name()) + " was given a tensor of a dry run that has ended",
                     "destroy what a dry run made before it ends; name captured optimizers in EstimateOptions");
  const auto& info = info_of_op(op);
  const auto count = op.schema().arguments().size();
  if (info.checks_factorization && has_fake((*stack)[stack->size() - count])) return torch::jit::drop(*stack, count);
  if (info.composite || (info.rule == nullptr ? info.composite_explicit : info.rule->kind == OpRule::Kind::kDecompose))
    return info.is_cast ? run_cast(*state, op, stack) : op.redispatchBoxed(kCpu, stack);
  torch::jit::Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  if (runs_for_real(info, arguments)) {
    c10::impl::ExcludeDispatchKeyGuard no_fake(c10::DispatchKey::Fake);
    std::optional<OpScope> scope;
    if (!state->on_cuda()) scope.emplace(state->producer, info.name, trace::OpCall{});  // It moves and computes nothing.
    op.redispatchBoxed(kCpu, stack);
    scope.reset();
    const auto results = static_cast<std::ptrdiff_t>(op.schema().returns().size());
    for (auto value = stack->end() - results; value != stack->end(); ++value)
      for_each_tensor(*value, [&](const at::Tensor& tensor) { tell_shape(*state, tensor); });
    return;
  }
  if (info.rule == nullptr && !info.has_cpu) throw_no_kernel(*state, op);
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
    register_set(all->back());
    return all;
  }();
  (void)libraries;
}
}  // namespace cinch::dryrun::internal
