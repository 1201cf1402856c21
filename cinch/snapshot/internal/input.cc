#include "cinch/snapshot/internal/input.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cinch/core/error.h"

namespace cinch::snapshot::internal {
namespace {
constexpr std::size_t kWindowBytes = 1u << 20;
constexpr std::size_t kCompressedBytes = 1u << 17;
// Snapshots shrink by 20 to 100; what inflates further is made to keep us busy.
constexpr std::uint64_t kTrustedBytes = std::uint64_t{1} << 30, kMostInflated = std::uint64_t{64} << 30;
constexpr std::uint64_t kMostRatio = 10'000;
constexpr std::array<std::uint8_t, 2> kGzipMagic{0x1f, 0x8b};
constexpr std::array<std::uint8_t, 4> kZstdMagic{0x28, 0xb5, 0x2f, 0xfd};

template <std::size_t kSize>
bool begins_with(std::string_view bytes, const std::array<std::uint8_t, kSize>& magic) {
  return bytes.size() >= kSize && std::memcmp(bytes.data(), magic.data(), kSize) == 0;
}

class FileStream final : public ByteStream {
 public:
  explicit FileStream(const std::filesystem::path& file)
      : file_(file), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw IoError(file_, "open", errno);
  }
  ~FileStream() override { ::close(descriptor_); }
  FileStream(const FileStream&) = delete;
  FileStream& operator=(const FileStream&) = delete;

  std::size_t read(std::uint8_t* into, std::size_t room) override {
    for (;;) {
      const ::ssize_t got = ::read(descriptor_, into, room);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) throw IoError(file_, "read", errno);
    }
  }

 private:
  std::filesystem::path file_;
  int descriptor_;
};

class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(std::uint8_t* into, std::size_t room) override {
    const std::size_t count = std::min(room, bytes_.size());
    if (count > 0) std::memcpy(into, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view bytes_;
};

/// What was read to look at the magic bytes, then the rest.
class Prefixed final : public ByteStream {
 public:
  Prefixed(std::string prefix, std::unique_ptr<ByteStream> rest) : prefix_(std::move(prefix)), rest_(std::move(rest)) {}
  std::size_t read(std::uint8_t* into, std::size_t room) override {
    if (done_ == prefix_.size()) return rest_->read(into, room);
    const std::size_t count = std::min(room, prefix_.size() - done_);
    std::memcpy(into, prefix_.data() + done_, count);
    done_ += count;
    return count;
  }

