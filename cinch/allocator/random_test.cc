// The model under random settings and requests: its invariants after each, and against a slow, plain allocator.
// CINCH_SOAK: how many times as many operations.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "cinch/allocator/caching_allocator.h"
#include "cinch/allocator/internal/free_set.h"

namespace cinch::allocator {
namespace {

using trace::Block;
using trace::Segment;

int rounds() {
  const char* soak = std::getenv("CINCH_SOAK");
  return soak != nullptr ? std::max(1, std::atoi(soak)) : 1;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t end) { return engine_() % end; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  /// 1 B to `most`, each magnitude as often.
  Bytes size(std::int64_t most) {
    const double share = static_cast<double>(below(1 << 20)) / (1 << 20);
    return Bytes(static_cast<std::int64_t>(std::exp(share * std::log(static_cast<double>(most)))));
  }

 private:
  std::mt19937_64 engine_;
};

Settings random_settings(Random& random) {
  Settings settings;
  settings.expandable_segments = random.one_in(2);
  if (random.one_in(3)) {
    settings.large_segment_size = Bytes(static_cast<std::int64_t>(11 + random.below(50)) * kMiB);
    settings.max_non_split_rounding = settings.large_segment_size;
  }
  if (random.one_in(2))
    settings.max_split_size = settings.large_segment_size + Bytes(static_cast<std::int64_t>(random.below(40)) * kMiB);
  for (auto& divisions : settings.roundup_power2_divisions)
    divisions = random.one_in(2) ? 0 : std::uint64_t{1} << random.below(6);
  if (random.one_in(2)) {
    settings.memory_fraction = 0.5 + 0.01 * static_cast<double>(random.below(50));
    settings.garbage_collection_threshold = 0.1 * static_cast<double>(1 + random.below(9));
  }
  EXPECT_EQ(Settings::parse(settings.to_string()), settings) << settings.to_string();
  return settings;
}

/// What the test knows of a block.
struct Held {
  std::uint64_t address = 0;
  Bytes requested;
  bool shared = false;
};

/// Every claim about a state that can be made without knowing how it came about. Empty if all hold.
std::string fault_in(const CachingAllocator& allocator, const std::vector<Held>& held, std::size_t pending,
                     Bytes memory) {
  const Stats stats = allocator.stats();
  Bytes reserved, active, pending_bytes, requested, inactive_split;
  std::size_t active_blocks = 0, pending_blocks = 0, whole_segments = 0;
  std::uint64_t end = 0;
  for (const Segment& segment : allocator.segments()) {
    if (segment.address < end) return "segments overlap";
    std::uint64_t at = segment.address;
    whole_segments += segment.expandable ? 0 : 1;
    bool free_before = false;
    for (const Block& block : segment.blocks) {
      if (block.address != at || block.size.count() <= 0 || block.size.count() % 512 != 0) return "blocks do not tile";
      const bool is_free = block.state == Block::State::kInactive;
      if (is_free && free_before) return "free neighbours are not merged";
      free_before = is_free;
      at += static_cast<std::uint64_t>(block.size.count());
      requested += block.requested;
      if (is_free) {
        if (segment.blocks.size() > 1 && !segment.expandable) inactive_split += block.size;
        continue;
      }
      if (block.requested > block.size) return "a block is smaller than its request";
      active += block.size;
      ++active_blocks;
      if (block.state != Block::State::kActivePendingFree) continue;
      ++pending_blocks;
      pending_bytes += block.size;
    }
    if (at != segment.address + static_cast<std::uint64_t>(segment.total.count())) return "a segment's size is wrong";
    end = at;
    reserved += segment.total;
  }
  if (reserved != stats.reserved || reserved > memory) return "reserved";
  if (active != stats.active || active - pending_bytes != stats.allocated) return "active or allocated";
  if (requested != stats.requested) return "requested";
  if (inactive_split != stats.inactive_split) return "inactive_split";
  if (active_blocks - pending_blocks != held.size() || stats.allocations != static_cast<std::int64_t>(held.size()))
    return "blocks in use";
  if (pending_blocks > pending) return "pending";
  if (whole_segments != static_cast<std::size_t>(stats.segments)) return "segments counted";
  if (stats.peak_reserved < reserved || stats.peak_active < active || stats.peak_requested < requested) return "peaks";
  return "";
}

/// A block of what is held lies where the allocator says.
bool is_there(const CachingAllocator& allocator, const Held& held) {
  for (const Segment& segment : allocator.segments()) {
    for (const Block& block : segment.blocks) {
      if (block.address == held.address)
        return block.requested == held.requested && block.state == Block::State::kActiveAllocated;
    }
  }
  return false;
}

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed)
      : random_(seed),
        memory_(Bytes(static_cast<std::int64_t>(100 + random_.below(1000)) * kMiB)),
        settings_(random_settings(random_)),
        addresses_(make_addresses(all_address_orders()[seed % all_address_orders().size()])),
        allocator_({.settings = settings_, .device_memory = memory_}, *addresses_) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      const std::string what = step();
      const std::string fault = fault_in(allocator_, held_, pending_.size(), memory_);
      ASSERT_EQ(fault, "") << "operation " << i << ", " << what << ", under " << settings_.to_string();
    }
    for (const Held& held : held_) ASSERT_TRUE(is_there(allocator_, held)) << settings_.to_string();
    const std::vector<Segment> state = allocator_.segments();
    FreshAddresses fresh;
    CachingAllocator again({.settings = settings_, .device_memory = memory_}, fresh);
    again.restore(state);
    ASSERT_EQ(again.segments(), state) << settings_.to_string();
    while (!held_.empty()) free(held_.size() - 1);
    for (const std::uint64_t address : pending_) allocator_.complete(address);
    for (int pool = 0; pool < kPools; ++pool) allocator_.release_pool(PoolId{static_cast<std::uint16_t>(pool)});
    allocator_.empty_cache();
    ASSERT_EQ(allocator_.stats().reserved, Bytes()) << settings_.to_string();
    ASSERT_TRUE(allocator_.segments().empty());
  }

 private:
  static constexpr int kPools = 2, kStreams = 3;

  std::string step() {
    const std::uint64_t kind = random_.below(100);
    if (kind < 48 || (held_.empty() && kind < 90)) return allocate();
    if (kind < 90) return free(random_.below(held_.size()));
    if (kind < 94 && !held_.empty()) return share();
    if (kind < 98 && !pending_.empty()) return complete();
    if (kind == 98 && random_.one_in(20)) return empty_cache();
    return allocate();
  }

  std::string allocate() {
    const Bytes bytes = random_.size(random_.one_in(10) ? 100 * kMiB : 8 * kMiB);
    const auto stream = StreamId{static_cast<std::uint16_t>(random_.one_in(4) ? random_.below(kStreams) : 0)};
    const auto pool = PoolId{static_cast<std::uint16_t>(random_.one_in(8) ? random_.below(kPools) : 0)};
    const auto result = allocator_.allocate(bytes, stream, pool);
    if (const auto* block = std::get_if<Block>(&result)) {
      held_.push_back({block->address, bytes, false});
      // An address that a retry completed may come again: it is pending no more.
      std::erase(pending_, block->address);
    } else if (!held_.empty()) {
      for (std::size_t left = held_.size() / 2; held_.size() > left;) free(random_.below(held_.size()));
    }
    return "allocate " + std::to_string(bytes.count());
  }

  std::string free(std::size_t which) {
    std::swap(held_[which], held_.back());
    const Held held = held_.back();
    held_.pop_back();
    allocator_.free(held.address);
    if (held.shared) pending_.push_back(held.address);
    return "free";
  }

  std::string share() {
    Held& held = held_[random_.below(held_.size())];
    allocator_.record_stream(held.address, StreamId{kStreams});
    held.shared = true;
    return "record_stream";
  }

  std::string complete() {
    allocator_.complete(pending_.front());
    pending_.erase(pending_.begin());
    return "complete";
  }

  std::string empty_cache() {
    allocator_.empty_cache();
    pending_.clear();
    return "empty_cache";
  }

  Random random_;
  Bytes memory_;
  Settings settings_;
  std::unique_ptr<AddressSource> addresses_;
  CachingAllocator allocator_;
  std::vector<Held> held_;
  std::vector<std::uint64_t> pending_;
};

