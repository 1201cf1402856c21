#include "cinch/core/atomic_file.h"

#include <cerrno>
#include <utility>

#include "cinch/core/error.h"

namespace cinch {
namespace {
constexpr std::size_t kBufferBytes = 1u << 20;
}  // namespace

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code ignored;
  const auto status = std::filesystem::status(file_, ignored);
  if (std::filesystem::is_directory(status)) throw IoError(file_, "write", EISDIR);
  const bool directly = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  if (!directly) temporary_ = file_.string() + ".tmp";
  out_.emplace(directly ? file_ : temporary_, DurableFileOptions{.shown = file_, .follow_links = directly});
}

AtomicFile::~AtomicFile() {
  out_.reset();
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(std::string_view bytes) {
  if (bytes.size() >= kBufferBytes) {
    flush();
    out_->write(bytes);
    return;
  }
  buffer_.append(bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  out_->write(buffer_);
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  out_->close();
  if (temporary_.empty()) return;
  rename_path(temporary_, file_);
  temporary_.clear();
  sync_folder(file_.has_parent_path() ? file_.parent_path() : ".");
}
}  // namespace cinch
