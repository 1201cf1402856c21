#pragma once
// safetensors files: u64 little-endian header length, JSON header, row-major little-endian data.
// Format: huggingface/safetensors, README "Format".

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace cinch::interchange {

struct Safetensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes and syncs `file` without a copy of the tensors in memory beyond a small buffer. Non-contiguous tensors are
/// written row-major. Equal content gives equal bytes: tensors by falling element size, then by name. Throws IoError (full
/// disk, no permission), UsageError for a tensor the format cannot hold (sparse, quantized, complex128, not on the CPU).
void save_safetensors(const std::filesystem::path& file, const Safetensors& content);

/// Throws DataError (what, offset) for anything the format forbids; sizes are checked before they are believed. The
/// tensors are freshly allocated copies.
Safetensors load_safetensors(const std::filesystem::path& file);

/// As load_safetensors(), but the tensors lie in the file, mapped: no tensor memory is allocated (a tensor that the file
/// does not align is copied all the same). Writing to them does not reach the file. The map lives as long as any of them;
/// the file must not shrink meanwhile.
Safetensors map_safetensors(const std::filesystem::path& file);
}  // namespace cinch::interchange
