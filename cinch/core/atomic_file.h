#pragma once
// A file that appears whole or not at all.
//
//   AtomicFile out("run/trace.bin");
//   out.write(part); out.write(another);
//   out.commit();   // without it, run/trace.bin is as it was

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "cinch/core/durable_file.h"

namespace cinch {

/// Writes FILE.tmp beside FILE, and on commit() syncs it, renames it to FILE and syncs the folder. A FILE that is no
/// regular file (/dev/stdout, a pipe) is written directly. One writer of a FILE at a time; a FILE.tmp that a killed
/// process left is overwritten.
class AtomicFile {
 public:
  /// Throws IoError.
  explicit AtomicFile(std::filesystem::path file);
  /// Removes the temporary file unless committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends; buffered. Throws IoError.
  void write(std::string_view bytes);
  /// Once, last. Throws IoError; FILE is then as it was, unless only its folder could not be synced.
  void commit();

 private:
  void flush();

  std::filesystem::path file_;
  std::filesystem::path temporary_;  ///< Empty if `file_` is written directly, or committed.
  std::string buffer_;
  std::optional<DurableFile> out_;
};
}  // namespace cinch
