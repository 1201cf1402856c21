#pragma once
// What several families of rules need: layouts that kernels give their results, copies that they make of arguments.

#include <algorithm>
#include <initializer_list>
#include <vector>

#include <ATen/TensorIterator.h>

#include "cinch/dryrun/op_rules.h"

namespace cinch::dryrun::internal {

inline std::int64_t round_up(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

/// Of scaled dot-product attention's forward: two products a pair of query and key; a causal mask leaves half of the pairs
/// out. Backward takes 2.5 times that, five products: the scores again, and the gradients of scores, query, key and value.
inline double attention_flops(const at::Tensor& query, const at::Tensor& key, bool causal) {
  return 4.0 * static_cast<double>(query.numel()) * static_cast<double>(key.size(-2)) * (causal ? 0.5 : 1.0);
}

/// ATen/native/Copy.cpp, copy_transpose_valid(): a 2-d transposed source goes through one 60 × 60 tile.
inline Bytes tile_of_copy(const at::Tensor& from) {
  const bool transposes =
      from.dim() == 2 && from.stride(0) == 1 && from.stride(1) == from.size(0) && from.numel() >= 60 * 60;
  return transposes ? bytes_of(60 * 60, from.scalar_type()) : Bytes();
}

/// What tensor.contiguous() takes while it copies: nothing if there is nothing to do.
inline std::vector<Bytes> contiguous_copy(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_contiguous()) return {};
  return {bytes_of(tensor), tile_of_copy(tensor)};
}

template <std::size_t First, std::size_t Last = First>
std::vector<Bytes> contiguous_copies(const OpArguments& arguments) {
  std::vector<Bytes> all;
  for (std::size_t i = First; i <= Last; ++i)
    for (const auto bytes : contiguous_copy(arguments.tensor(i))) all.push_back(bytes);
  return all;
}

/// Of a reduction to one element over several threads: one element a thread (ATen/native/TensorIteratorReduce.cpp,
/// two_pass_reduction; at::internal::GRAIN_SIZE).
inline Bytes thread_buffer(std::int64_t elements, int threads, at::ScalarType dtype) {
  constexpr std::int64_t kGrainSize = 32768;
  return elements >= kGrainSize && threads > 1 ? bytes_of(threads, dtype) : Bytes();
}

/// A mean is a sum divided in place by a number, which becomes a tensor and is cast.
inline Bytes divisor(at::ScalarType dtype) { return bytes_of(1, at::kLong) + bytes_of(1, dtype); }

/// What TensorIterator gives an op of these inputs: their sizes broadcast, the order of their strides, `dtype`.
inline at::Tensor iterated(std::initializer_list<at::Tensor> inputs, at::ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).add_owned_output(at::Tensor());
  for (const auto& input : inputs)
    config.add_owned_const_input(at::empty_strided(input.sizes(), input.strides(), input.options().device(at::kMeta)));
  return config.declare_static_dtype_and_device(dtype, at::kMeta).build().output();
}

/// Not the case that kernels are written for: float32 or float64, all contiguous or all channels last.
template <std::size_t First, std::size_t Last = First>
bool is_unusual(const OpArguments& arguments) {
  if (arguments.on_cuda()) return false;
  const auto format =
      arguments.tensor(Last).defined() ? arguments.tensor(Last).suggest_memory_format() : at::MemoryFormat::Contiguous;
  for (std::size_t i = First; i <= Last; ++i) {
    const auto tensor = arguments.tensor(i);
    if (!tensor.defined()) continue;
    if (at::isReducedFloatingType(tensor.scalar_type()) || tensor.is_complex()) return true;
    if (!tensor.is_contiguous(format)) return true;
  }
  return false;
}
}  // namespace cinch::dryrun::internal
