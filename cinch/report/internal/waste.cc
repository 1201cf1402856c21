#include "cinch/report/internal/waste.h"

#include "cinch/core/text.h"

namespace cinch::report::internal {

std::vector<WastePart> waste_parts(const inspect::Fragmentation& parts) {
  const auto segments = with_thousands(static_cast<std::int64_t>(parts.cached_segment_count));
  return {{"requested", "requested", parts.requested},
          {"rounding", "rounding", parts.rounding},
          {"unsplittable", "unsplittable", parts.unsplittable},
          {"stranded", "stranded", parts.stranded},
          {"other_streams", "other streams' free blocks", parts.other_streams},
          {"private_pools", "private pools' free blocks", parts.private_pools},
          {"pending_frees", "pending frees", parts.pending_frees},
          {"cached_segments",
           segments + (parts.cached_segment_count == 1 ? " whole cached segment" : " whole cached segments"),
           parts.cached_segments}};
}

std::vector<std::string> waste_terms(const inspect::Fragmentation& parts) {
  std::vector<std::string> terms;
  for (const WastePart& part : waste_parts(parts)) {
    if (part.bytes != Bytes(0) || terms.empty()) terms.push_back(part.name + " " + with_thousands(part.bytes.count()));
  }
  return terms;
}
}  // namespace cinch::report::internal
