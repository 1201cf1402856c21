// Optimizer steps on CUDA. Compiled at run time (gpu.h), for the card that is there; kernels_test.cc compiles it as C++
// and holds it against the CPU's kernels, thread by thread. So it includes nothing, and every operation is one that
// both round alike: compiled with --fmad=false, multiplications that feed an addition are fused where they are so on
// the CPU.
//
// The two dynamic maps come from DynamicMap, as text before this one: kValues1, kValues2 (256 floats' bits each),
// kRanks1, kRanks2 (DynamicMap::ranks()), kZero1 (the code of 0), kFirstBucket, kLastBucket.

struct Bfloat16 {
  unsigned short bits;
};
struct Half {
  unsigned short bits;
};

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(Bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ inline float widen(Half x) { return half_to_float(x.bits); }

__device__ inline void narrow(float x, float& to) { to = x; }
__device__ inline void narrow(double x, double& to) { to = x; }
__device__ inline void narrow(float x, Bfloat16& to) {  // To nearest, ties to even.
  const unsigned bits = __float_as_uint(x);
  to.bits = static_cast<unsigned short>(x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
__device__ inline void narrow(float x, Half& to) { to.bits = float_to_half(x); }

__device__ inline float larger(float a, float b) { return a < b ? b : a; }
__device__ inline float magnitude(float x) { return __uint_as_float(__float_as_uint(x) & 0x7fffffffu); }

// ---- AdamW with moments in 8 bits ---------------------------------------------------------------------------------

/// As AdamWStep in adamw_8bit_block.h.
struct Step {
  float beta1, beta2, weight1, weight2, step_size, inverse_correction2, eps, decay;
};

/// DynamicMap::rank().
__device__ inline unsigned rank_of(const unsigned* ranks, float x) {
  const unsigned bits = __float_as_uint(x) & 0x7fffffffu;
  unsigned bucket = bits >> 16;
  bucket = bucket < kFirstBucket ? kFirstBucket : bucket > kLastBucket ? kLastBucket : bucket;
  return (ranks[bucket - kFirstBucket] + (bits & 0xffffu)) >> 16;
}

/// set_scale() of adamw_8bit_block.h.
__device__ inline float scale_of(float largest, float& inverse) {
  const bool normal = largest >= 1.17549435e-38f;
  inverse = normal ? 1.0f / largest : 0.0f;
  return normal ? largest : 0.0f;
}

constexpr int kItems = 4;  // Of a thread, at most: a block of numbers has at most 4 × blockDim.x.
constexpr int kMostWarps = 16;

/// The largest magnitude of all threads' numbers. Ends with every thread past its reading.
__device__ inline float largest_of_all(float own, float* warps) {
  for (int lane = 16; lane > 0; lane /= 2) own = larger(own, __shfl_xor_sync(0xffffffffu, own, lane));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
  __syncthreads();
  float all = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) all = larger(all, warps[w]);
  return all;
}

/// A CUDA block takes one block of numbers after another.
template <class Number>
__device__ void adamw_8bit(Number* parameters, const Number* gradients, unsigned char* codes1, float* scales1,
                           unsigned char* codes2, float* scales2, long long count, int block_size, const Step& step,
                           float* warps1, float* warps2) {
  for (long long block = blockIdx.x; block * block_size < count; block += gridDim.x) {
    const long long begin = block * block_size;
    const int here = static_cast<int>(count - begin < block_size ? count - begin : block_size);
    const float scale1 = scales1[block], scale2 = scales2[block];
    float first[kItems], second[kItems], most1 = 0, most2 = 0;
    for (int k = 0; k < kItems; ++k) {
      const int i = static_cast<int>(threadIdx.x + k * blockDim.x);
      if (i >= here) break;
      const long long at = begin + i;
      first[k] = __uint_as_float(kValues1[codes1[at]]) * scale1;
      second[k] = __uint_as_float(kValues2[codes2[at]]) * scale2;
      const float gradient = widen(gradients[at]);
      if (gradient * gradient <= 3.402823466e+38f) {
        first[k] = fmaf(step.beta1, first[k], step.weight1 * gradient);
        second[k] = fmaf(step.beta2, second[k], (step.weight2 * gradient) * gradient);
        const float divisor = fmaf(sqrtf(second[k]), step.inverse_correction2, step.eps);
        const float change = step.step_size * first[k] / divisor;
        const float old = widen(parameters[at]), fresh = fmaf(old, step.decay, -change);
        if (!(fresh == old)) narrow(fresh, parameters[at]);
      }
      most1 = larger(most1, magnitude(first[k]));
      most2 = larger(most2, second[k]);
    }
    float inverse1, inverse2;
    const float fresh1 = scale_of(largest_of_all(most1, warps1), inverse1);
    const float fresh2 = scale_of(largest_of_all(most2, warps2), inverse2);
    for (int k = 0; k < kItems; ++k) {
      const int i = static_cast<int>(threadIdx.x + k * blockDim.x);
      if (i >= here) break;
      const float x = first[k] * inverse1;
      const unsigned above = rank_of(kRanks1, x);
      codes1[begin + i] =
          static_cast<unsigned char>(x < 0 ? kZero1 - (above < kZero1 ? above : kZero1) : kZero1 + above);
      const unsigned code = rank_of(kRanks2, second[k] * inverse2);
      codes2[begin + i] = static_cast<unsigned char>(second[k] > 0 && code == 0 ? 1u : code);
    }
    if (threadIdx.x == 0) {
      scales1[block] = fresh1;
      scales2[block] = fresh2;
    }
    __syncthreads();  // Before the next round writes `warps`.
  }
}

// ---- Lion ---------------------------------------------------------------------------------------------------------

/// As LionConstants in ops_cuda.cc.
template <class Wide>
struct Rates {
  Wide rate, keep, old1, new1, old2, new2;
};

template <class Number, class Wide>
__device__ void lion(Number* parameters, const Number* gradients, Number* momenta, long long count,
                     const Rates<Wide>& rates) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const Wide m = widen(momenta[i]), g = widen(gradients[i]);
    const Wide direction = rates.old1 * m + rates.new1 * g;
    const Wide sign = static_cast<Wide>((direction > 0) - (direction < 0));
    narrow(widen(parameters[i]) * rates.keep - rates.rate * sign, parameters[i]);
    narrow(rates.old2 * m + rates.new2 * g, momenta[i]);
  }
}

