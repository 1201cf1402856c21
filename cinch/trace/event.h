#pragma once
// The vocabulary of traces: what one event, one op call and one tensor say.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/core/dtype.h"

namespace cinch::trace {

/// As c10's TraceEntry::Action, plus what only cinch records. Written to files: append, never renumber.
/// On the CPU memory is free at once: there is no kFreeRequested, and there are no segments.
enum class Action : std::uint8_t {
  kAlloc = 0,
  kFreeRequested = 1,  ///< The program let go; other streams may still use the block.
  kFreeCompleted = 2,  ///< The block may be given out again.
  kSegmentAlloc = 3,   ///< Segments: `address` and `bytes` are the segment's, or of the range that is mapped.
  kSegmentFree = 4,
  kSegmentMap = 5,
  kSegmentUnmap = 6,
  kSnapshot = 7,  ///< Somebody took a snapshot.
  kOom = 8,       ///< An allocation that was refused; `bytes` is what was asked, on CUDA rounded.
  kMark = 9,      ///< A step or phase begins; `phase` and `step` say which.
};
inline constexpr int kActionCount = 10;

/// What the training program was doing. Recomputation is not a phase: it happens inside kBackward (Event::recompute).
enum class Phase : std::uint8_t { kInit, kData, kForward, kBackward, kOptimizer, kEvaluation, kSave, kOther };
inline constexpr int kPhaseCount = 8;

/// What an allocation is for. Known only in hindsight: assigned by classify(), not by the allocator. kUnknown, for
/// traces of programs we did not write; it is part of every sum.
enum class Category : std::uint8_t {
  kParameter,
  kGradient,
  kActivation,
  kOptimizerState,
  kInput,
  kBuffer,
  kTemporary,
  kUnknown
};
inline constexpr int kCategoryCount = 8;

/// Name of an allocation that brings back a saved tensor that was away from the device.
inline constexpr std::string_view kBroughtBack = "brought back";

std::string_view name_of(Phase phase);        ///< "forward"
std::string_view name_of(Category category);  ///< "optimizer_state", as in the JSON

/// Bytes by category.
class CategoryBytes {
 public:
  Bytes& operator[](Category category) { return bytes_[static_cast<std::size_t>(category)]; }
  Bytes operator[](Category category) const { return bytes_[static_cast<std::size_t>(category)]; }
  Bytes sum() const;
  friend bool operator==(const CategoryBytes&, const CategoryBytes&) = default;

 private:
  std::array<Bytes, kCategoryCount> bytes_{};
};

enum class AllocationId : std::uint32_t {};  ///< One allocate-to-free life. Dense from 0, in order of allocation.
enum class OpId : std::uint32_t {};          ///< One call of an op; index into Trace::ops().
enum class NameId : std::uint32_t {};        ///< Interned text; 0 is "". Belongs to one NameTable.
enum class StreamId : std::uint16_t {};      ///< 0 is the default stream.
enum class PoolId : std::uint16_t {};        ///< 0 is the default pool; others are private: CUDA graphs, MemPools.
enum class StackId : std::uint32_t {};       ///< A call stack of a StackTable; 0 is the empty one.
inline constexpr AllocationId kNoAllocation{0xffffffffu};
inline constexpr OpId kNoOp{0xffffffffu};

/// One event. A position in the trace is the time axis; the clock is optional.
struct Event {
  Action action{};
  Phase phase = Phase::kOther;
  bool recompute = false;  ///< Inside an activation checkpoint's second forward.
  bool before = false;     ///< State at the start, told as an event: it happened earlier, nobody knows in which order.
  std::uint32_t step = 0;
  AllocationId allocation = kNoAllocation;
  OpId op = kNoOp;
  NameId module{};  ///< Path as torch::nn::Module::named_modules() gives it: "layers.3.attention".
  StackId stack{};  ///< Snapshots alone.
  StreamId stream{};
  PoolId pool{};
  Bytes bytes{};              ///< As requested.
  std::uint64_t address = 0;  ///< 0 where nobody asked for it: dry runs, recordings on the CPU.
  std::int64_t time_ns = -1;  ///< Since the trace began; -1 where there is no clock.
};
static_assert(std::is_trivially_copyable_v<Event> && sizeof(Event) <= 64);

/// One call of an op and what it costs whichever device runs it. Filled by the dry run; a recording has no ops.
struct OpCall {
  NameId name{};  ///< "aten::addmm".
  NameId module{};
  Phase phase = Phase::kOther;
  bool recompute = false;
  DType dtype = DType::kFloat32;  ///< Of the arithmetic.
  std::uint32_t step = 0;
  double flops = 0;  ///< A multiply-add counts 2.
  Bytes read{}, written{};
  /// Calls that this one stands for: an abridged dry run leaves micro-batches out that do what the one before did. 1 in
  /// files.
  std::uint32_t times = 1;
};

/// dtype and sizes of the tensor an allocation was made for. Only a dry run sees them (an allocator sees bytes): a
/// recording takes them from the prediction it agrees with, see adopt_shapes().
struct TensorInfo {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> sizes{};
};

/// Where a trace comes from.
struct TraceHeader {
  enum class Source : std::uint8_t { kDryRun, kRecording, kSnapshot } source = Source::kRecording;
  std::string producer{};     ///< "cinch 0.1.0, LibTorch 2.11.0"
  std::string device_name{};  ///< "cpu"
  int threads = 0;
  std::string alloc_conf{};  ///< PYTORCH_CUDA_ALLOC_CONF as it was; empty on the CPU. Not in cinch's own files.
};
}  // namespace cinch::trace
