#pragma once
// AdamW with both moments in 8 bits: 2.03 bytes of state a parameter instead of 8.
//
//   auto optimizer = optim::adamw_8bit({{.parameters = optim::named(*model), .learning_rate = 3e-4}},
//                                      {.keep_fp32 = optim::embeddings(*model)});
//
// The format is that of "8-bit Optimizers via Block-wise Quantization" (2110.02861) and of bitsandbytes: blocks of 256
// numbers, each a code of the dynamic map (signed for the first moment, unsigned for the second) times the block's
// largest magnitude. Steps compute in float32; a second moment that is not zero is never rounded to zero. Lossy:
// results are near AdamW's, not the same.
//
// On the CPU and on CUDA: the same to the bit. There the count of steps stays on the host.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cinch/optim/optimizer.h"

namespace cinch::optim {

struct AdamW8bitOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  std::int64_t block_size = 256;         ///< 64, 128, …, 2048.
  std::int64_t least_elements = 4096;    ///< Smaller parameters keep their moments in float32.
  std::set<std::string> keep_fp32 = {};  ///< So do these, by name: embeddings train better so.
};

/// State: "NAME.exp_avg_codes", "NAME.exp_avg_sq_codes" (uint8, the parameter's shape), "NAME.exp_avg_absmax",
/// "NAME.exp_avg_sq_absmax" (float32, one a block), "NAME.step". Parameters that stay in float32, and those that are
/// not contiguous, have adamw()'s. An element whose gradient is not finite keeps its weight and its moments.
std::unique_ptr<Optimizer> adamw_8bit(std::vector<ParameterGroup> groups, AdamW8bitOptions options = {});

/// Names of the parameters of `module`'s embeddings; of a tied one the first.
std::set<std::string> embeddings(const torch::nn::Module& module);

/// State of adamw() as adamw_8bit() with these options keeps it, and back: what to do where a run changes between the
/// two, or between block sizes (back, and forth again). What is converted is on the CPU then; other tensors are passed
/// on. Throws DataError naming the key if codes and scales do not belong together.
std::map<std::string, at::Tensor> to_8bit(const std::map<std::string, at::Tensor>& state,
                                          const AdamW8bitOptions& options = {});
std::map<std::string, at::Tensor> from_8bit(const std::map<std::string, at::Tensor>& state);
}  // namespace cinch::optim
