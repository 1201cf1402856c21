#pragma once
// Offsets in one arena for buffers whose lifetimes are known: what the best allocator could do.
//
//   std::vector<Buffer> buffers = {{.lower = 0, .upper = 2, .size = 2_MiB}, {.lower = 1, .upper = 3, .size = 1_MiB}};
//   Placement placement = place(buffers, {.alignment = 64_B});
//   arena.reserve(placement.height);                    // 3 MiB: both are live in [1, 2)
//   char* first = arena.data() + placement.offsets[0].count();
//
// The problem is "dynamic storage allocation", NP-hard. Hundreds of buffers are solved exactly, by a branch and bound
// that begins with the ideas of MiniMalloc (Moffitt, ASPLOS 2023); hundreds of thousands by greedy orders that are
// corrected where they failed. `Placement::bound` tells how good the result is.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/core/bytes.h"

namespace cinch::placement {

/// Bytes needed from time `lower` (included) to time `upper` (excluded), in any unit: nanoseconds, or the index of an
/// event. Of no size, or with lower == upper, it shares no byte with anything.
struct Buffer {
  std::int64_t lower = 0;
  std::int64_t upper = 0;
  Bytes size;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct Placement {
  std::vector<Bytes> offsets;  ///< One a buffer, in the order given; multiples of the alignment.
  Bytes height;                ///< What the arena must hold; a multiple of the alignment.
  /// No placement is lower: the live load, or more where the search has proved more. Above Options::capacity: nothing
  /// fits there.
  Bytes bound;
  /// Proved: no placement is lower.
  bool optimal() const { return height == bound; }
};

/// Bytes live at the busiest moment, each size rounded up to `alignment`. O(n log n). Throws UsageError for a buffer
/// that ends before it begins or has a negative size, OverflowError beyond 64 bits.
Bytes live_load(std::span<const Buffer> buffers, Bytes alignment = Bytes(1));

struct Options {
  /// Stop at the first placement that fits here. Without it, the lowest is sought.
  std::optional<Bytes> capacity = std::nullopt;
  /// Of every offset; sizes count rounded up to it. Any positive number.
  Bytes alignment{1};
  /// Wall-clock to stop at with the best found, looked at every few milliseconds of work; a greedy pass over all
  /// buffers is always finished.
  std::chrono::milliseconds time_limit{1000};
  /// The same in buffers placed, by search and heuristics together: for results that do not depend on the machine.
  std::int64_t step_limit = std::numeric_limits<std::int64_t>::max();
};

/// The best placement found within the limits; always valid, if high. Deterministic unless the time limit cuts it
/// short. Throws as live_load does, and UsageError for an alignment below 1.
Placement place(std::span<const Buffer> buffers, const Options& options = {});

/// Why `offsets` is no placement of `buffers` within `capacity`, as one sentence that names the first fault, or
/// nothing. Knows nothing of how place() works: sweeps over time and keeps what is live by offset. O(n log n).
std::optional<std::string> validate(std::span<const Buffer> buffers, std::span<const Bytes> offsets, Bytes capacity);

/// A file of MiniMalloc's form: a header `id,lower,upper,size` in any order, then a buffer a line, all integers but the
/// id. Throws IoError; DataError with the offset of what is missing, unknown, malformed or contradictory.
std::vector<Buffer> read_csv(const std::filesystem::path& file);
/// The same of text in memory; `name` is for messages.
std::vector<Buffer> parse_csv(std::string_view text, const std::filesystem::path& name);
}  // namespace cinch::placement
