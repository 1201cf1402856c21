#include "cinch/techniques/compress.h"

#include <utility>

#include <ATen/ATen.h>

#include "cinch/techniques/internal/blockwise.h"
#include "cinch/techniques/internal/moved_storages.h"

namespace cinch::techniques {
namespace {

bool fits(Codec codec, at::ScalarType dtype) {
  return dtype == at::kFloat || (codec == Codec::kInt8 && (dtype == at::kBFloat16 || dtype == at::kHalf));
}

/// Into another policy as it is.
class PassedOn final : public internal::Away {
 public:
  PassedOn(SavedTensorPolicy& into, const at::Tensor& flat) : kept_(into.pack(flat)) {}
  at::Tensor come_back() override { return kept_->unpack(); }

 private:
  std::unique_ptr<SavedHandle> kept_;
};

class Compressed final : public internal::Away {
 public:
  Compressed(Codec codec, SavedTensorPolicy* into, const at::Tensor& flat)
      : codec_(codec), elements_(flat.numel()), dtype_(flat.scalar_type()) {
    const auto small = codec == Codec::kBf16 ? flat.to(at::kBFloat16) : internal::compress_int8(flat);
    kept_ = into == nullptr ? techniques::keep(small) : into->pack(small);
  }
  at::Tensor come_back() override {
    const auto small = kept_->unpack();
    return codec_ == Codec::kBf16 ? small.to(dtype_) : internal::expand_int8(small, elements_, dtype_);
  }

 private:
  const Codec codec_;
  const std::int64_t elements_;
  const at::ScalarType dtype_;
  std::unique_ptr<SavedHandle> kept_;
};

}  // namespace

Compress::Compress(Codec codec, CompressOptions options) : into_(options.into) {
  storages_ = std::make_shared<internal::MovedStorages>(
      [codec, into = into_](const at::Tensor& flat, bool statistic) -> std::unique_ptr<internal::Away> {
        if (statistic && into == nullptr) return nullptr;
        if (statistic) return std::make_unique<PassedOn>(*into, flat);
        return std::make_unique<Compressed>(codec, into, flat);
      },
      internal::MoveOptions{Bytes(), std::move(options.keep),
                            [codec](const at::Tensor& tensor) { return fits(codec, tensor.scalar_type()); }});
}

Compress::~Compress() = default;

std::unique_ptr<SavedHandle> Compress::pack(const at::Tensor& tensor) {
  if (auto compressed = storages_->pack(tensor)) return compressed;
  return into_ == nullptr ? techniques::keep(tensor) : into_->pack(tensor);
}

}  // namespace cinch::techniques
