// Dry runs of a job: what the planner, the estimate and every comparison with a real run stand on.
#include <ATen/Parallel.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cinch/allocator/on_card.h"
#include "cinch/core/error.h"
#include "cinch/data/source.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/trace/scope.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
using trace::Phase;
using trace::PhaseScope;

/// Calls `inspect(session, dry)` at the end of the run: initialization, steps 1 and 2, an evaluation and a save as the job has
/// them.
template <class Inspect>
trace::Trace dry_run(const job::Job& job, const device::DeviceSpec& device, const plan::Plan& plan, const Inspect& inspect,
                     bool abridged = false) {
  const auto place = device.type == device::DeviceType::kCuda ? at::kCUDA : at::kCPU;
  trace::Trace trace, until_end;
  {
    const dryrun::DryRun dry(trace, device);
    std::optional<Session> session;
    {
      const PhaseScope init(Phase::kInit, 0);
      session.emplace(job, plan, place);
      if (abridged) session->abridge();
    }
    const auto next = [&] {
      auto batch = data::example_batch(job.data, job.model, job.train.batch_size);
      batch.inputs = batch.inputs.to(place);
      batch.targets = batch.targets.to(place);
      return batch;
    };
    const bool evaluates = data::holds_out(job.data);
    const std::uint32_t steps = 2;
    for (std::uint32_t step = 1; step <= steps; ++step) run_step(*session, next, step);
    if (evaluates) run_evaluation(*session, next, /*batches=*/1, steps);
    if (!job.train.run_dir.empty()) run_save([](const at::Tensor&) {}, steps);
    inspect(*session, dry);
    until_end = trace;  // what tearing down frees is nobody's question
  }
  trace::classify(until_end);
  return until_end;
}
}  // namespace

namespace {
/// What planners may use: all that keeps results and saves memory of the machine's, and what the job allows beyond it.
std::vector<std::string> allowed(const job::Job& job, const device::DeviceSpec& device) {
  std::vector<std::string> keys;
  for (const plan::TechniqueInfo& technique : plan::techniques()) {
    const bool saves = !technique.needs_host || device.type != device::DeviceType::kCpu;
    const bool unasked = saves && technique.equivalence != plan::Equivalence::kLossy;
    if (std::string key(technique.key); unasked || job.memory.allow.contains(key)) keys.push_back(std::move(key));
  }
  return keys;
}

/// Tokens that go through the head at a time: a few parts of a batch's. None for models without tokens.
std::vector<std::int64_t> loss_chunks(const job::Job& job) {
  const auto length = std::visit(
      [](const auto& model) -> std::int64_t {
        if constexpr (requires { model.context_length; }) return model.context_length;
        return 0;
      },
      job.model);
  constexpr std::int64_t kLeast = 64;  // Below that the product of a chunk is too thin to be fast.
  const std::int64_t tokens = job.train.batch_size * length;
  std::vector<std::int64_t> chunks;
  for (const std::int64_t parts : {4, 16, 64}) {
    const std::int64_t chunk = std::max(kLeast, (tokens + parts - 1) / parts);
    if (chunk < tokens && (chunks.empty() || chunk < chunks.back())) chunks.push_back(chunk);
  }
  return chunks;
}
}  // namespace

std::string libtorch_version() {
  if (aoti_torch_abi_version() != TORCH_ABI_VERSION)
    throw UsageError("the LibTorch that was loaded is not the one cinch was compiled with (" TORCH_VERSION ")",
                     "rebuild cinch, or take LD_LIBRARY_PATH off another LibTorch");
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

int set_threads(int threads) {
  if (threads > 0 && threads != at::get_num_threads()) at::set_num_threads(threads);
  return at::get_num_threads();
}

Plain plain_run(const job::Job& job, const device::DeviceSpec& device, Bytes budget) {
  Plain plain;
  plan::Problem& problem = plain.problem;
  problem.budget = budget;
  problem.batch_size = job.train.batch_size;
  problem.may_divide_batch = job::may_divide_batch(job);
  if (job::has_batch_norm(job.model)) problem.smallest_part = 2;
  problem.allowed = allowed(job, device);
  if (device.type == device::DeviceType::kCuda) {
    problem.overhead = device.context;
    problem.on_device = [device](const trace::Trace& trace, const plan::Plan& plan, Bytes budget) {
      return allocator::on_card(trace, device, budget, allocator::Settings::parse(plan.alloc_conf)).bytes.on_card();
    };
  }
  plain.trace = dry_run(job, device, {}, [&](const Session& session, const dryrun::DryRun& dry) {
    problem.modules = session.policies().called();
    problem.facts = session.facts();
    if (problem.facts.divides_loss) problem.loss_chunks = loss_chunks(job);
    plain.bounded = dry.bounded();
    plain.by_shape_alone = dry.by_shape_alone();
  });
  return plain;
}

plan::Problem make_problem(const job::Job& job, const device::DeviceSpec& device, Bytes budget) {
  return plain_run(job, device, budget).problem;
}

plan::Simulate simulator(const job::Job& job, const device::DeviceSpec& device) {
  return [job, device](const plan::Plan& plan) { return dry_run(job, device, plan, [](const Session&, const dryrun::DryRun&) {}); };
}

plan::Simulate abridged_simulator(const job::Job& job, const device::DeviceSpec& device) {
  return [job, device](const plan::Plan& plan) {
    return dry_run(job, device, plan, [](const Session&, const dryrun::DryRun&) {}, /*abridged=*/true);
  };
}
}  // namespace cinch::train
