#pragma once

namespace cinch::record::internal {
/// Replaces c10's CPU allocator, once, for good.
void install_cpu_allocator();
}  // namespace cinch::record::internal
