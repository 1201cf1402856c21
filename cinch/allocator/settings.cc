#include "cinch/allocator/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/core/text.h"

namespace cinch::allocator {
namespace {

constexpr std::string_view kVariable = "PYTORCH_CUDA_ALLOC_CONF";
constexpr std::uint64_t kMostMiB = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / kMiB;

// Keys that are the model's business.
constexpr std::string_view kMaxSplit = "max_split_size_mb", kRoundup = "roundup_power2_divisions",
                           kCollect = "garbage_collection_threshold", kExpandable = "expandable_segments",
                           kLargeSegment = "large_segment_size_mb", kNonSplit = "max_non_split_rounding_mb",
                           kFraction = "per_process_memory_fraction", kBackend = "backend";

// Keys that change no address, of PyTorch 1.13 to 2.15.
constexpr std::array<std::string_view, 14> kOthers{
    "release_lock_on_cudamalloc",        "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",     "pinned_use_hip_host_register",
    "pinned_num_register_threads",       "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",     "pinned_free_catch_all",
    "pinned_max_round_threshold_mb",     "pinned_max_cached_size_mb",
    "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom",
    "expandable_segments_reserve",       "expandable_segments_reserve_by_class"};

struct Entry {
  std::string key, value;
};

[[noreturn]] void fail(std::string_view key, const std::string& problem, std::string hint = {}) {
  throw UsageError(fmt::format("{}: {}: {}", kVariable, key, problem), std::move(hint));
}

std::string without_blanks(std::string_view text) {
  std::string result(text);
  std::erase_if(result, [](unsigned char c) { return std::isspace(c) != 0; });
  return result;
}

/// At commas outside brackets; one at the end may be too many, as in PyTorch.
std::vector<std::string> parts_of(const std::string& conf) {
  std::vector<std::string> parts(1);
  bool in_list = false;
  for (const char c : conf) {
    if (c == '[') in_list = true;
    if (c == ']') in_list = false;
    if (c == ',' && !in_list) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::vector<Entry> entries_of(std::string_view conf) {
  std::vector<Entry> entries;
  for (const std::string& part : parts_of(without_blanks(conf))) {
    const std::size_t colon = part.find(':');
    if (part.empty() || colon == 0 || colon == std::string::npos || colon + 1 == part.size()) {
      throw UsageError(fmt::format("{}: expected KEY:VALUE, not '{}'", kVariable, part),
                       "Settings look like max_split_size_mb:128,expandable_segments:True.");
    }
    entries.push_back({part.substr(0, colon), part.substr(colon + 1)});
  }
  return entries;
}

/// The digits it begins with; what follows is left out, as in PyTorch, and a minus sign wraps around.
std::uint64_t whole_number(std::string_view key, const std::string& text) {
  const std::size_t digits = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (text.size() == digits || std::isdigit(static_cast<unsigned char>(text[digits])) == 0) {
    fail(key, "expected a whole number, not '" + text + "'");
  }
  errno = 0;
  const std::uint64_t number = std::strtoull(text.c_str(), nullptr, 10);
  if (errno != 0) fail(key, "'" + text + "' is past 64 bits");
  return number;
}

double fraction(std::string_view key, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) fail(key, "expected a number between 0 and 1, not '" + text + "'");
  return number;
}

bool truth(std::string_view key, const std::string& text) {
  if (text != "True" && text != "False") fail(key, "expected True or False, not '" + text + "'");
  return text == "True";
}

Bytes mebibytes(std::uint64_t number) { return Bytes(static_cast<std::int64_t>(std::min(number, kMostMiB)) * kMiB); }

Bytes at_least(std::string_view key, const std::string& text, Bytes least) {
  const Bytes size = mebibytes(whole_number(key, text));
  if (size < least) {
    fail(key, fmt::format("{} is too small", text),
         fmt::format("The least is {}, the large segments' size.", least.count() / kMiB));
  }
  return size;
}

std::uint64_t division(const std::string& text, bool may_be_zero) {
  const std::uint64_t number = whole_number(kRoundup, text);
  if (!std::has_single_bit(number) && !(may_be_zero && number == 0)) {
    fail(kRoundup,
         fmt::format("a number of divisions must be a power of 2{}, not '{}'", may_be_zero ? " or 0" : "", text));
  }
  return number;
}

/// "[256:1,512:2,>:4]": from 256 MiB on, and below if it comes first, 1; ">" is all slots after the one named last.
void read_division_list(const std::string& list, std::array<std::uint64_t, 16>& slots) {
  if (list.back() != ']') fail(kRoundup, "the list has no closing bracket", "A list looks like [256:1,512:2,>:4].");
  std::size_t last = 0;
  bool first = true;
  for (const std::string& part : parts_of(list.substr(1, list.size() - 2))) {
    const std::size_t colon = part.find(':');
    if (colon == std::string::npos) fail(kRoundup, "expected MIB:DIVISIONS, not '" + part + "'");
    const std::string from = part.substr(0, colon);
    const std::uint64_t divisions = division(part.substr(colon + 1), true);
    if (from == ">") {
      std::fill(slots.begin() + static_cast<std::ptrdiff_t>(std::min(last + 1, slots.size())), slots.end(), divisions);
      continue;
    }
    const std::uint64_t start = whole_number(kRoundup, from);
    if (!std::has_single_bit(start)) fail(kRoundup, "'" + from + "' MiB is no power of 2");
    last = std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(start)), slots.size() - 1);
    if (first) std::fill(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(last), divisions);
    first = false;
    slots[last] = divisions;
  }
}

void read_divisions(const std::string& value, std::array<std::uint64_t, 16>& slots) {
  if (value[0] == '[') return read_division_list(value, slots);
  slots.fill(division(value, false));
}

void check_backend(const std::string& value) {
  if (value == "native") return;
  if (value == "cudaMallocAsync" || value == "hipMallocAsync") {
    fail(kBackend, value + " keeps no cache that could be modelled",
         "Leave it out to see what the native one would do.");
  }
  fail(kBackend, "expected native or cudaMallocAsync, not '" + value + "'");
}

[[noreturn]] void fail_unknown(const std::string& key) {
  std::vector<std::string> known{std::string(kMaxSplit),   std::string(kRoundup),      std::string(kCollect),
                                 std::string(kExpandable), std::string(kLargeSegment), std::string(kNonSplit),
                                 std::string(kFraction),   std::string(kBackend)};
  const std::string listed = fmt::format("{}", fmt::join(known, ", "));
  known.insert(known.end(), kOthers.begin(), kOthers.end());
  std::string near = nearest(key, known);
  // Most slips leave out the unit.
  for (const std::string& candidate : known) {
    if (near.empty() && candidate.starts_with(key)) near = candidate;
  }
  throw UsageError(fmt::format("{}: unknown key '{}'", kVariable, key),
                   near.empty() ? "Keys are " + listed + "." : "Did you mean " + near + "?");
}

void apply(const Entry& entry, Settings& settings) {
  const auto& [key, value] = entry;
  if (key == kMaxSplit) {
    settings.max_split_size = at_least(key, value, settings.large_segment_size);
  } else if (key == kNonSplit) {
    settings.max_non_split_rounding = at_least(key, value, settings.large_segment_size);
  } else if (key == kCollect) {
    const double threshold = fraction(key, value);
    if (!(threshold > 0 && threshold < 1)) fail(key, "'" + value + "' is not between 0 and 1, both excluded");
    settings.garbage_collection_threshold = threshold;
  } else if (key == kFraction) {
    const double share = fraction(key, value);
    if (!(share >= 0 && share <= 1)) fail(key, "'" + value + "' is not from 0 to 1");
    settings.memory_fraction = share;
  } else if (key == kExpandable) {
    settings.expandable_segments = truth(key, value);
  } else if (key == kRoundup) {
    read_divisions(value, settings.roundup_power2_divisions);
  } else if (key == kBackend) {
    check_backend(value);
  } else if (key != kLargeSegment && std::find(kOthers.begin(), kOthers.end(), key) == kOthers.end()) {
    fail_unknown(key);
  }
}

std::string divisions_text(const std::array<std::uint64_t, 16>& slots) {
  if (slots[0] != 0 && std::all_of(slots.begin(), slots.end(), [&](std::uint64_t d) { return d == slots[0]; })) {
    return fmt::format("{}", slots[0]);
  }
  std::size_t first = 0, rest = slots.size() - 1;
  while (first + 1 < slots.size() && slots[first + 1] == slots[0]) ++first;
  while (rest > 0 && slots[rest - 1] == slots.back()) --rest;
  std::string text = "[";
  for (std::size_t i = first; i < slots.size() && (i < rest || i == first); ++i) {
    text += fmt::format("{}:{},", std::uint64_t{1} << i, slots[i]);
  }
  if (rest > first) text += fmt::format(">:{},", slots.back());
  text.back() = ']';
  return text;
}
}  // namespace

