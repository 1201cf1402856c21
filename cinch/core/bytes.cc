#include "cinch/core/bytes.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "cinch/core/error.h"

namespace cinch {
namespace {
struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<Unit, 11> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"kB", 1'000},
                                       {"KB", 1'000},
                                       {"MB", 1'000'000},
                                       {"GB", 1'000'000'000},
                                       {"TB", 1'000'000'000'000},
                                       {"KiB", std::int64_t{1} << 10},
                                       {"MiB", std::int64_t{1} << 20},
                                       {"GiB", std::int64_t{1} << 30},
                                       {"TiB", std::int64_t{1} << 40}}};

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw UsageError("\"" + std::string(text) + "\" is not a size in memory: " + why,
                   "Write for example 1.5GiB, 500MB or 1048576; units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB.");
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::string_view take_digits(std::string_view& text) {
  std::size_t length = 0;
  while (length < text.size() && std::isdigit(static_cast<unsigned char>(text[length]))) ++length;
  const std::string_view digits = text.substr(0, length);
  text.remove_prefix(length);
  return digits;
}

[[noreturn]] void overflow(Bytes left, const char* operation, std::int64_t right) {
  throw OverflowError(std::to_string(left.count()) + " B " + operation + " " + std::to_string(right) +
                      " does not fit into 64 bits");
}
}  // namespace

Bytes Bytes::parse(std::string_view text) {
  std::string_view rest = trimmed(text);
  if (rest.empty()) refuse(text, "it is empty");
  const std::string_view whole = take_digits(rest);
  if (whole.empty()) refuse(text, "it does not begin with a digit");
  std::string_view fraction;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction = take_digits(rest);
    if (fraction.empty()) refuse(text, "no digit follows the point");
  }
  rest = trimmed(rest);
  std::int64_t unit = 0;
  for (const Unit& known : kUnits) {
    if (known.name == rest) unit = known.bytes;
  }
  if (unit == 0) refuse(text, "unknown unit \"" + std::string(rest) + "\"");

  std::int64_t count = 0;
  for (char digit : whole) {
    if (__builtin_mul_overflow(count, 10, &count) || __builtin_add_overflow(count, digit - '0', &count)) {
      refuse(text, "it is too large");
    }
  }
  // From the last digit to the first, so that each division drops only what is less than a byte in the end: exact.
  std::int64_t part = 0;
  for (auto digit = fraction.rbegin(); digit != fraction.rend(); ++digit) part = (part + (*digit - '0') * unit) / 10;
  if (__builtin_mul_overflow(count, unit, &count) || __builtin_add_overflow(count, part, &count)) {
    refuse(text, "it is too large");
  }
  return Bytes(count);
}

Bytes operator+(Bytes left, Bytes right) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(left.count_, right.count_, &sum)) overflow(left, "+", right.count_);
  return Bytes(sum);
}

Bytes operator-(Bytes left, Bytes right) {
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(left.count_, right.count_, &difference)) overflow(left, "-", right.count_);
  return Bytes(difference);
}

Bytes operator*(Bytes left, std::int64_t factor) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(left.count_, factor, &product)) overflow(left, "*", factor);
  return Bytes(product);
}

std::string to_string(Bytes bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = std::abs(static_cast<double>(bytes.count()));
  std::size_t unit = 0;
  // 1023.5 would be printed as 1024: that is 1.00 of the next unit.
  while (value >= (unit == 0 ? 1024 : 1023.5) && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  int decimals = 0;
  if (unit > 0) decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%s%.*f %s", bytes.count() < 0 ? "-" : "", decimals, value, kNames[unit]);
  return text.data();
}
}  // namespace cinch