TEST(RandomOperations, AMillionKeepTheInvariants) {
  for (int seed = 0; seed < 100 * rounds(); ++seed) {
    RandomRun(static_cast<std::uint64_t>(seed)).run(10'000);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

/// Best fit with the default settings, written the slow plain way: segments are lists of blocks, and each request looks
/// at all of them.
class Plain {
 public:
  std::uint64_t allocate(std::int64_t bytes, int stream) {
    const std::int64_t size = (bytes + 511) / 512 * 512;
    const bool large = size > 1048576;
    Spot best;
    for (PlainSegment& segment : segments_) {
      if (segment.stream != stream || segment.large != large) continue;
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        const Piece& piece = segment.blocks[i];
        if (piece.used || piece.size < size) continue;
        const Spot spot{&segment, i, piece.size, piece.address};
        if (best.segment == nullptr || std::tie(spot.size, spot.address) < std::tie(best.size, best.address))
          best = spot;
      }
    }
    if (best.segment == nullptr) best = grow(size, large, stream);
    return take(best, size);
  }

  void free(std::uint64_t address) {
    for (PlainSegment& segment : segments_) {
      auto& blocks = segment.blocks;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (blocks[i].address != address) continue;
        blocks[i].used = false;
        for (std::size_t j = 0; j + 1 < blocks.size();) {
          if (blocks[j].used || blocks[j + 1].used) {
            ++j;
            continue;
          }
          blocks[j].size += blocks[j + 1].size;
          blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(j) + 1);
        }
        return;
      }
    }
  }

 private:
  struct Piece {
    std::uint64_t address = 0;
    std::int64_t size = 0;
    bool used = false;
  };
  struct PlainSegment {
    int stream = 0;
    bool large = false;
    std::vector<Piece> blocks;
  };
  struct Spot {
    PlainSegment* segment = nullptr;
    std::size_t index = 0;
    std::int64_t size = 0;
    std::uint64_t address = 0;
  };

  Spot grow(std::int64_t size, bool large, int stream) {
    const std::int64_t bytes = !large ? 2097152 : size < 10485760 ? 20971520 : (size + 2097151) / 2097152 * 2097152;
    const std::uint64_t address = addresses_.reserve(Bytes(bytes));
    segments_.push_back({stream, large, {{address, bytes, false}}});
    return {&segments_.back(), 0, bytes, address};
  }

  static std::uint64_t take(const Spot& spot, std::int64_t size) {
    auto& blocks = spot.segment->blocks;
    Piece& piece = blocks[spot.index];
    piece.used = true;
    const std::int64_t rest = piece.size - size;
    if (spot.segment->large ? rest > 1048576 : rest >= 512) {
      piece.size = size;
      const Piece tail{piece.address + static_cast<std::uint64_t>(size), rest, false};
      blocks.insert(blocks.begin() + static_cast<std::ptrdiff_t>(spot.index) + 1, tail);
    }
    return spot.address;
  }

  FreshAddresses addresses_;
  std::vector<PlainSegment> segments_;
};

