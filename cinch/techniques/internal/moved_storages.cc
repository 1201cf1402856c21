#include "cinch/techniques/internal/moved_storages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "cinch/record/recorder.h"
#include "cinch/techniques/internal/kept_outputs.h"

namespace cinch::techniques::internal {
namespace {

/// How much smaller than the largest an op's saved tensor is, to be a statistic of it.
constexpr std::int64_t kStatistic = 8;

/// Storages fetched ahead are looked for among this many before the one in use.
constexpr int kLookBack = 32;

/// Identity of the counter that a tensor shares with its views; nullptr for an inference tensor, which has none.
const void* counter_of(const at::Tensor& tensor) {
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  static_assert(sizeof counter == sizeof(void*), "a version counter is one pointer");
  const void* pointer = nullptr;
  std::memcpy(&pointer, static_cast<const void*>(&counter), sizeof pointer);
  return pointer;
}

bool is_parameter(const at::TensorBase& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

/// What we do ourselves is not the program's: not to those who watch its ops.
struct OwnOps {
  at::DisableRecordFunctionGuard unseen;
  NoKeeping unkept;
};

}  // namespace

struct MovedStorages::Unit {
  std::uint64_t serial;
  std::optional<Key> key;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  ///< Its address is not given to another meanwhile.
  std::thread::id thread;
  Saves saves;  ///< Of the op that saved it first.
  Bytes bytes;
  at::Tensor source;  ///< Flat, while it is here.
  std::unique_ptr<Away> away = nullptr;
  at::Tensor back = {};  ///< Flat, from its fetching until each handle has had it.
  int handles = 0;
  int waiting = 0;  ///< Handles that have not had `back`.
  std::uint64_t fetches = 0;
  int served = -1;  ///< The backward pass in which all handles have had it.
};

/// One saved tensor: a view of a unit.
class MovedStorages::Handle final : public SavedHandle {
 public:
  Handle(std::shared_ptr<MovedStorages> all, Unit& unit, const at::Tensor& tensor)
      : unit(unit),
        all_(std::move(all)),
        sizes_(tensor.sizes()),
        strides_(tensor.strides()),
        offset_(tensor.storage_offset()) {}
  ~Handle() override { all_->release(*this); }
  at::Tensor unpack() override {
    const OwnOps own;
    return all_->fetch(*this).as_strided(sizes_, strides_, offset_);
  }

  Unit& unit;
  std::uint64_t had = 0;  ///< The last fetch of the unit that it has had.

 private:
  std::shared_ptr<MovedStorages> all_;
  at::DimVector sizes_, strides_;
  std::int64_t offset_;
};

MovedStorages::MovedStorages(Send send, MoveOptions options) : send_(std::move(send)), options_(std::move(options)) {
  for (const auto& tensor : options_.keep) {
    if (tensor.defined() && tensor.has_storage()) kept_.insert(tensor.storage().unsafeGetStorageImpl());
  }
}

MovedStorages::~MovedStorages() = default;

bool MovedStorages::stays(const at::Tensor& tensor) const {
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_quantized() || tensor.is_meta())
    return true;
  if (tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor()) return true;
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  if (bytes < kSmallestMoved || bytes % tensor.element_size() != 0) return true;
  if (is_parameter(tensor) || (tensor.is_view() && is_parameter(tensor._base()))) return true;
  if (kept_.count(tensor.storage().unsafeGetStorageImpl()) != 0) return true;
  return options_.takes && !options_.takes(tensor);
}

std::unique_ptr<SavedHandle> MovedStorages::pack(const at::Tensor& tensor) {
  const OwnOps own;
  const std::lock_guard lock(mutex_);
  settle();
  const auto& saves = note_save(tensor);
  if (stays(tensor)) return nullptr;
  auto& unit = unit_of(tensor, saves);
  ++unit.handles;
  if (unit.back.defined()) ++unit.waiting;
  return std::make_unique<Handle>(shared_from_this(), unit, tensor);
}

const MovedStorages::Saves& MovedStorages::note_save(const at::Tensor& tensor) {
  auto& saves = saves_[std::this_thread::get_id()];
  const auto now = at::sequence_number::peek();
  if (!saves.largest || saves.sequence != now) saves = {now, std::make_shared<std::int64_t>(0)};
  *saves.largest = std::max(*saves.largest, tensor.numel());
  return saves;
}

MovedStorages::Unit& MovedStorages::unit_of(const at::Tensor& tensor, const Saves& saves) {
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  std::optional<Key> key;
  if (const void* counter = counter_of(tensor)) {
    key.emplace(storage, counter, static_cast<std::uint32_t>(tensor._version()), tensor.scalar_type());
    if (const auto known = by_key_.find(*key); known != by_key_.end()) return *known->second;
  }
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  auto unit = std::unique_ptr<Unit>(
      new Unit{.serial = next_serial_++,
               .key = key,
               .storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
                   c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl())),
               .thread = std::this_thread::get_id(),
               .saves = saves,
               .bytes = Bytes(bytes),
               .source = tensor.detach().as_strided({bytes / tensor.element_size()}, {1}, 0)});
  auto& made = *unit;
  fresh_.push_back(&made);
  units_.emplace(made.serial, std::move(unit));
  if (key) by_key_.emplace(*key, &made);
  return made;
}

