#pragma once
// Between the store of offloaded state and the buffers in which it is stepped, behind the computation's back.

#include <cstddef>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "cinch/optim/internal/state_store.h"

namespace cinch::optim::internal {

/// One parameter's bytes.
struct InStore {
  StateStore* store = nullptr;
  std::size_t offset = 0, bytes = 0;
};

/// No race, by construction: begin() is ordered after what computes on the buffer so far, and what is computed after
/// wait() is ordered after what was begun. On the CPU another thread moves; on CUDA a side stream does, both orders are
/// events of the device, and the host waits only for a disk. Buffers may go when wait() has returned.
class StateCarrier {
 public:
  virtual ~StateCarrier() = default;
  /// Moves what `buffer` holds to `out`, if any, then `in` into it, if any. One begin() at a time: wait() comes
  /// between.
  virtual void begin(const at::Tensor& buffer, std::optional<InStore> out, std::optional<InStore> in) = 0;
  virtual void wait() = 0;  ///< Throws IoError.
  /// Returns when the host may touch what is in the store.
  virtual void settle() = 0;
};

/// For buffers on `device`, CPU or CUDA. `pinned`: the stores' memory is, and copies go there directly; else through a
/// pinned buffer of their own.
std::unique_ptr<StateCarrier> make_carrier(at::Device device, bool pinned);
}  // namespace cinch::optim::internal
