#pragma once
// PYTORCH_CUDA_ALLOC_CONF, read and written as PyTorch does.
//
//   Settings settings = Settings::parse("max_split_size_mb:128,expandable_segments:True");
//   settings.to_string();   // "expandable_segments:True,max_split_size_mb:128"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cinch/core/bytes.h"

namespace cinch::allocator {

// The allocator's fixed sizes, as in c10/core/AllocatorConfig.h; a test of layer B pins them and the defaults to it.
inline constexpr std::int64_t kMinBlockSize = 512;        ///< All sizes are multiples of it.
inline constexpr std::int64_t kSmallSize = 1 << 20;       ///< The largest request that small segments serve.
inline constexpr std::int64_t kSmallSegment = 2 << 20;    ///< Of a small segment, and of its pages if it is expandable.
inline constexpr std::int64_t kMinLargeAlloc = 10 << 20;  ///< From here on a segment is as large as its request,
inline constexpr std::int64_t kRoundLarge = 2 << 20;      ///< rounded up to a multiple of this.
inline constexpr std::int64_t kMiB = 1 << 20;

/// What PYTORCH_CUDA_ALLOC_CONF can say about the model. Defaults are PyTorch 2.11's.
struct Settings {
  std::optional<Bytes> max_split_size{};  ///< None: every block may be split.
  std::array<std::uint64_t, 16>
      roundup_power2_divisions{};  ///< Slot i: [2^(20+i), 2^(21+i)) bytes, 0 for all below too. Powers of 2; 0: off.
  double garbage_collection_threshold = 0;  ///< Of what is allowed; 0: off.
  bool expandable_segments = false;
  Bytes large_segment_size{20 << 20};      ///< Of segments for requests of 1 to 10 MiB, and of large expandable pages.
  Bytes max_non_split_rounding{20 << 20};  ///< What a block that may not be split may be larger than the request.
  double memory_fraction = 1;              ///< Of the device's memory; per_process_memory_fraction.

  /// Everything PyTorch 2.11 accepts, in its sense: a trailing comma, blanks, "20.5" for 20, the old plain number for
  /// roundup_power2_divisions; a later setting of a key wins. Keys of other versions and those that change no address
  /// (pinned_…, release_lock_on_…) are accepted and left out. Throws UsageError naming the key and what it may be, for
  /// backend:cudaMallocAsync too: it has no cache to model.
  static Settings parse(std::string_view conf);
  std::string to_string() const;  ///< parse() of it gives the same, for what parse() can give; "" for the defaults.
  friend bool operator==(const Settings&, const Settings&) = default;
};

/// What a request is rounded to: the size of the block that serves it, slack that cannot be split off left out.
/// `requested` > 0.
std::uint64_t rounded_size(std::uint64_t requested, const Settings& settings);
}  // namespace cinch::allocator
