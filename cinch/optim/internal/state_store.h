#pragma once
// Memory outside the tensors' allocator, or a file: where offloaded state lies. Without LibTorch.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

namespace cinch::optim::internal {

/// Called before each write to and read from a file with "write" or "read"; a test throws in place of a disk that
/// fails. Empty by default; process-wide.
std::function<void(std::string_view what)>& disk_hook();

class StateStore {
 public:
  /// `bytes` > 0 of zeros. An empty folder: anonymous memory; else a file without a name in it, whose blocks are
  /// reserved now. Throws IoError: full disk, no such folder, no memory.
  StateStore(std::size_t bytes, const std::filesystem::path& folder);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  /// Throw IoError. From any thread, on parts that do not overlap.
  void read(std::size_t offset, char* to, std::size_t bytes) const;
  void write(std::size_t offset, const char* from, std::size_t bytes);
  /// The same bytes, mapped.
  char* data() const { return data_; }

 private:
  void open_file(const std::filesystem::path& folder);

  std::filesystem::path name_;  ///< For messages.
  std::size_t bytes_;
  int descriptor_ = -1;
  char* data_ = nullptr;
};
}  // namespace cinch::optim::internal
