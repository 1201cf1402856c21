#pragma once
// Where bytes can be while they are not on the device.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>

namespace cinch::techniques::internal {

/// Places of any size. take() and give() are one thread's at a time; write() and read() any thread's.
class Medium {
 public:
  virtual ~Medium() = default;
  /// A place for `bytes` > 0: an opaque number.
  virtual std::uint64_t take(std::size_t bytes) = 0;
  virtual void give(std::uint64_t place, std::size_t bytes) noexcept = 0;
  virtual void write(std::uint64_t place, const void* from, std::size_t bytes) = 0;
  virtual void read(std::uint64_t place, void* to, std::size_t bytes) = 0;
};

/// Whole pages of the system's memory that no tensor allocator counts. What is given back is kept for the next request
/// of that size: training asks for the same sizes each step, and new pages are slow. Throws std::bad_alloc.
class HostMemory final : public Medium {
 public:
  HostMemory() = default;
  ~HostMemory() override;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::uint64_t take(std::size_t bytes) override;
  void give(std::uint64_t place, std::size_t bytes) noexcept override;
  void write(std::uint64_t place, const void* from, std::size_t bytes) override;
  void read(std::uint64_t place, void* to, std::size_t bytes) override;

 private:
  std::multimap<std::size_t, std::uint64_t> idle_;  ///< By size.
};

/// A file without a name in `folder`: it goes with the process, however that ends. Throws IoError, as write() and
/// read().
class SwapFile final : public Medium {
 public:
  explicit SwapFile(std::filesystem::path folder);
  ~SwapFile() override;
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  std::uint64_t take(std::size_t bytes) override;
  void give(std::uint64_t place, std::size_t bytes) noexcept override;
  void write(std::uint64_t place, const void* from, std::size_t bytes) override;
  void read(std::uint64_t place, void* to, std::size_t bytes) override;

 private:
  const std::filesystem::path folder_;
  int file_;
  std::uint64_t end_ = 0;
  std::multimap<std::size_t, std::uint64_t> idle_;
};
}  // namespace cinch::techniques::internal
