#pragma once
// A real run as events: cinch's CPU allocator, a hard cap, live statistics.
//
//   trace::Trace trace;                 // cinch/trace/trace.h
//   record::Recorder recorder(trace, {.cap = Bytes::parse("2GiB")});
//   step(...);                      // above the cap: OutOfMemoryError
//   recorder.peak();
//
// Includes no LibTorch header.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "cinch/core/bytes.h"
#include "cinch/core/error.h"
#include "cinch/trace/event.h"
#include "cinch/trace/sink.h"

namespace at {
class Tensor;
}

namespace cinch::record {

/// The cap refused an allocation. The message says what was asked, what is live by category and how much would have to
/// go. Nothing was allocated; the program may go on.
class CINCH_API OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(Bytes requested, Bytes live, Bytes cap, const trace::CategoryBytes& by_category,
                   std::string_view module);
  Bytes requested() const noexcept { return requested_; }
  Bytes live() const noexcept { return live_; }
  Bytes cap() const noexcept { return cap_; }
  /// As far as it is known while the program runs: what is not labelled counts as activation when made in forward or in a
  /// recomputation, else as temporary. Sums to live().
  const trace::CategoryBytes& live_by_category() const noexcept { return by_category_; }

 private:
  Bytes requested_, live_, cap_;
  trace::CategoryBytes by_category_;
};

struct RecorderOptions {
  std::optional<Bytes> cap = {};  ///< On live requested bytes. Over it: OutOfMemoryError.
  bool clock = false;          ///< Events carry time_ns.
  std::int64_t fail_at = -1;   ///< This allocation (from 0) fails as if over the cap: to test what a failure leaves behind.
};

/// While it lives, every CPU tensor allocation of the process is an event in `sink`. One at a time: a second throws
/// UsageError. The first one replaces c10's CPU allocator for good (tensors outlive recorders); tensors made before are
/// left alone. Thread-safe; one short lock an event.
class Recorder {
 public:
  explicit Recorder(trace::Sink& sink, RecorderOptions options = {});  ///< `sink` must outlive it.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  Bytes live() const;
  Bytes peak() const;
  /// Most that tensors took from the system at once since it began: blocks of the heap as malloc rounds them, and the
  /// memory of an Arena (cinch/record/arena.h). At least peak(), if no tensor is older than the recorder.
  Bytes reserved_peak() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Which allocation backs `tensor`; nothing if it was made outside the active recorder or dry run. The same answer for
/// real and for fake tensors.
std::optional<trace::AllocationId> allocation_of(const at::Tensor& tensor);

/// Tells the active recorder or dry run what `tensor` is. No effect if there is none.
void label(const at::Tensor& tensor, trace::Category category, std::string_view name);

/// Hides the calling thread's allocations: for cinch's own scratch, never for a user's.
class [[nodiscard]] Muted {
 public:
  Muted() noexcept;
  ~Muted();
  Muted(const Muted&) = delete;
  Muted& operator=(const Muted&) = delete;
};

/// Runs in a module: names it for the calling thread's allocations, and for those of backward nodes made meanwhile
/// (found again by their sequence numbers). cinch::call() makes one. `path` must live as long as the graph it names.
class [[nodiscard]] ForwardModule {
 public:
  explicit ForwardModule(const std::string& path);
  ~ForwardModule();
  ForwardModule(const ForwardModule&) = delete;
  ForwardModule& operator=(const ForwardModule&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Peak resident memory of the process, from /proc: includes what no tensor allocator sees.
Bytes resident_peak();
/// Resident memory now.
Bytes resident();
}  // namespace cinch::record

namespace cinch {
/// Of the active recorder; zeros if there is none.
struct MemoryStats {
  Bytes live, peak;                  ///< Requested.
  trace::CategoryBytes by_category;  ///< Of what is live; see OutOfMemoryError::live_by_category().
  Bytes resident;                    ///< Of the process, beside it.
};
MemoryStats memory_stats();
}  // namespace cinch
