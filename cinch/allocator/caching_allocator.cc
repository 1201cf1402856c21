#include "cinch/allocator/caching_allocator.h"

#include <string>

#include "cinch/allocator/internal/model.h"
#include "cinch/core/error.h"
#include "cinch/trace/address_map.h"

namespace cinch::allocator {
namespace {

using internal::Index;
using internal::Node;

constexpr std::int64_t kTooMuch = std::int64_t{1} << 60;  // 1 EiB: PyTorch refuses it too.
constexpr std::uint32_t kAnyone = 1;
}  // namespace

struct CachingAllocator::State {
  State(const Machine& machine, AddressSource& addresses, SegmentListener* listener)
      : model(machine, addresses, listener) {}

  /// Of an allocated block.
  Index block_at(std::uint64_t address) {
    const Index* block = blocks.find(address);
    if (block == nullptr || model.node(*block).address != address ||
        model.node(*block).state != Node::State::kAllocated) {
      throw UsageError("address " + std::to_string(address) + " is not allocated");
    }
    return *block;
  }

  internal::Model model;
  trace::AddressMap<Index>
      blocks;  ///< In use; pending ones that a retry completed stay until their address comes again.
};

CachingAllocator::CachingAllocator(Machine machine, AddressSource& addresses, SegmentListener* listener)
    : state_(std::make_unique<State>(machine, addresses, listener)) {}
CachingAllocator::~CachingAllocator() = default;

void CachingAllocator::restore(std::span<const trace::Segment> segments) {
  state_->model.restore(segments);
  for (const Index block : state_->model.active_blocks()) state_->blocks[state_->model.node(block).address] = block;
}

std::variant<trace::Block, OutOfMemory> CachingAllocator::allocate(Bytes requested, StreamId stream, PoolId pool) {
  if (requested.count() <= 0 || requested.count() >= kTooMuch) {
    throw UsageError("cannot allocate " + std::to_string(requested.count()) + " bytes", "From 1 byte to below 1 EiB.");
  }
  const auto result = state_->model.allocate(static_cast<std::uint64_t>(requested.count()), stream, pool, kAnyone);
  if (const auto* refused = std::get_if<OutOfMemory>(&result)) return *refused;
  const Node& node = state_->model.node(std::get<Index>(result));
  state_->blocks[node.address] = std::get<Index>(result);
  return trace::Block{.address = node.address,
                      .size = Bytes(static_cast<std::int64_t>(node.size)),
                      .requested = requested,
                      .state = trace::Block::State::kActiveAllocated};
}

void CachingAllocator::free(std::uint64_t address) {
  const Index block = state_->block_at(address);
  const bool waits = state_->model.node(block).shared;
  state_->model.request_free(block);
  if (waits) return;
  state_->model.complete(block);
  state_->blocks.erase(address);
}

void CachingAllocator::record_stream(std::uint64_t address, StreamId stream) {
  state_->model.record_stream(state_->block_at(address), stream);
}

void CachingAllocator::complete(std::uint64_t address) {
  const Index* block = state_->blocks.find(address);
  if (block == nullptr) return;
  const Node& node = state_->model.node(*block);
  if (node.state != Node::State::kPending || node.address != address) return;
  state_->model.complete(*block);
  state_->blocks.erase(address);
}

void CachingAllocator::empty_cache() { state_->model.release_cached(); }

void CachingAllocator::release_pool(PoolId pool) { state_->model.release_pool(pool); }

Stats CachingAllocator::stats() const { return internal::stats_of(state_->model.counters()); }

std::vector<trace::Segment> CachingAllocator::segments() const { return state_->model.segments(); }
}  // namespace cinch::allocator