 private:
  std::string prefix_;
  std::size_t done_ = 0;
  std::unique_ptr<ByteStream> rest_;
};

/// A gzip file may be several, one after the other.
class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(std::unique_ptr<ByteStream> inner) : inner_(std::move(inner)) {
    if (::inflateInit2(&state_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipStream() override { ::inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(std::uint8_t* into, std::size_t room) override {
    state_.next_out = into;
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(room, 1u << 30));
    while (state_.next_out == into) {
      if (state_.avail_in == 0) {
        state_.avail_in = static_cast<uInt>(inner_->read(compressed_.data(), compressed_.size()));
        state_.next_in = compressed_.data();
        if (state_.avail_in == 0) {
          if (between_members_) return 0;
          throw Problem{"the gzip data ends too early", "The file is cut off: copy it again."};
        }
      }
      if (std::exchange(between_members_, false)) ::inflateReset(&state_);
      const int result = ::inflate(&state_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        between_members_ = true;
      } else if (result != Z_OK) {
        throw Problem{"the gzip data is damaged"};
      }
    }
    return static_cast<std::size_t>(state_.next_out - into);
  }

 private:
  std::unique_ptr<ByteStream> inner_;
  std::array<std::uint8_t, kCompressedBytes> compressed_;
  z_stream state_{};
  bool between_members_ = false;
};

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(std::unique_ptr<ByteStream> inner) : inner_(std::move(inner)), state_(::ZSTD_createDStream()) {
    if (state_ == nullptr) throw std::bad_alloc();
    ::ZSTD_initDStream(state_);
  }
  ~ZstdStream() override { ::ZSTD_freeDStream(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  std::size_t read(std::uint8_t* into, std::size_t room) override {
    ZSTD_outBuffer out{into, room, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size && !pending_) {
        in_ = {compressed_.data(), inner_->read(compressed_.data(), compressed_.size()), 0};
        if (in_.size == 0) {
          if (between_frames_) return 0;
          throw Problem{"the zstd data ends too early", "The file is cut off: copy it again."};
        }
      }
      const std::size_t result = ::ZSTD_decompressStream(state_, &out, &in_);
      if (::ZSTD_isError(result) != 0) throw Problem{"the zstd data is damaged"};
      between_frames_ = result == 0;
      pending_ = out.pos == out.size;  // More may wait inside than there was room for.
    }
    return out.pos;
  }

 private:
  std::unique_ptr<ByteStream> inner_;
  ZSTD_DStream* state_;
  std::array<std::uint8_t, kCompressedBytes> compressed_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool between_frames_ = false, pending_ = false;
};
/// Counts what is read on its way.
class Counted final : public ByteStream {
 public:
  Counted(std::unique_ptr<ByteStream> inner, std::uint64_t& bytes) : inner_(std::move(inner)), bytes_(bytes) {}
  std::size_t read(std::uint8_t* into, std::size_t room) override {
    const std::size_t got = inner_->read(into, room);
    bytes_ += got;
    return got;
  }

 private:
  std::unique_ptr<ByteStream> inner_;
  std::uint64_t& bytes_;
};

/// Refuses decompression bombs.
class Bounded final : public ByteStream {
 public:
  template <class Stream>
  static std::unique_ptr<ByteStream> make(std::unique_ptr<ByteStream> inner) {
    auto bounded = std::make_unique<Bounded>();
    bounded->stream_ = std::make_unique<Stream>(std::make_unique<Counted>(std::move(inner), bounded->compressed_));
    return bounded;
  }
  std::size_t read(std::uint8_t* into, std::size_t room) override {
    const std::size_t got = stream_->read(into, room);
    inflated_ += got;
    const bool is_bomb = inflated_ > kTrustedBytes && inflated_ / kMostRatio > compressed_;
    if (is_bomb || inflated_ > kMostInflated) {
      throw Problem{"the compressed data inflates beyond all measure: " + std::to_string(inflated_) + " B from " +
                        std::to_string(compressed_),
                    "If it is a snapshot nevertheless, uncompress it first."};
    }
    return got;
  }

 private:
  std::uint64_t compressed_ = 0, inflated_ = 0;
  std::unique_ptr<ByteStream> stream_;
};
}  // namespace

std::unique_ptr<ByteStream> inflated(std::unique_ptr<ByteStream> inner) {
  std::string start(kZstdMagic.size(), '\0');
  std::size_t count = 0;
  while (count < start.size()) {
    const std::size_t got = inner->read(reinterpret_cast<std::uint8_t*>(start.data()) + count, start.size() - count);
    if (got == 0) break;
    count += got;
  }
  start.resize(count);
  const bool gzip = begins_with(start, kGzipMagic), zstd = begins_with(start, kZstdMagic);
  auto whole = std::make_unique<Prefixed>(std::move(start), std::move(inner));
  if (gzip) return Bounded::make<GzipStream>(std::move(whole));
  if (zstd) return Bounded::make<ZstdStream>(std::move(whole));
  return whole;
}

Input::Input(const std::filesystem::path& file) : stream_(inflated(std::make_unique<FileStream>(file))) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!error) size_hint_ = size;
}

Input::Input(std::string_view bytes) {
  if (begins_with(bytes, kGzipMagic) || begins_with(bytes, kZstdMagic)) {
    stream_ = inflated(std::make_unique<MemoryStream>(bytes));
    return;
  }
  begin_ = cursor_ = reinterpret_cast<const std::uint8_t*>(bytes.data());  // They are there: no window is needed.
  limit_ = begin_ + bytes.size();
  size_hint_ = bytes.size();
  ended_ = true;
}

bool Input::refill(std::size_t bytes) {
  const std::size_t kept = available();
  base_ += static_cast<std::uint64_t>(cursor_ - begin_);
  if (capacity_ == 0) {
    buffer_.reset(new std::uint8_t[kWindowBytes]);  // Not cleared, as make_unique would.
    capacity_ = kWindowBytes;
  } else if (kept > 0) {
    std::memmove(buffer_.get(), cursor_, kept);
  }
  std::size_t size = kept;
  while (size < bytes && !ended_) {
    if (size == capacity_) {  // Grows by what was really there: a length that lies costs nothing.
      std::unique_ptr<std::uint8_t[]> larger(new std::uint8_t[capacity_ * 2]);
      std::memcpy(larger.get(), buffer_.get(), size);
      buffer_ = std::move(larger);
      capacity_ *= 2;
    }
    begin_ = cursor_ = buffer_.get();  // Consistent, should the stream throw.
    limit_ = begin_ + size;
    const std::size_t got = stream_->read(buffer_.get() + size, capacity_ - size);
    ended_ = got == 0;
    size += got;
  }
  begin_ = cursor_ = buffer_.get();
  limit_ = begin_ + size;
  return size >= bytes;
}
}  // namespace cinch::snapshot::internal
