#pragma once
// Optimizer state that does not lie in the device's memory: on the host, or in a file.
//
//   auto optimizer = optim::offloaded(optim::adamw(groups), {.place = optim::OffloadPlace::kDisk, .folder =
//   "/scratch"});
//
// A step brings the state in one parameter at a time, into two buffers of the largest parameter's state: while one
// parameter is stepped, another thread writes the one before back and reads the one after. The arithmetic is the
// optimizer's own: results are equal to the bit.
//
// On CUDA the host's memory is pinned, and a side stream does what that thread does elsewhere; it and the computing
// stream wait for each other by events, the host for neither. Where the device is the CPU, "the host" is memory that
// the tensors' allocator (its cap, its recorder) does not count.

#include <filesystem>
#include <memory>

#include "cinch/optim/optimizer.h"

namespace cinch::optim {

enum class OffloadPlace : std::uint8_t {
  kHost,
  kDisk,  ///< A file without a name in `folder`, mapped: gone with the process, whatever ends it. A checkpoint keeps
          ///< state.
};
struct OffloadOptions {
  OffloadPlace place = OffloadPlace::kHost;
  std::filesystem::path folder = {};  ///< Of kDisk; has to exist.
};

/// `optimizer` as adamw() and its like return it, not stepped yet (UsageError), over parameters of one device, the CPU
/// or a CUDA one (UnsupportedError). State is made at the first step, which reserves all of its room first: IoError if
/// the disk is full, before any weight has changed. An error of the disk later (IoError) leaves part of the parameters
/// stepped; the optimizer then refuses to go on until load_state(). state() gives views of the memory or the mapped
/// file: saving makes no copy. On CUDA it waits for copies under way, and what it gave is right until the next step:
/// call it again after that. With in_backward() around it each parameter is brought in when its gradient is whole, one
/// after the other.
std::unique_ptr<Optimizer> offloaded(std::unique_ptr<Optimizer> optimizer, OffloadOptions options = {});
}  // namespace cinch::optim
