#pragma once
// What an out-of-memory message says, and whether an allocator setting could have helped, from the text alone.
//
//   const OomReport report = parse_oom_text(pasted);     // a whole log may be around it
//   const OomError& error = report.errors.front();
//   if (error.verdict == Verdict::kNo) puts(to_string(error.short_by->bytes).c_str());
//
// Knows the sentences of PyTorch 1.0 to 2.15: c10/cuda/CUDACachingAllocator.cpp and CUDAMallocAsyncAllocator.cpp (also
// as HIP), c10/xpu/XPUCachingAllocator.cpp, aten/src/ATen/mps/MPSAllocator.mm, c10/core/impl/alloc_cpu.cpp.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/core/bytes.h"

namespace cinch::inspect {

/// A number of bytes known to lie in [least, most]: "9.35 GiB" is printed for whatever is within 0.005 GiB of it.
struct Printed {
  Bytes bytes;  ///< As printed.
  Bytes least, most;
};

/// Whether an allocator setting could have helped.
enum class Verdict {
  kPossible,          ///< Enough was free, though not in one piece: asked ≤ room.
  kNo,                ///< Even with no fragmentation it is too little: asked > room.
  kNotFragmentation,  ///< The card alone had room, asked ≤ free, and no memory fraction forbade it: refused otherwise.
  kUncertain          ///< The printed figures are too coarse, or too few, to say.
};

/// One error.
struct OomError {
  enum class Source {
    kCuda,       ///< The caching allocator.
    kHip,        ///< The same on AMD.
    kXpu,        ///< Intel's.
    kMps,        ///< Apple's.
    kCudaAsync,  ///< backend:cudaMallocAsync.
    kCpu,        ///< Host memory.
    kDriver      ///< CUDA or a library on it (cuBLAS, NCCL): no figures.
  };
  struct Process {
    std::int64_t id = 0;
    Printed in_use;
    /// It holds as much as PyTorch says it has here: inside a container a process does not know its own number.
    bool perhaps_this = false;
  };

  Source source = Source::kCuda;
  std::optional<int> device;
  std::optional<Printed> asked;          ///< What the driver was asked for: a segment, see `asked_is_segment`.
  std::optional<Printed> capacity;       ///< Of the card.
  std::optional<Printed> free;           ///< On the card, as the driver says.
  std::optional<Printed> allowed;        ///< By a memory fraction.
  std::optional<Printed> block_limit;    ///< Largest single allocation there, where the message names one.
  std::optional<Printed> allocated;      ///< In tensors, with what could not be split off; private pools included.
  std::optional<Printed> unallocated;    ///< Reserved but unallocated.
  std::optional<Printed> private_pools;  ///< Kept by CUDA graphs and such: no other request may have it.
  std::optional<Printed> this_process;   ///< With what is not PyTorch's.
  /// Of the card, what is neither free nor this program's as far as the message tells (PyTorch's own, where it tells no
  /// more), nor a listed process's: capacity − free − these. None where a figure is missing.
  std::optional<Printed> elsewhere;
  std::vector<Process> processes;  ///< Others on the card.
  std::string advice;              ///< The message's own: "expandable_segments:True", "max_split_size_mb"; or "".
  /// 2 or 20 MiB: the segment that PyTorch wants for a tensor of up to 1, or of 1 to 10 MiB, which may be far smaller.
  bool asked_is_segment = false;

  std::size_t offset = 0;  ///< Of its first letter in the text.
  std::size_t times = 1;   ///< That the same error occurs in the text.

  Verdict verdict = Verdict::kUncertain;
  /// The most that one request could have had under any setting: what is free on the card, or allowed if that is less,
  /// and what is reserved but unallocated. None where the message does not say.
  std::optional<Printed> room;
  std::optional<Printed> short_by;  ///< asked − room, where the verdict is kNo.
  /// The least and most that was missing by the rounded figures, negative to spare; none where `room` is.
  std::optional<std::pair<Bytes, Bytes>> short_by_range;
};

struct OomReport {
  std::vector<OomError> errors;  ///< Different ones, in order; not empty. The first is the one to look at.
};

/// Colours, line breaks within sentences and words, log prefixes and quoting do not matter. Time and memory are linear
/// in the text. Throws DataError, naming `name`, if there is no out-of-memory error in the text.
OomReport parse_oom_text(std::string_view text, std::string_view name = "standard input");
}  // namespace cinch::inspect