Settings Settings::parse(std::string_view conf) {
  Settings settings;
  const std::vector<Entry> entries = entries_of(conf);
  // Wherever it stands, it comes first: the others are measured against it.
  for (const Entry& entry : entries) {
    if (entry.key != kLargeSegment) continue;
    settings.large_segment_size = mebibytes(whole_number(entry.key, entry.value));
    if (settings.large_segment_size.count() <= kMinLargeAlloc)
      fail(entry.key, entry.value + " is too small", "The least is 11.");
    settings.max_non_split_rounding = settings.large_segment_size;
  }
  for (const Entry& entry : entries) apply(entry, settings);
  return settings;
}

std::string Settings::to_string() const {
  const Settings defaults;
  std::vector<std::string> parts;
  if (expandable_segments) parts.push_back(fmt::format("{}:True", kExpandable));
  if (max_split_size) parts.push_back(fmt::format("{}:{}", kMaxSplit, max_split_size->count() / kMiB));
  if (roundup_power2_divisions != defaults.roundup_power2_divisions) {
    parts.push_back(fmt::format("{}:{}", kRoundup, divisions_text(roundup_power2_divisions)));
  }
  if (garbage_collection_threshold > 0) parts.push_back(fmt::format("{}:{}", kCollect, garbage_collection_threshold));
  if (large_segment_size != defaults.large_segment_size) {
    parts.push_back(fmt::format("{}:{}", kLargeSegment, large_segment_size.count() / kMiB));
  }
  if (max_non_split_rounding != large_segment_size) {
    parts.push_back(fmt::format("{}:{}", kNonSplit, max_non_split_rounding.count() / kMiB));
  }
  if (memory_fraction < 1) parts.push_back(fmt::format("{}:{}", kFraction, memory_fraction));
  return fmt::format("{}", fmt::join(parts, ","));
}

std::uint64_t rounded_size(std::uint64_t requested, const Settings& settings) {
  constexpr std::uint64_t kBlock = kMinBlockSize;
  if (requested < kBlock) return kBlock;
  const int log2 = std::bit_width(requested) - 1;
  const std::uint64_t divisions =
      settings.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(log2 - 20, 0, 15))];
  if (divisions > 1 && requested / kBlock >= divisions && requested != kBlock * divisions) {
    if (std::has_single_bit(requested)) return requested;
    const std::uint64_t step = (std::uint64_t{1} << log2) >> (std::bit_width(divisions) - 1);
    if (step == 0) return std::bit_ceil(requested);
    return (requested + step - 1) / step * step;
  }
  return (requested + kBlock - 1) / kBlock * kBlock;
}
}  // namespace cinch::allocator
