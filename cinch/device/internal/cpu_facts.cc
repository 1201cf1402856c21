#include "cinch/device/internal/cpu_facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>

namespace cinch::device::internal {
namespace {
constexpr std::string_view kBlank = " \t\n";

// What follows "KEY" and ':' on the first line that begins with KEY; "" if none does.
std::string_view field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (const std::size_t colon = line.find(':'); line.starts_with(key) && colon != std::string_view::npos) {
      return line.substr(colon + 1);
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlank)));
  Number value{};
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || kBlank.find(text[at - 1]) != std::string_view::npos;
    const bool ends = end == text.size() || kBlank.find(text[end]) != std::string_view::npos;
    if (begins && ends) return true;
  }
  return false;
}
}  // namespace

std::optional<Bytes> total_memory(std::string_view meminfo) {
  const auto kib = number<std::int64_t>(field(meminfo, "MemTotal"));
  if (!kib || *kib <= 0 || *kib > std::numeric_limits<std::int64_t>::max() / 1024) return std::nullopt;
  return Bytes(*kib * 1024);
}

std::optional<Bytes> cgroup_limit(std::string_view memory_max) {
  const auto bytes = number<std::int64_t>(memory_max);
  if (!bytes || *bytes <= 0) return std::nullopt;
  return Bytes(*bytes);
}

Core core_from(std::string_view cpuinfo, std::string_view max_kilohertz) {
  Core core;
  if (const auto most = number<double>(max_kilohertz); most && *most > 0 && std::isfinite(*most)) {
    core.hertz = *most * 1e3;
  } else if (const auto megahertz = number<double>(field(cpuinfo, "cpu MHz"));
             megahertz && *megahertz > 0 && std::isfinite(*megahertz)) {
    core.hertz = *megahertz * 1e6;
  }
  // Two fused multiply-adds a cycle, on 8 or 16 floats; without them one multiplication and one addition on 4.
  const std::string_view flags = field(cpuinfo, "flags");
  if (has_word(flags, "avx512f")) {
    core.float32_per_cycle = 64;
  } else if (has_word(flags, "avx2") && has_word(flags, "fma")) {
    core.float32_per_cycle = 32;
  }
  core.bfloat16_per_cycle = core.float32_per_cycle;
  if (has_word(flags, "amx_bf16")) {
    core.bfloat16_per_cycle = 1024;
  } else if (has_word(flags, "avx512_bf16")) {
    core.bfloat16_per_cycle = 2 * core.float32_per_cycle;
  }
  return core;
}
}  // namespace cinch::device::internal
