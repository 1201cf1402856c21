#pragma once
// A JSON object read key by key, as Section reads TOML: every refusal names file, key and value.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace cinch::job::internal {

/// Largest file that is read, bytes: far above any config.json.
inline constexpr std::uint64_t kLargestConfig = 4u << 20;

class JsonConfig {
 public:
  /// Reads `file`. Throws ConfigError if it is missing, too large, no JSON, no object, or has a key twice.
  explicit JsonConfig(const std::filesystem::path& file);
  JsonConfig(std::string_view text, std::filesystem::path name_for_errors);

  // A key's names: the first is the one that errors tell, any other an older spelling; two that disagree throw. A key
  // that is missing or null has the default.
  using Names = std::initializer_list<const char*>;
  /// At least 1 (or `least`), at most 2^31.
  std::int64_t integer(Names names, std::optional<std::int64_t> otherwise, std::int64_t least = 1) const;
  /// Finite and at least 0.
  double number(Names names, double otherwise) const;
  bool boolean(const char* name, bool otherwise) const;
  std::string text(Names names, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(const char* name, std::vector<std::int64_t> otherwise) const;

  bool is_null(const char* name) const { return root_.contains(name) && root_.at(name).is_null(); }
  /// Null if the key is missing or null.
  const nlohmann::json* find(Names names) const;

  // What only one value of is computed here. `why` ends the sentence "KEY is VALUE; ".
  void want(const char* name, bool otherwise, bool wanted, const std::string& why) const;
  void want(const char* name, const std::string& otherwise, std::initializer_list<std::string_view> wanted) const;
  void want_absent(const char* name, const std::string& why) const;

  [[noreturn]] void fail(const std::string& key, const std::string& problem, const std::string& hint = {}) const;
  const std::filesystem::path& file() const { return file_; }

 private:
  [[noreturn]] void wrong_type(const char* name, const nlohmann::json& found, const std::string& wanted) const;

  std::filesystem::path file_;
  nlohmann::json root_;
};
}  // namespace cinch::job::internal