void MovedStorages::settle() {
  const auto thread = std::this_thread::get_id();
  const auto now = at::sequence_number::peek();
  for (auto next = fresh_.begin(); next != fresh_.end();) {
    auto& unit = **next;
    if (unit.thread != thread || unit.saves.sequence == now) {
      ++next;
    } else {
      next = fresh_.erase(next);
      begin_leaving(unit);
    }
  }
}

void MovedStorages::begin_leaving(Unit& unit) {
  unit.away = send_(unit.source, unit.source.numel() * kStatistic <= *unit.saves.largest);
  if (!unit.away) return;
  leaving_.push_back(&unit);
  leaving_bytes_ += unit.bytes;
  while (!leaving_.empty() && !has_room(leaving_.size(), leaving_bytes_)) let_go();
}

void MovedStorages::let_go() {
  auto& unit = *leaving_.front();
  leaving_.pop_front();
  leaving_bytes_ -= unit.bytes;
  try {
    unit.away->finish_leaving();
  } catch (...) {
    unit.away.reset();  // it stays, then
    throw;
  }
  unit.source.reset();
}

at::Tensor MovedStorages::fetch(Handle& handle) {
  const int task = torch::autograd::get_current_graph_task_id();  // -1 outside any
  const std::lock_guard lock(mutex_);
  auto& unit = handle.unit;
  if (unit.source.defined()) {
    auto source = unit.source;
    fetch_ahead(unit, task);
    return source;
  }
  if (!unit.back.defined()) bring_back(unit, task);
  try {
    unit.away->finish_coming();
  } catch (...) {
    drop_back(unit);
    throw;
  }
  auto back = unit.back;
  if (std::exchange(handle.had, unit.fetches) != unit.fetches) --unit.waiting;
  if (unit.waiting == 0 || task < 0) {
    drop_back(unit);
    unit.served = task;
  }
  fetch_ahead(unit, task);
  return back;
}

void MovedStorages::bring_back(Unit& unit, int task) {
  unit.back = unit.away->come_back();
  record::label(unit.back, trace::Category::kActivation, trace::kBroughtBack);
  ++unit.fetches;
  unit.waiting = unit.handles;
  ++ahead_;
  ahead_bytes_ += unit.bytes;
  if (task < 0 || !tasks_.insert(task).second) return;
  // A backward that does not reach all of the graph leaves storages here.
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), task] {
    if (const auto all = weak.lock()) all->end_task(task);
  });
}

void MovedStorages::fetch_ahead(const Unit& unit, int task) {
  if (task < 0) return;
  auto next = units_.find(unit.serial);
  for (int seen = 0; next != units_.begin() && seen < kLookBack; ++seen) {
    auto& before = *(--next)->second;
    if (before.source.defined() || before.back.defined() || before.served == task) continue;
    if (!has_room(ahead_ + 1, ahead_bytes_ + before.bytes)) return;
    bring_back(before, task);
  }
}

void MovedStorages::drop_back(Unit& unit) noexcept {
  if (!unit.back.defined()) return;
  try {
    if (unit.away) unit.away->finish_coming();  // nobody may write what is free
  } catch (const std::exception&) {             // nobody needs it
  }
  unit.back.reset();
  --ahead_;
  ahead_bytes_ -= unit.bytes;
}

void MovedStorages::release(Handle& handle) noexcept {
  const std::lock_guard lock(mutex_);
  auto& unit = handle.unit;
  if (--unit.handles > 0) {
    if (unit.back.defined() && handle.had != unit.fetches && --unit.waiting == 0) drop_back(unit);
    return;
  }
  if (unit.key) by_key_.erase(*unit.key);
  std::erase(fresh_, &unit);
  if (std::erase(leaving_, &unit) > 0) leaving_bytes_ -= unit.bytes;
  const auto leaving = units_.extract(unit.serial);
  auto& gone = *leaving.mapped();
  gone.away.reset();  // it may be reading `source` or writing `back`
  drop_back(gone);
}

void MovedStorages::end_task(int task) {
  const std::lock_guard lock(mutex_);
  tasks_.erase(task);
  for (auto& [serial, unit] : units_) drop_back(*unit);
}

bool MovedStorages::has_room(std::size_t count, Bytes bytes) const {
  return options_.in_flight ? bytes <= *options_.in_flight : count <= 2;
}

}  // namespace cinch::techniques::internal
