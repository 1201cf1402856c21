#pragma once
// A number of bytes as a type, so that sizes, counts and budgets cannot be mixed by accident.
//
//   Bytes budget = Bytes::parse("1.5GiB");
//   if (live + asked > budget) ...
//   to_string(budget);  // "1.50 GiB"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace cinch {

/// A number of bytes, or a difference of two. Exact; arithmetic that overflows int64 throws OverflowError.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}

  /// Reads "1.5GiB", "500MB", "1024", "2 KiB". KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB of 1000; B or
  /// nothing is bytes. A fraction of a byte is dropped. Throws UsageError for an unknown unit, a sign, NaN, overflow.
  static Bytes parse(std::string_view text);

  constexpr std::int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend Bytes operator+(Bytes left, Bytes right);
  friend Bytes operator-(Bytes left, Bytes right);
  friend Bytes operator*(Bytes left, std::int64_t factor);
  Bytes& operator+=(Bytes other) { return *this = *this + other; }
  Bytes& operator-=(Bytes other) { return *this = *this - other; }

 private:
  std::int64_t count_ = 0;
};

/// "1.50 GiB": three significant digits, binary units. For people; JSON always gets count().
std::string to_string(Bytes bytes);

namespace literals {
consteval Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n)); }
consteval Bytes operator""_KiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 10); }
consteval Bytes operator""_MiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 20); }
consteval Bytes operator""_GiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 30); }
}  // namespace literals
}  // namespace cinch
