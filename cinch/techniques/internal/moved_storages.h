#pragma once
// Storages that graphs need in backward, kept in another form meanwhile: what offloading and compressing share.
//
// The unit is a storage, not a tensor: views share it, and what is saved twice is moved once. A storage begins to leave
// when the thread records the next op, not when it is saved: some ops save a tensor before they fill it (rrelu its
// noise). What leaves, and what is fetched ahead of its use, stays on the device within a bound; it is freed at points
// of the program that depend on sizes alone, never on how fast copies are, so a dry run frees it at the same ones.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cinch/core/bytes.h"
#include "cinch/techniques/saved_tensors.h"

namespace cinch::techniques::internal {

/// Storages below this stay: moving them costs more than they hold.
inline constexpr std::int64_t kSmallestMoved = 1024;

/// One storage in its other form. One thread at a time calls it. Destroying it waits for what is under way.
class Away {
 public:
  virtual ~Away() = default;
  /// Returns when the source may be freed. Throws what went wrong; then nothing has been moved.
  virtual void finish_leaving() {}
  /// Allocates the storage anew, as a flat tensor, and begins to fill it.
  virtual at::Tensor come_back() = 0;
  /// Returns when that tensor may be used. Throws what went wrong.
  virtual void finish_coming() {}
};

struct MoveOptions {
  /// Of storages that are leaving, and again of those fetched ahead. None: two of each. 0: nothing overlaps.
  std::optional<Bytes> in_flight = {};
  std::vector<at::Tensor> keep = {};                  ///< Their storages stay.
  std::function<bool(const at::Tensor&)> takes = {};  ///< Others stay. Empty: takes all.
};

class MovedStorages : public std::enable_shared_from_this<MovedStorages> {
 public:
  /// Of a flat tensor over the whole storage, which lives until finish_leaving() has returned. `statistic`: it is small
  /// beside what else its op saved, such as means or sums that stand for much. nullptr: it stays.
  using Send = std::function<std::unique_ptr<Away>(const at::Tensor& flat, bool statistic)>;
  MovedStorages(Send send, MoveOptions options);
  ~MovedStorages();
  MovedStorages(const MovedStorages&) = delete;
  MovedStorages& operator=(const MovedStorages&) = delete;

  /// nullptr for what stays: parameters and their views, what is small, what is not a plain tensor, what `options` say.
  /// Throws what the moving of earlier storages threw.
  std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor);

 private:
  class Handle;
  struct Unit;
  /// Storage, version counter, version, dtype: equal means equal bytes.
  using Key = std::tuple<const void*, const void*, std::uint32_t, at::ScalarType>;

  /// What an op saves.
  struct Saves {
    std::uint64_t sequence = 0;
    std::shared_ptr<std::int64_t> largest;  ///< Elements.
  };

  bool stays(const at::Tensor& tensor) const;
  const Saves& note_save(const at::Tensor& tensor);
  Unit& unit_of(const at::Tensor& tensor, const Saves& saves);
  void settle();
  void begin_leaving(Unit& unit);
  void let_go();
  at::Tensor fetch(Handle& handle);
  void bring_back(Unit& unit, int task);
  void fetch_ahead(const Unit& unit, int task);
  void drop_back(Unit& unit) noexcept;
  void release(Handle& handle) noexcept;
  void end_task(int task);
  bool has_room(std::size_t count, Bytes bytes) const;

  const Send send_;
  const MoveOptions options_;
  std::unordered_set<const void*> kept_;
  std::mutex mutex_;                                      ///< Of all below, and of every unit.
  std::map<std::uint64_t, std::unique_ptr<Unit>> units_;  ///< In the order of their first save.
  std::map<Key, Unit*> by_key_;
  std::map<std::thread::id, Saves> saves_;  ///< Of each thread's last op.
  std::vector<Unit*> fresh_;                ///< Their op may not have run yet.
  std::deque<Unit*> leaving_;               ///< Their sources are still here.
  Bytes leaving_bytes_;
  std::size_t ahead_ = 0;  ///< Brought back, not yet used by all that will.
  Bytes ahead_bytes_;
  std::set<int> tasks_;  ///< Backward passes that will call end_task().
  std::uint64_t next_serial_ = 0;
};
}  // namespace cinch::techniques::internal
