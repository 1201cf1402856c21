#pragma once
// The bytes of a trace file. All numbers little-endian.
//
//   "CINCHTRC", u32 version
//   header: u8 source, u32 threads, text producer, text device       (text: u32 length, bytes)
//   records, each a u8 tag and:
//     kName    text                                     the next name; "" is there from the start
//     kOp      name, module u32; phase, recompute, dtype u8; step u32; flops f64; read, written i64
//     kEvent   action, phase, recompute u8; step, allocation, op, module u32; bytes, time i64
//     kTensor  allocation u32; dtype, rank u8; rank times i64
//     kLabel   allocation u32; category u8; name u32
//     kEnd     u64 number of records before; the file ends here
//
// A name comes before its first use, an event before tensors and labels of its allocation. An event may name an op that
// comes later. kEnd tells a whole file from one that was cut between two records.

#include <array>
#include <cstdint>
#include <filesystem>
#include <istream>

#include "cinch/trace/sink.h"

namespace cinch::trace::internal {

inline constexpr std::array<char, 8> kMagic{'C', 'I', 'N', 'C', 'H', 'T', 'R', 'C'};
inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint8_t kMaxRank = 64;  ///< What LibTorch allows.

enum class Tag : std::uint8_t { kEnd = 0, kName = 1, kOp = 2, kEvent = 3, kTensor = 4, kLabel = 5 };

/// Reads a trace of `size` bytes from `in` and pushes it into `sink`. `file` is for messages. Throws DataError.
void read_trace(std::istream& in, std::uint64_t size, const std::filesystem::path& file, Sink& sink);
}  // namespace cinch::trace::internal
