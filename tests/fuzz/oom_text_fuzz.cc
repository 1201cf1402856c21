// Any bytes as a pasted error text: errors with figures that make sense, or an error with a sentence; never a crash.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "cinch/core/error.h"
#include "cinch/inspect/oom_text.h"
#include "cinch/report/oom_text.h"

namespace {
using cinch::inspect::OomError;
using cinch::inspect::Printed;
using cinch::inspect::Verdict;

void check(bool holds) {
  if (!holds) abort();
}

void check(const OomError& error, std::size_t size) {
  check(error.offset <= size && error.times > 0);
  for (const std::optional<Printed>* figure :
       {&error.asked, &error.capacity, &error.free, &error.allowed, &error.allocated, &error.unallocated,
        &error.private_pools, &error.this_process, &error.room, &error.short_by}) {
    if (!*figure) continue;
    check(cinch::Bytes(0) <= (*figure)->least && (*figure)->least <= (*figure)->bytes);
    check((*figure)->bytes <= (*figure)->most);
  }
  if (error.short_by) check(error.verdict == Verdict::kNo && error.short_by->most > cinch::Bytes(0));
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const cinch::inspect::OomReport report = cinch::inspect::parse_oom_text(text);
    check(!report.errors.empty());
    for (const OomError& error : report.errors) check(error, size);
    check(!cinch::report::text(report).empty());
    check(cinch::report::json(report, {}, "-").starts_with("{"));
  } catch (const cinch::DataError&) {
  } catch (const cinch::OverflowError&) {
    abort();  // Figures are checked before they are added up.
  }
  return 0;
}
