#pragma once
// Activation offloading: what autograd saves leaves the device until backward needs it.
//
//   Offload offload;                                      // to host memory; {.folder = "/scratch"}: to a file
//   { SavedTensorScope scope(offload);  loss = net->forward(x).sum(); }
//   loss.backward();                                      // bitwise the same gradients
//
// Rules as torchtune's _activation_offloading.py: parameters, views of them and tensors below 1 KiB stay; a storage is
// moved once, however many saved tensors share it; it is copied by another thread (on CUDA: on a side stream, through
// pinned memory), and freed when the copy is whole; backward fetches ahead of its needs.
//
// Where the device is the CPU, its host memory is a second arena: pages that no recorder or cap counts as the device's.
// The policy may be used for many steps, and should be: it keeps its pages. One step's graphs share it, so that what
// leaves and what comes back is bounded over all of them.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/techniques/saved_tensors.h"

namespace cinch::techniques {

struct OffloadOptions {
  std::filesystem::path folder = {};  ///< Of a file that has no name and goes with the process. Empty: host memory.
  /// On the device beyond what is in use: of tensors that are leaving, and again of those fetched ahead. None: two of
  /// each. 0: each copy is waited for.
  std::optional<Bytes> in_flight = {};
  std::vector<at::Tensor> keep = {};  ///< Stay, with their views: buffers, and parameters that are frozen.
  std::function<void()> before_copy =
      {};  ///< Called before each copy, by the thread that copies: to test what a slow one does.
};

/// Bytes of storages, as the device would count them. A dry run counts the same.
struct OffloadStats {
  Bytes away, away_peak;  ///< Now and at most: in host memory or on disk.
  Bytes sent, fetched;    ///< Since the policy was made.
};

/// Bitwise. Saved tensors outlive it. Full disk and the like: IoError, from an op of forward or from backward; the
/// tensor is not lost. From CUDA to a file, and from other devices: UnsupportedError.
class Offload final : public SavedTensorPolicy {
 public:
  explicit Offload(OffloadOptions options = {});
  ~Offload() override;
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;
  std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor) override;
  OffloadStats stats() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};
}  // namespace cinch::techniques
