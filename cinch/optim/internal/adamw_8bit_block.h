#pragma once
// AdamW on one block of numbers whose moments are kept in 8 bits: scalar, AVX2, AVX-512, the same to the bit. Without
// LibTorch.
//
// Every multiplication that feeds an addition is a fused one, in all three, so that no compiler's contraction can part
// them.

#include <cmath>
#include <cstdint>
#include <span>

namespace cinch::optim::internal {

inline constexpr int kLargestBlock = 2048;

/// One step's constants; as torch.optim.AdamW.
struct AdamWStep {
  float beta1, beta2;
  float weight1, weight2;     ///< 1 - beta: of the new gradient.
  float step_size;            ///< Learning rate over the first moment's correction.
  float inverse_correction2;  ///< 1 / sqrt(1 - beta2^step).
  float eps;
  float decay;  ///< 1 - learning rate × weight decay.
};

/// Two moments of one block: codes, and what 1 stands for.
struct MomentBlock {
  std::uint8_t *first, *second;
  float *first_scale, *second_scale;
};

/// Steps `count` <= kLargestBlock parameters. Both scales become the largest magnitude of the new moment. An element
/// whose gradient is not finite (or whose square is not) keeps its weight and its moments. A second moment above 0 is
/// never rounded to 0: the next step would divide by eps alone.
using BlockStep = void (*)(float* parameters, const float* gradients, const MomentBlock& moments, int count,
                           const AdamWStep& step);
void step_block_scalar(float*, const float*, const MomentBlock&, int, const AdamWStep&);
void step_block_avx2(float*, const float*, const MomentBlock&, int, const AdamWStep&);
void step_block_avx512(float*, const float*, const MomentBlock&, int, const AdamWStep&);

struct NamedBlockStep {
  const char* name;
  BlockStep step;
};
/// Those this processor can run, the slowest first.
std::span<const NamedBlockStep> block_steps();

// What the three share, an element at a time.

/// Moments of a block between being read and being written, and their largest magnitudes so far.
struct Moments {
  float first[kLargestBlock], second[kLargestBlock];
  float largest_first = 0, largest_second = 0;
};

/// Elements [begin, count).
void update_rest(float* parameters, const float* gradients, const MomentBlock& moments, int begin, int count,
                 const AdamWStep& step, Moments& fresh);
void quantize_rest(const MomentBlock& moments, int begin, int count, float inverse1, float inverse2,
                   const Moments& fresh);

/// By what the new moments are multiplied before they are rounded; sets the block's scale. A magnitude below the normal
/// numbers counts as 0: it has no inverse.
inline float set_scale(float largest, float& scale) {
  const bool normal = largest >= 1.17549435e-38F;
  scale = normal ? largest : 0.0F;
  return normal ? 1.0F / largest : 0.0F;
}
}  // namespace cinch::optim::internal
