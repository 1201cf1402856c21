#pragma once
// A recording of PyTorch's CUDA caching allocator: what torch.cuda.memory._dump_snapshot() writes.
//
//   const Snapshot snapshot = Snapshot::open("oom.pickle");
//   for (const Device& device : snapshot.devices()) {
//     trace::Trace trace;
//     snapshot.play(device, trace);        // the state at the start, then every event
//   }
//
// Reads pickles (protocols 0 to 5, data alone: a pickle that calls anything is refused), JSON with the same keys, the
// older layouts, each also compressed by gzip or zstd. What one has after opening is an index: the events packed, each
// stack once, the state at both ends. The schema: torch/csrc/cuda/memory_snapshot.cpp, torch/cuda/_memory_viz.py.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/trace/segments.h"
#include "cinch/trace/sink.h"
#include "cinch/trace/stacks.h"

namespace cinch::snapshot {

/// The allocator's settings as the snapshot states them. What it leaves out is in `alloc_conf` or unknown.
struct RecordedSettings {
  std::string alloc_conf;               ///< PYTORCH_CUDA_ALLOC_CONF; the settings set last.
  std::optional<Bytes> max_split_size;  ///< None: unlimited.
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  std::vector<std::int64_t> roundup_power2_divisions;  ///< 16, or none if not recorded.
};

/// The beginning or end of something the program named: "Optimizer.step#AdamW.step".
struct Annotation {
  std::string name;
  bool start = true;
  int device = 0;
  std::int64_t time_us = 0;
};

/// One GPU of a snapshot.
struct Device {
  int index = 0;
  std::size_t events = 0;       ///< In the window that was opened.
  std::size_t first_event = 0;  ///< Position of the first of them in the recording.
  std::vector<trace::Segment> start,
      end;                             ///< State before the first and after the last event of the window; by address.
  std::vector<std::uint64_t> streams;  ///< cudaStream_t of each StreamId.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pools;  ///< segment_pool_id of each PoolId.
  /// Events that contradict the others (a free of what does not live): a ring buffer that lost some, or damage. Those
  /// that contradict in nothing but their size are played with the size of the block, and counted here too.
  std::size_t left_out = 0;
};

/// Which events to open. The state at the start of the window is that before its first event.
struct Window {
  std::size_t first = 0, last = static_cast<std::size_t>(-1);  ///< Positions, half open.
  std::optional<std::int64_t> from_us{}, to_us{};              ///< Clock of the recording, half open.
};

class Snapshot {
 public:
  /// Throws IoError; DataError with the offset (in the uncompressed data) for what is no snapshot.
  static Snapshot open(const std::filesystem::path& file, const Window& window = {});
  /// The same from memory. `name` is for messages.
  static Snapshot parse(std::string_view bytes, const std::filesystem::path& name, const Window& window = {});
  Snapshot(Snapshot&&) noexcept;
  Snapshot& operator=(Snapshot&&) noexcept;
  ~Snapshot();

  std::span<const Device> devices() const;  ///< By index; those that have segments or events.
  const RecordedSettings& settings() const;
  std::span<const Annotation> annotations() const;  ///< By time.
  const trace::StackTable& stacks() const;
  /// Clock of the recording where play()'s time_ns is 0: its earliest event, whatever the window. None without a clock.
  std::optional<std::int64_t> origin_us() const;

  /// Pushes one device's recording: for each segment and each allocation of Device::start an event with `before` set,
  /// in order of address; then the window's events in order. Allocations are numbered in that order. Stacks are of
  /// stacks(), StreamId and PoolId index Device::streams and pools; time_ns is since origin_us().
  /// A kFreeRequested and its kFreeCompleted carry the allocation they free; kOom's `bytes` are those asked for and its
  /// `address` what the driver said was free on the device.
  void play(const Device& device, trace::Sink& sink) const;

 private:
  struct State;
  explicit Snapshot(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};
}  // namespace cinch::snapshot
