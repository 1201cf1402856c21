#pragma once
// Everything cinch throws. One root, single inheritance: `catch (const std::exception&)` catches all of it.
//
// what() is one sentence that says what was wrong and where; hint() says what to do about it. Expected outcomes ("does
// not fit") are values, not exceptions.

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#define CINCH_API __attribute__((visibility("default")))

namespace cinch {

class CINCH_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string hint = {}) : std::runtime_error(what), hint_(std::move(hint)) {}
  /// What to do about it; may be empty.
  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
};

/// A call or a flag that can never be right.
class CINCH_API UsageError : public Error {
 public:
  using Error::Error;
};

/// Arithmetic on bytes that leaves 64 bits.
class CINCH_API OverflowError : public Error {
 public:
  using Error::Error;
};

/// An op without a rule, a shape that depends on data; the message names op and module.
class CINCH_API UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// A job, plan or device file. what() begins with "FILE:LINE: ", with "FILE: " for line 0: the file as a whole.
class CINCH_API ConfigError : public Error {
 public:
  ConfigError(std::filesystem::path file, int line, std::string key, const std::string& problem, std::string hint = {});
  const std::filesystem::path& file() const noexcept { return file_; }
  int line() const noexcept { return line_; }
  const std::string& key() const noexcept { return key_; }

 private:
  std::filesystem::path file_;
  int line_;
  std::string key_;
};

/// A data file that is not what it claims to be. what() begins with "FILE, byte OFFSET: ".
class CINCH_API DataError : public Error {
 public:
  DataError(std::filesystem::path file, std::uint64_t offset, const std::string& problem, std::string hint = {});
  const std::filesystem::path& file() const noexcept { return file_; }
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::filesystem::path file_;
  std::uint64_t offset_;
};

/// The system refused: full disk, no permission. Carries errno; what() is "cannot ACTION FILE: REASON". Without a hint
/// of the thrower's the usual reasons bring their own.
class CINCH_API IoError : public Error {
 public:
  IoError(const std::filesystem::path& file, const std::string& action, int error_number, std::string hint = {});
  int error_number() const noexcept { return error_number_; }

 private:
  int error_number_;
};
}  // namespace cinch
