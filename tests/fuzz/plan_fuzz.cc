// Any bytes as a plan file: a Plan or a ConfigError, and what a Plan prints reads back the same.
#include <cstdlib>
#include <string_view>

#include "cinch/core/error.h"
#include "cinch/plan/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  cinch::plan::Plan plan;
  try {
    plan = cinch::plan::parse_plan({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const cinch::ConfigError&) {
    return 0;
  }
  if (cinch::plan::parse_plan(to_toml(plan), "printed") != plan) std::abort();
  return 0;
}
