#include "cinch/record/recorder.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <fstream>
#include <sstream>

#include "cinch/record/internal/arena_hooks.h"
#include "cinch/record/internal/forward_ranges.h"
#include "cinch/record/producer.h"

namespace cinch::record {
namespace {

std::string describe_refusal(Bytes requested, Bytes live, Bytes cap, const trace::CategoryBytes& by_category,
                             std::string_view module) {
  std::ostringstream text;
  text << "out of memory: asked for " << requested.count() << " B";
  if (!module.empty()) text << " in " << module;
  text << ", " << live.count() << " B are live, the cap is " << cap.count() << " B: "
       << (live + requested - cap).count() << " B would have to go";
  text << "; live by category:";
  for (int c = 0; c < trace::kCategoryCount; ++c) {
    const auto category = static_cast<trace::Category>(c);
    if (by_category[category].count() != 0) text << ' ' << name_of(category) << ' ' << to_string(by_category[category]) << ',';
  }
  auto sentence = text.str();
  if (sentence.back() == ',') sentence.pop_back();
  return sentence;
}

Bytes from_status(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return Bytes(std::stoll(line.substr(key.size()))) * 1024;
  return {};
}
}  // namespace

OutOfMemoryError::OutOfMemoryError(Bytes requested, Bytes live, Bytes cap, const trace::CategoryBytes& by_category,
                                   std::string_view module)
    : Error(describe_refusal(requested, live, cap, by_category, module),
            "a plan for this budget: cinch plan JOB.toml --budget SIZE"),
      requested_(requested), live_(live), cap_(cap), by_category_(by_category) {}

struct Recorder::State {
  Producer producer;
};

Recorder::Recorder(trace::Sink& sink, RecorderOptions options)
    : state_(new State{{sink, make_header(trace::TraceHeader::Source::kRecording, at::get_num_threads()), options}}) {
  internal::reset_reserved_peak();
}
Recorder::~Recorder() = default;
Bytes Recorder::live() const { return state_->producer.stats().live; }
Bytes Recorder::peak() const { return state_->producer.stats().peak; }
Bytes Recorder::reserved_peak() const { return Bytes(internal::reserved_peak()); }

namespace {
/// Of the active producer; else nullptr.
AllocationTag* active_tag_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const auto& data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  auto* tag = tag_of(data.get_context(), data.get_deleter());
  const auto* producer = Producer::active();
  return tag != nullptr && producer != nullptr && tag->listener == producer->serial() ? tag : nullptr;
}
}  // namespace

std::optional<trace::AllocationId> allocation_of(const at::Tensor& tensor) {
  if (const auto* tag = active_tag_of(tensor)) return tag->id;
  return std::nullopt;
}

void label(const at::Tensor& tensor, trace::Category category, std::string_view name) {
  if (auto* tag = active_tag_of(tensor)) Producer::active()->label(*tag, category, name);
}

Muted::Muted() noexcept { change_muted(+1); }
Muted::~Muted() { change_muted(-1); }

struct ForwardModule::State {
  trace::ModuleScope scope;
  const std::string* before;
};

ForwardModule::ForwardModule(const std::string& path) {
  if (Producer::active() == nullptr) return;
  const auto* before = trace::current().module;
  state_.reset(new State{trace::ModuleScope(path), before});
  internal::note_forward_module(&path);
}
ForwardModule::~ForwardModule() {
  if (state_) internal::note_forward_module(state_->before);
}

Bytes resident_peak() { return from_status("VmHWM:"); }
Bytes resident() { return from_status("VmRSS:"); }
}  // namespace cinch::record

namespace cinch {
MemoryStats memory_stats() {
  const auto* producer = record::Producer::active();
  auto stats = producer != nullptr ? producer->stats() : MemoryStats{};
  stats.resident = record::resident();
  return stats;
}
}  // namespace cinch