TEST(RandomOperations, GiveTheAddressesOfAPlainBestFit) {
  for (int seed = 0; seed < 20 * rounds(); ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    FreshAddresses addresses;
    CachingAllocator allocator({}, addresses);
    Plain plain;
    std::vector<std::uint64_t> held;
    for (int i = 0; i < 5'000; ++i) {
      if (held.size() < 20 || (held.size() < 200 && random.one_in(2))) {
        const Bytes bytes = random.size(64 * kMiB);
        const int stream = static_cast<int>(random.below(2));
        const auto block = std::get<Block>(allocator.allocate(bytes, StreamId{static_cast<std::uint16_t>(stream)}));
        ASSERT_EQ(block.address, plain.allocate(bytes.count(), stream)) << "seed " << seed << ", operation " << i;
        held.push_back(block.address);
      } else {
        std::swap(held[random.below(held.size())], held.back());
        allocator.free(held.back());
        plain.free(held.back());
        held.pop_back();
      }
    }
  }
}

TEST(FreeSet, IsAnOrderedSet) {
  Random random(1);
  internal::FreeSet set;
  std::set<internal::FreeEntry> plain;
  for (int i = 0; i < 100'000; ++i) {
    const internal::FreeEntry entry{random.below(50), random.below(40), 0};
    const auto at = set.lower_bound(entry.size, entry.address);
    const auto expected = plain.lower_bound(entry);
    ASSERT_EQ(at == set.end(), expected == plain.end());
    if (expected != plain.end()) {
      ASSERT_EQ(set[at], *expected);
      const bool is_last = set.next(at) == set.end();
      ASSERT_EQ(is_last, std::next(expected) == plain.end());
      if (!is_last) {
        ASSERT_EQ(set[set.next(at)], *std::next(expected));
      }
      ASSERT_EQ(at == set.begin(), expected == plain.begin());
      if (at != set.begin()) {
        ASSERT_EQ(set[set.previous(at)], *std::prev(expected));
      }
    }
    if (expected != plain.end() && *expected == entry) {
      set.erase(entry.size, entry.address);
      plain.erase(expected);
    } else {
      set.insert(entry);
      plain.insert(entry);
    }
    ASSERT_EQ(set.size(), plain.size());
  }
}
}  // namespace
}  // namespace cinch::allocator
