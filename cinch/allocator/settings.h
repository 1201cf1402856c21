#pragma once
// PYTORCH_CUDA_ALLOC_CONF, read and written as PyTorch does.
//
//   Settings settings = Settings::parse("max_split_size_mb:128,expandable_segments:True");

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cinch/core/bytes.h"

namespace cinch::allocator {

/// Defaults are PyTorch 2.11's. The constants follow c10/core/AllocatorConfig.h; a test of layer B pins them to it.
struct Settings {
  std::optional<Bytes> max_split_size{};  ///< None: every block may be split.
  std::array<std::uint16_t, 16>
      roundup_power2_divisions{};           ///< Slot i: [2^(20+i), 2^(21+i)) bytes, 0 for all below too.
  double garbage_collection_threshold = 0;  ///< Of what is allowed; 0: off.
  bool expandable_segments = false;
  Bytes large_segment_size{20 << 20};
  Bytes max_non_split_rounding{20 << 20};
  double memory_fraction = 1;  ///< Of the device's memory; per_process_memory_fraction.

  /// Keys of other versions and those that change no address (backend, pinned_…) are accepted and left out.
  /// Throws UsageError naming the key and what it may be.
  static Settings parse(std::string_view conf);
  std::string to_string() const;  ///< parse() of it gives the same; "" for the defaults.
  friend bool operator==(const Settings&, const Settings&) = default;
};
}  // namespace cinch::allocator
