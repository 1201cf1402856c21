#pragma once
// Writing that survives: files and folders that are on the disk when a call returns, and a place where tests can cut
// in. AtomicFile (cinch/core/atomic_file.h) is a file that appears whole or not at all.
//
//   DurableFile out(folder / "weights.safetensors");
//   out.write(header); out.write(data);
//   out.close();                 // synced
//   sync_folder(folder);

#include <filesystem>
#include <functional>
#include <string_view>

namespace cinch {

/// Called before and after every write, sync and rename below with "before write PATH" and so on; empty by default. A
/// test kills the process in it, or throws in place of a full disk. Process-wide; set it while nothing is written.
std::function<void(std::string_view what)>& io_hook();

struct DurableFileOptions {
  std::filesystem::path shown = {};  ///< What errors call it, if not by its path.
  bool follow_links = true;          ///< Else a symbolic link in its place is an error.
};

/// A new file, written from its beginning. Every call throws IoError (full disk, no permission) naming the file. What
/// cannot be synced (a device, a pipe) is not.
class DurableFile {
 public:
  /// An existing file is emptied.
  explicit DurableFile(std::filesystem::path path, DurableFileOptions options = {});
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  void write(std::string_view bytes);
  /// Syncs and closes. Without it the file is left as it happens to be.
  void close();

 private:
  std::filesystem::path path_, shown_;
  int descriptor_;
};

/// Puts the entries of `folder` on the disk.
void sync_folder(const std::filesystem::path& folder);
/// rename(2); both in one file system. The new name is durable after sync_folder() of its folder.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
}  // namespace cinch
