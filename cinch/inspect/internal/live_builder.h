#pragma once
// Groups what lives at one moment by kind and by call path.

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>

#include "cinch/inspect/inspect.h"

namespace cinch::inspect::internal {

class LiveBuilder {
 public:
  /// `place` is whatever the caller knows a call path by.
  void add(std::uint32_t place, Kind kind, Bytes bytes, bool before);
  /// Its event, phase, step and `where` are the caller's to fill in.
  Live take(const std::function<CallPath(std::uint32_t)>& path_of, std::size_t limit) const;

 private:
  struct Sum {
    Bytes bytes, largest;
    std::size_t tensors = 0;
    void add(const Sum& other);
  };
  std::map<std::tuple<std::uint32_t, Kind, bool>, Sum> sums_;
};

/// Kinds in the order in which reports list them.
std::span<const Kind> kinds_in_order();
}  // namespace cinch::inspect::internal
