#include "cinch/record/internal/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <new>

namespace cinch::record::internal {
namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t page() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

void* map(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

/// `bytes` from the start of a huge page on: what is mapped around it goes back.
char* map_aligned(std::size_t bytes) {
  if (bytes < kHugePage) return static_cast<char*>(map(bytes));
  auto* mapped = static_cast<char*>(map(bytes + kHugePage));
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(mapped) % kHugePage) % kHugePage;
  if (before > 0) ::munmap(mapped, before);
  if (before < kHugePage) ::munmap(mapped + before + bytes, kHugePage - before);
  return mapped + before;
}
}  // namespace

Region::Region(std::size_t bytes) : size_(round_up(bytes, page())), held_(size_), begin_(map_aligned(size_)) {
  ::madvise(begin_, size_, MADV_HUGEPAGE);  // A wish: without huge pages it is as right, and a little slower.
}

Region::~Region() { ::munmap(begin_, size_); }

void* Region::claim(std::size_t offset, std::size_t bytes) {
  if (bytes == 0 || offset > size_ || bytes > size_ - offset) return nullptr;
  const auto after = taken_.lower_bound(offset);
  if (after != taken_.end() && after->first < offset + bytes) return nullptr;
  if (after != taken_.begin() && std::prev(after)->second > offset) return nullptr;
  taken_.emplace_hint(after, offset, offset + bytes);
  return begin_ + offset;
}

void Region::release(void* block) noexcept {
  taken_.erase(static_cast<std::size_t>(static_cast<char*>(block) - begin_));
}

void Region::give_back() noexcept {
  std::size_t gap = 0;  // The first page of the gap.
  held_ = size_;
  const auto give = [&](std::size_t end) {
    if (end <= gap) return;
    ::madvise(begin_ + gap, end - gap, MADV_DONTNEED);
    held_ -= end - gap;
  };
  for (const auto& [first, end] : taken_) {
    give(first / page() * page());
    gap = round_up(end, page());
  }
  give(size_);
}
}  // namespace cinch::record::internal