// ---- one of each for each type ------------------------------------------------------------------------------------

#define CINCH_ADAMW_8BIT(NAME, NUMBER)                                                                                 \
  extern "C" __global__ void adamw_8bit_##NAME(NUMBER* parameters, const NUMBER* gradients, unsigned char* codes1,     \
                                               float* scales1, unsigned char* codes2, float* scales2, long long count, \
                                               int block_size, Step step) {                                            \
    __shared__ float warps1[kMostWarps], warps2[kMostWarps];                                                           \
    adamw_8bit(parameters, gradients, codes1, scales1, codes2, scales2, count, block_size, step, warps1, warps2);      \
  }
CINCH_ADAMW_8BIT(float, float)
CINCH_ADAMW_8BIT(bfloat16, Bfloat16)
CINCH_ADAMW_8BIT(half, Half)

#define CINCH_LION(NAME, NUMBER, WIDE)                                                                 \
  extern "C" __global__ void lion_##NAME(NUMBER* parameters, const NUMBER* gradients, NUMBER* momenta, \
                                         long long count, Rates<WIDE> rates) {                         \
    lion(parameters, gradients, momenta, count, rates);                                                \
  }
CINCH_LION(float, float, float)
CINCH_LION(double, double, double)
CINCH_LION(bfloat16, Bfloat16, float)
CINCH_LION(half, Half, float)
