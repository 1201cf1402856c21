#pragma once
// What was costly to find, kept on disk from one process to the next.
//
//   CacheFile cache(*cache_folder(), "probes", "all that the answers depend on: versions, processor");
//   if (const std::string* answer = cache.find(question)) return *answer;
//   cache.add(question, find_out());
//   cache.save();
//
// A cache is a help, never a need: whatever is wrong with the folder, the file or the disk, it is as if there were
// none.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cinch {

/// CINCH_CACHE_DIR, else cinch in XDG_CACHE_HOME, else ~/.cache/cinch. Nothing if CINCH_CACHE_DIR is empty or there is
/// no home: no cache is wanted.
std::optional<std::filesystem::path> cache_folder();

/// Byte strings by key, in FOLDER/NAME-HASH.bin, with HASH that of the title: files of other titles lie beside it and
/// do no harm. Damaged files and strangers' count as empty, and are replaced. Of 16 MiB at most: then it starts afresh.
class CacheFile {
 public:
  /// Reads it, if it is there.
  CacheFile(const std::filesystem::path& folder, std::string_view name, std::string title);

  /// nullptr: not known. Good until the next add() or save().
  const std::string* find(std::string_view key) const;
  /// In place of what there was.
  void add(std::string key, std::string value);
  /// Writes what was added, beside what other processes have written since, whole or not at all. Without anything new
  /// it touches nothing. Waits a moment for another process that is at it; then the next save() has it.
  void save() noexcept;

  const std::filesystem::path& file() const { return file_; }

 private:
  using Entries = std::map<std::string, std::string, std::less<>>;
  Entries read() const;
  void write();

  std::filesystem::path folder_, file_;
  std::string title_;
  Entries entries_;       ///< As read.
  Entries added_;         ///< And not yet written.
  bool writable_ = true;  ///< As far as is known: a full disk is tried once.
};
}  // namespace cinch
