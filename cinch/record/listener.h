#pragma once
// The one place every CPU tensor allocation of the process passes: the listener of the moment.
//
// Three listeners exist: the Producer of a Recorder, the Producer of a DryRun (for small real tensors), and a dry run's
// probe of one kernel. At most one is in force; it is set and removed, while the allocator stays for good.

#include <cstdint>
#include <mutex>

#include "cinch/core/bytes.h"
#include "cinch/trace/event.h"

namespace cinch::record {

/// Travels with every allocation that cinch's allocator or a dry run made: in front of a real one's data, in a fake one's
/// context.
struct AllocationTag {
  std::uint64_t listener = 0;  ///< Serial number of the listener that saw it; 0: nobody.
  std::int64_t bytes = 0;
  trace::AllocationId id = trace::kNoAllocation;
  trace::Category category = trace::Category::kUnknown;  ///< As far as is known while it lives.
};

class Listener {
 public:
  Listener();
  virtual ~Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Under the lock. Fills `tag`; may throw to refuse the allocation.
  virtual void on_allocate(Bytes bytes, AllocationTag& tag) = 0;
  /// Under the lock, for tags of this listener only.
  virtual void on_free(const AllocationTag& tag) noexcept = 0;
  std::uint64_t serial() const { return serial_; }
  /// False: it hears of fake memory alone. For a dry run on a card, where real memory is the host's.
  bool hears_real_memory = true;

 private:
  std::uint64_t serial_;
};

/// Puts `listener` in force (nullptr: none) and returns the one before. Installs the allocator at the first call.
Listener* exchange_listener(Listener* listener);

/// Tells the listener in force, if there is one and the thread is not muted; real memory also if it does not listen to it.
void tell_allocated(Bytes bytes, AllocationTag& tag, bool real = false);
void tell_freed(const AllocationTag& tag) noexcept;

/// The lock under which listeners are told: for whoever else touches what a listener keeps.
[[nodiscard]] std::unique_lock<std::mutex> lock_listeners();

/// The tag of memory with this data pointer and deleter; nullptr if it was made elsewhere.
AllocationTag* tag_of(const void* context, void (*deleter)(void*)) noexcept;
/// A dry run registers the deleter of its fake memory, whose context is a tag.
void set_fake_deleter(void (*deleter)(void*)) noexcept;

/// Of the calling thread: while the sum is above 0 its allocations are told to nobody.
void change_muted(int by) noexcept;

}  // namespace cinch::record
