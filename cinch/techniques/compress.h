#pragma once
// What autograd saves, stored in fewer bits. Lossy: gradients are not plain training's.
//
//   Compress compress(Codec::kBf16);                  // alone, or into another policy:
//   Offload offload;  Compress both(Codec::kInt8, {.into = &offload});
//   { SavedTensorScope scope(both);  loss = net->forward(x).sum(); }
//
// The forward pass is untouched: its results are exact; only what backward reads is rounded.

#include <cstdint>
#include <memory>
#include <vector>

#include "cinch/techniques/saved_tensors.h"

namespace cinch::techniques {
namespace internal {
class MovedStorages;
}

enum class Codec : std::uint8_t {
  kBf16,  ///< fp32 as bf16: half the bytes, relative error at most 2^-8.
  kInt8,  ///< fp32, bf16, fp16 in blocks of 256, each scaled by its largest magnitude: a byte and 1/64 an element,
          ///< error at most 1/252 of that magnitude. Infinities and NaN stay what they are and do not spoil their
          ///< block.
};

struct CompressOptions {
  SavedTensorPolicy* into = nullptr;  ///< Where the compressed tensors, and those that are not, are saved. nullptr:
                                      ///< here. Must outlive the scope.
  std::vector<at::Tensor> keep = {};  ///< Not compressed, nor are their views. For buffers and frozen parameters.
};

/// Not compressed: other dtypes, parameters and their views, storages below 1 KiB, and what is at most an eighth of the
/// largest tensor that its op saves: an attention's log-sum-exp or a norm's deviations are few, and errors in them
/// grow.
class Compress final : public SavedTensorPolicy {
 public:
  explicit Compress(Codec codec, CompressOptions options = {});
  ~Compress() override;
  Compress(const Compress&) = delete;
  Compress& operator=(const Compress&) = delete;
  std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor) override;

 private:
  std::shared_ptr<internal::MovedStorages> storages_;
  SavedTensorPolicy* into_;
};
}  // namespace cinch::techniques
