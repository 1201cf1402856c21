#pragma once
// Makes the events of a trace: numbers allocations, adds what the thread is doing, holds the cap.
// A Recorder and a DryRun each own one; while it lives it is the listener in force.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "cinch/record/listener.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/sink.h"

namespace cinch::record {

class Producer final : public Listener {
 public:
  /// Throws UsageError if another producer is in force.
  Producer(trace::Sink& sink, const trace::TraceHeader& header, RecorderOptions options);
  ~Producer() override;
  static Producer* active() noexcept;

  void on_allocate(Bytes bytes, AllocationTag& tag) override;
  void on_free(const AllocationTag& tag) noexcept override;

  void label(AllocationTag& tag, trace::Category category, std::string_view name);
  /// `copy` is a cast of `original`: if that is a named parameter, the copy bears its name, and is still what its life says.
  void name_copy(trace::AllocationId copy, trace::AllocationId original);
  void tensor(trace::AllocationId id, const trace::TensorInfo& info);
  /// An op begins; allocations are its own until the next end_op(). Fills in `call`'s name and context.
  void begin_op(std::string_view name, trace::OpCall call);
  trace::OpId exchange_op(trace::OpId op);

  /// What the calling thread is doing; in backward the module is that of the forward op whose node runs.
  trace::Context context();
  MemoryStats stats() const;

 private:
  trace::Event make_event(trace::Action action, Bytes bytes);
  void mark_if_new(const trace::Event& event);

  trace::Sink& sink_;
  RecorderOptions options_;
  trace::NameTable names_;
  std::thread::id owner_ = std::this_thread::get_id();
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  trace::Context last_;             ///< Of the owner: for threads that inherit nothing.
  bool marked_ = false;
  trace::Phase marked_phase_ = trace::Phase::kOther;
  std::uint32_t marked_step_ = 0;
  bool backward_seen_ = false;      ///< In this step: to infer phases where nobody says them.
  std::uint32_t next_id_ = 0, next_op_ = 0;
  trace::OpId op_ = trace::kNoOp;
  Bytes live_, peak_;
  trace::CategoryBytes by_category_;
  std::unordered_map<trace::AllocationId, trace::NameId> parameters_;  ///< Those with names.
};

/// "cinch 0.1.0, LibTorch 2.11.0"
trace::TraceHeader make_header(trace::TraceHeader::Source source, int threads);
}  // namespace cinch::record
