// Two steps of a GPT on the card, against a dry run of them: a process for each, as allocators remember.
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include <ATen/ATen.h>

#include "cinch/allocator/addresses.h"
#include "cinch/allocator/replay.h"
#include "cinch/data/source.h"
#include "cinch/optim/internal/gpu.h"
#include "cinch/trace/trace.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"
#include "cinch/train/train.h"
#include "tests/cuda/check.h"

namespace cinch::tests {
namespace {
device::DeviceSpec card_of(int capability) {
  // Of what is predicted here only this matters; the table's first card of it will do.
  for (const auto& name : device::known())
    if (const auto spec = device::find(name);
        spec.type == device::DeviceType::kCuda && spec.compute_capability == capability)
      return spec;
  device::DeviceSpec spec = device::find(capability >= 90 ? "h100" : "rtx3090");
  spec.compute_capability = capability;
  return spec;
}

struct Case {
  std::string name;
  job::Precision precision = job::Precision::kFp32;
  plan::Plan plan = {};
  bool clips = true;
};

std::vector<Case> cases() {
  const auto all_layers = [](plan::ActivationPolicy policy) {
    plan::Plan plan;
    for (int i = 0; i < 4; ++i) plan.activations["layers." + std::to_string(i)] = policy;
    return plan;
  };
  using Policy = plan::ActivationPolicy;
  constexpr auto kBf16 = job::Precision::kBf16;
  return {{"fp32"},
          {"bf16", kBf16},
          {"fp16", job::Precision::kFp16},
          {"micro_batch", kBf16, {.micro_batch_size = 2}},
          {"checkpoint", kBf16, all_layers(Policy::kCheckpoint)},
          {"selective", kBf16, all_layers(Policy::kSelective)},
          {"offload", kBf16, all_layers(Policy::kOffload)},
          {"checkpoint_offload", kBf16, all_layers(Policy::kCheckpointOffload)},
          {"chunked_loss", kBf16, {.loss_chunk_size = 512}},
          {"step_in_backward", kBf16, {.optimizer = {.in_backward = true}}, /*clips=*/false},
          {"adam8bit", kBf16, {.optimizer = {.state = plan::OptimizerState::k8Bit}}},
          {"state_on_host", kBf16, {.optimizer = {.place = plan::StatePlace::kHost}}},
          {"state_on_disk", kBf16, {.optimizer = {.place = plan::StatePlace::kDisk}}}};
}

const Case& case_of(const std::string& name) {
  static const auto all = cases();
  for (const auto& one : all)
    if (one.name == name) return one;
  throw std::invalid_argument("no case named " + name);
}

job::Job job_of(const Case& of) {
  job::Job job;
  job.data = job::SyntheticData{};
  job.model = job::GptConfig{
      .layers = 4, .hidden_size = 512, .heads = 8, .context_length = 512, .vocab_size = 16384, .dropout = 0.1};
  job.train.batch_size = 8;
  job.train.steps = 2;
  job.train.learning_rate = 1e-4;
  if (of.clips)
    job.train.max_grad_norm = 1.0;
  else
    job.train.max_grad_norm.reset();
  job.train.precision = of.precision;
  job.train.seed = 7;
  return job;
}

void print(const Peaks& peaks) {
  std::printf("%lld %lld %lld\n", static_cast<long long>(peaks.requested), static_cast<long long>(peaks.allocated),
              static_cast<long long>(peaks.reserved));
}

/// What a process printed.
Peaks peaks_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  long long requested = 0, allocated = 0, reserved = 0;
  if (!pipe || std::fscanf(pipe.get(), "%lld %lld %lld", &requested, &allocated, &reserved) != 3)
    throw std::runtime_error("no answer of " + command);
  return {requested, allocated, reserved};
}
}  // namespace

std::vector<std::string> peak_cases() {
  std::vector<std::string> names;
  for (const auto& one : cases()) names.push_back(one.name);
  return names;
}

int predict_peaks(const std::string& name, int capability) {
  const auto& of = case_of(name);
  const auto trace = train::simulator(job_of(of), card_of(capability))(of.plan);
  const auto addresses = allocator::make_addresses(allocator::AddressOrder::kDriver);
  allocator::Replay replay({.settings = {}, .device_memory = allocator::kUnlimitedMemory}, *addresses);
  for (const auto& event : trace.events()) replay.on_event(event);
  const auto stats = replay.stats();
  print({stats.peak_requested.count(), stats.peak_allocated.count(), stats.peak_reserved.count()});
  return 0;
}

/// As simulate.cc's dry run, on the card.
int measure_peaks(const std::string& name) {
  const auto& of = case_of(name);
  const auto job = job_of(of);
  const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
  const auto next = [&] {
    auto batch = source->next();
    batch.inputs = batch.inputs.to(at::kCUDA);
    batch.targets = batch.targets.to(at::kCUDA);
    return batch;
  };
  train::Session session(job, of.plan, at::kCUDA);
  for (std::uint32_t step = 1; step <= 2; ++step) train::run_step(session, next, step);
  wait_for_gpu();
  print(peaks());
  return 0;
}

void check_peaks(Table& table, const std::string& program) {
  const int capability = optim::internal::compute_capability(at::Device(at::kCUDA, 0));
  constexpr double kRequested = 0.01, kReserved = 0.05;
  for (const auto& name : peak_cases()) {
    const auto predicted = peaks_of(program + " predict " + name + " " + std::to_string(capability));
    const auto measured = peaks_of(program + " measure " + name);
    const auto row = [&](const char* kind, std::int64_t expected, std::int64_t was, double tolerance) {
      const double off = static_cast<double>(was) / static_cast<double>(expected) - 1;
      table.row(name + ", " + kind, std::to_string(expected),
                std::to_string(was) + (off == 0 ? ", equal" : ", " + with_digits(off * 100, 2) + " %"),
                std::abs(off) <= tolerance);
    };
    row("requested", predicted.requested, measured.requested, kRequested);
    row("allocated", predicted.allocated, measured.allocated, kRequested);
    row("reserved", predicted.reserved, measured.reserved, kReserved);
  }
}
}  // namespace cinch::tests
