#pragma once
// The bytes of a snapshot, inflated on the way: a window that moves over them, never the whole.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace cinch::snapshot::internal {

/// Where bytes come from, in order.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `room` bytes; 0 at the end. Throws IoError, or Problem for compressed data that is damaged.
  virtual std::size_t read(std::uint8_t* into, std::size_t room) = 0;
};

/// Undoes gzip or zstd if `inner` begins with their magic bytes.
std::unique_ptr<ByteStream> inflated(std::unique_ptr<ByteStream> inner);

/// What is wrong with a file; whoever knows the file and the offset makes a DataError of it.
struct Problem {
  std::string text;
  std::string hint{};
};

class Input {
 public:
  explicit Input(const std::filesystem::path& file);
  /// `bytes` must outlive it.
  explicit Input(std::string_view bytes);

  const std::uint8_t* cursor() const { return cursor_; }
  const std::uint8_t* limit() const { return limit_; }
  std::size_t available() const { return static_cast<std::size_t>(limit_ - cursor_); }
  void advance_to(const std::uint8_t* position) { cursor_ = position; }
  void skip(std::size_t bytes) { cursor_ += bytes; }  ///< Of those available.
  /// Makes at least `bytes` available, if there are so many; false if not. Moves the window.
  bool fill(std::size_t bytes) { return available() >= bytes || (!ended_ && refill(bytes)); }
  /// Bytes of the file as it lies there, compressed or not; 0 if it has no size.
  std::uint64_t size_hint() const { return size_hint_; }
  /// Of the cursor, in the inflated data.
  std::uint64_t offset() const { return base_ + static_cast<std::uint64_t>(cursor_ - begin_); }

 private:
  bool refill(std::size_t bytes);

  std::unique_ptr<ByteStream> stream_;
  std::unique_ptr<std::uint8_t[]> buffer_;
  std::size_t capacity_ = 0;
  const std::uint8_t* begin_ = nullptr;
  const std::uint8_t* cursor_ = nullptr;
  const std::uint8_t* limit_ = nullptr;
  std::uint64_t base_ = 0, size_hint_ = 0;
  bool ended_ = false;
};
}  // namespace cinch::snapshot::internal
