#include "cinch/techniques/internal/blockwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

// The loops below are the work: vectors for the processor at hand, chosen when the program starts.
#if defined(__GNUC__) && !defined(__clang__)
#define CINCH_VECTORIZE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define CINCH_VECTORIZE
#endif

namespace cinch::techniques::internal {
namespace {

/// Codes of numbers are -126 to 126.
constexpr float kLargestCode = 126;
constexpr int kInfinity = 127, kNan = -128;

std::int64_t blocks_of(std::int64_t elements) { return (elements + kBlock - 1) / kBlock; }
std::int64_t stored_bytes(std::int64_t elements) {
  return blocks_of(elements) * static_cast<std::int64_t>(sizeof(float)) + elements;
}
/// Blocks a task takes: some microseconds of work.
constexpr std::int64_t kGrain = 256;

/// `values` become codes; returns the scale.
CINCH_VECTORIZE float encode(const float* values, std::int8_t* codes, std::int64_t count) {
  float largest = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(values[i]);
    const bool counts = magnitude <= std::numeric_limits<float>::max();
    largest = std::max(largest, counts ? magnitude : 0.0F);
    finite &= counts;
  }
  const float scale = largest / kLargestCode;
  const float inverse = scale > 0 ? 1 / scale : 0;
  const bool tiny = !(inverse <= std::numeric_limits<float>::max());  // all denormal: they are as good as zero
  const float factor = tiny ? 0 : inverse;
  if (finite) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float code = values[i] * factor;
      codes[i] = static_cast<std::int8_t>(static_cast<int>(code + std::copysign(0.5F, code)));
    }
    return scale;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(values[i]))
      codes[i] = kNan;
    else if (std::isinf(values[i]))
      codes[i] = static_cast<std::int8_t>(values[i] > 0 ? kInfinity : -kInfinity);
    else
      codes[i] = static_cast<std::int8_t>(std::lrintf(values[i] * factor));
  }
  return -scale;  // says that the block has such codes
}

CINCH_VECTORIZE void decode(const std::int8_t* codes, float scale, float* values, std::int64_t count) {
  if (!std::signbit(scale)) {
    for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(codes[i]) * scale;
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (codes[i] == kNan)
      values[i] = std::numeric_limits<float>::quiet_NaN();
    else if (codes[i] == kInfinity)
      values[i] = std::numeric_limits<float>::infinity();
    else if (codes[i] == -kInfinity)
      values[i] = -std::numeric_limits<float>::infinity();
    else
      values[i] = static_cast<float>(codes[i]) * -scale;
  }
}

template <class T>
void encode_all(const T* values, std::uint8_t* stored, std::int64_t elements) {
  auto* codes = reinterpret_cast<std::int8_t*>(stored + blocks_of(elements) * sizeof(float));
  at::parallel_for(0, blocks_of(elements), kGrain, [&](std::int64_t first, std::int64_t last) {
    float buffer[kBlock];
    for (auto block = first; block < last; ++block) {
      const auto begin = block * kBlock, count = std::min(kBlock, elements - begin);
      const float* source = buffer;
      if constexpr (std::is_same_v<T, float>) {
        source = values + begin;
      } else {
        for (std::int64_t i = 0; i < count; ++i) buffer[i] = static_cast<float>(values[begin + i]);
      }
      const float scale = encode(source, codes + begin, count);
      std::memcpy(stored + block * sizeof(float), &scale, sizeof scale);
    }
  });
}

template <class T>
void decode_all(const std::uint8_t* stored, T* values, std::int64_t elements) {
  const auto* codes = reinterpret_cast<const std::int8_t*>(stored + blocks_of(elements) * sizeof(float));
  at::parallel_for(0, blocks_of(elements), kGrain, [&](std::int64_t first, std::int64_t last) {
    float buffer[kBlock];
    for (auto block = first; block < last; ++block) {
      const auto begin = block * kBlock, count = std::min(kBlock, elements - begin);
      float scale = 0;
      std::memcpy(&scale, stored + block * sizeof(float), sizeof scale);
      if constexpr (std::is_same_v<T, float>) {
        decode(codes + begin, scale, values + begin, count);
      } else {
        decode(codes + begin, scale, buffer, count);
        for (std::int64_t i = 0; i < count; ++i) values[begin + i] = static_cast<T>(buffer[i]);
      }
    }
  });
}

at::Tensor compress_on_cpu(const at::Tensor& flat) {
  auto stored = at::empty({stored_bytes(flat.numel())}, flat.options().dtype(at::kByte));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, flat.scalar_type(), "compress_int8", [&] {
    encode_all(flat.const_data_ptr<scalar_t>(), stored.mutable_data_ptr<std::uint8_t>(), flat.numel());
  });
  return stored;
}

at::Tensor expand_on_cpu(const at::Tensor& stored, std::int64_t elements, at::ScalarType dtype) {
  auto flat = at::empty({elements}, stored.options().dtype(dtype));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "expand_int8", [&] {
    decode_all(stored.const_data_ptr<std::uint8_t>(), flat.mutable_data_ptr<scalar_t>(), elements);
  });
  return flat;
}

at::Tensor compress_on_meta(const at::Tensor& flat) {
  return at::empty({stored_bytes(flat.numel())}, flat.options().dtype(at::kByte));
}

at::Tensor expand_on_meta(const at::Tensor& stored, std::int64_t elements, at::ScalarType dtype) {
  return at::empty({elements}, stored.options().dtype(dtype));
}

void register_ops() {
  static const auto* libraries = [] {
    auto* all = new std::vector<torch::Library>;  // for good
    auto& ops = all->emplace_back(torch::Library::FRAGMENT, "cinch", std::nullopt, __FILE__, __LINE__);
    ops.def("compress_int8(Tensor flat) -> Tensor");
    ops.def("expand_int8(Tensor stored, int elements, ScalarType dtype) -> Tensor");
    auto& cpu = all->emplace_back(torch::Library::IMPL, "cinch", c10::DispatchKey::CPU, __FILE__, __LINE__);
    cpu.impl("compress_int8", &compress_on_cpu);
    cpu.impl("expand_int8", &expand_on_cpu);
    auto& meta = all->emplace_back(torch::Library::IMPL, "cinch", c10::DispatchKey::Meta, __FILE__, __LINE__);
    meta.impl("compress_int8", &compress_on_meta);
    meta.impl("expand_int8", &expand_on_meta);
    return all;
  }();
  static_cast<void>(libraries);
}

template <class Signature>
auto find_op(const char* name) {
  register_ops();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

at::Tensor compress_int8(const at::Tensor& flat) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("cinch::compress_int8");
  return op.call(flat);
}

at::Tensor expand_int8(const at::Tensor& stored, std::int64_t elements, at::ScalarType dtype) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t, at::ScalarType)>("cinch::expand_int8");
  return op.call(stored, elements, dtype);
}

}  // namespace cinch::techniques::internal
