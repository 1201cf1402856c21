#include "cinch/core/error.h"

#include <cerrno>
#include <system_error>

namespace cinch {
namespace {
std::string at_line(const std::filesystem::path& file, int line, const std::string& problem) {
  return line > 0 ? file.string() + ":" + std::to_string(line) + ": " + problem : file.string() + ": " + problem;
}

// What a person can do about the refusals that are not a program's fault.
std::string hint_for(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "The disk is full: free some space, or name a folder on another disk.";
    case EACCES:
    case EPERM:
      return "Permission denied: check who owns the file and its folder, or name another folder.";
    case EROFS:
      return "That file system is read-only: name a folder elsewhere.";
    case ENOENT:
    case ENOTDIR:
      return "Check the path: a folder or a file in it does not exist.";
    case EISDIR:
      return "That is a folder: name a file.";
    default:
      return {};
  }
}
}  // namespace

ConfigError::ConfigError(std::filesystem::path file, int line, std::string key, const std::string& problem,
                         std::string hint)
    : Error(at_line(file, line, problem), std::move(hint)), file_(std::move(file)), line_(line), key_(std::move(key)) {}

DataError::DataError(std::filesystem::path file, std::uint64_t offset, const std::string& problem, std::string hint)
    : Error(file.string() + ", byte " + std::to_string(offset) + ": " + problem, std::move(hint)),
      file_(std::move(file)),
      offset_(offset) {}

IoError::IoError(const std::filesystem::path& file, const std::string& action, int error_number, std::string hint)
    : Error("cannot " + action + " " + file.string() + ": " + std::generic_category().message(error_number),
            hint.empty() ? hint_for(error_number) : std::move(hint)),
      error_number_(error_number) {}
}  // namespace cinch
