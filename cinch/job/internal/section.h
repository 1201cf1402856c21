#pragma once
// One table of a job file, read key by key; every refusal names file, line and key.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

namespace cinch::job::internal {

/// The file's name for values that --set gave; they have no line.
inline constexpr std::string_view kOverrideName = "--set";

/// Most elements of a list of numbers that a job file may hold: far above any use, far below what could hurt.
inline constexpr std::size_t kLongestList = 10'000;

struct IntegerRange {
  std::int64_t least, most;
};

/// A real number's range; an open end excludes the bound itself.
struct NumberRange {
  double least, most;
  bool open_below = false, open_above = false;
};

class Section {
 public:
  /// The table `name` of `root`; a missing one reads as empty. `known`: the keys it may have; any other throws.
  Section(const toml::table& root, std::string_view name, const std::filesystem::path& file,
          std::vector<std::string> known);

  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Without a default, a missing key throws.
  std::int64_t integer(std::string_view key, IntegerRange range, std::optional<std::int64_t> otherwise = {}) const;
  double number(std::string_view key, NumberRange range, std::optional<double> otherwise = {}) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::optional<std::string> otherwise = {}) const;
  /// Position in `choices` of the key's text.
  std::size_t choice(std::string_view key, std::span<const std::string> choices,
                     std::optional<std::size_t> otherwise = {}) const;
  /// A text or a list of texts.
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key, IntegerRange range) const;
  std::vector<double> numbers(std::string_view key, NumberRange range) const;

  /// Null if the key is missing.
  const toml::node* find(std::string_view key) const;
  /// Throws a ConfigError at the key's place, or at the table's where the key is missing.
  [[noreturn]] void fail(std::string_view key, const std::string& problem, const std::string& hint = {}) const;

 private:
  const toml::node* need(std::string_view key, bool required) const;
  [[noreturn]] void wrong_type(std::string_view key, const toml::node& found, const std::string& wanted) const;
  std::int64_t checked_integer(std::string_view key, const toml::node& node, IntegerRange range) const;
  double checked_number(std::string_view key, const toml::node& node, NumberRange range) const;
  void refuse_unknown_keys() const;
  std::string full(std::string_view key) const { return name_ + "." + std::string(key); }

  std::string name_;
  std::filesystem::path file_;
  std::vector<std::string> known_;
  const toml::table* table_ = nullptr;
};

/// Throws a ConfigError about `key`, at the place of `node` (the file as a whole if null).
[[noreturn]] void fail_at(const toml::node* node, const std::filesystem::path& file, const std::string& key,
                          const std::string& problem, const std::string& hint = {});

/// Hint for an unknown name: the nearest of `known`, else all of them.
std::string suggestion(std::string_view name, std::span<const std::string> known);

/// "text \"abc\"", "the number 1.5": what a file holds, for "wants a whole number; found …".
std::string describe(const toml::node& node);
}  // namespace cinch::job::internal
