// GCC 12 takes the undefined registers that its own intrinsics pass on for faults (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "cinch/optim/internal/adamw_8bit_block.h"
#include "cinch/optim/internal/dynamic_map.h"

#define CINCH_AVX512 __attribute__((target("avx512f")))

namespace cinch::optim::internal {
namespace {
constexpr int kLanes = 16;

CINCH_AVX512 inline __m512 read_moment(const std::uint8_t* codes, const float* values, __m512 scale) {
  const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  return _mm512_mul_ps(_mm512_i32gather_ps(code, values, sizeof(float)), scale);
}

/// DynamicMap::rank().
CINCH_AVX512 inline __m512i rank_of(__m512 x, const std::uint32_t* ranks) {
  const __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
  const __m512i first = _mm512_set1_epi32(DynamicMap::kFirstBucket);
  const __m512i last = _mm512_set1_epi32(DynamicMap::kLastBucket);
  const __m512i bucket = _mm512_min_epi32(_mm512_max_epi32(_mm512_srli_epi32(bits, 16), first), last);
  const __m512i entry = _mm512_i32gather_epi32(_mm512_sub_epi32(bucket, first), ranks, sizeof(std::uint32_t));
  return _mm512_srli_epi32(_mm512_add_epi32(entry, _mm512_and_si512(bits, _mm512_set1_epi32(0xffff))), 16);
}

CINCH_AVX512 inline void write_codes(std::uint8_t* to, __m512i codes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes));
}

struct Largest {
  __m512 first, second;
};

CINCH_AVX512 Largest update(float* parameters, const float* gradients, const MomentBlock& moments, int count,
                            const AdamWStep& step, Moments& fresh) {
  const float* values1 = DynamicMap::of_first_moment().values().data();
  const float* values2 = DynamicMap::of_second_moment().values().data();
  const __m512 scale1 = _mm512_set1_ps(*moments.first_scale), scale2 = _mm512_set1_ps(*moments.second_scale);
  const __m512 beta1 = _mm512_set1_ps(step.beta1), beta2 = _mm512_set1_ps(step.beta2);
  const __m512 weight1 = _mm512_set1_ps(step.weight1), weight2 = _mm512_set1_ps(step.weight2);
  const __m512 size = _mm512_set1_ps(step.step_size), eps = _mm512_set1_ps(step.eps);
  const __m512 correction = _mm512_set1_ps(step.inverse_correction2), decay = _mm512_set1_ps(step.decay);
  const __m512 most = _mm512_set1_ps(__FLT_MAX__);
  Largest largest{_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int i = 0; i + kLanes <= count; i += kLanes) {
    const __m512 gradient = _mm512_loadu_ps(gradients + i), parameter = _mm512_loadu_ps(parameters + i);
    const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_mul_ps(gradient, gradient), most, _CMP_LE_OQ);
    const __m512 old1 = read_moment(moments.first + i, values1, scale1);
    const __m512 old2 = read_moment(moments.second + i, values2, scale2);
    const __m512 first =
        _mm512_mask_mov_ps(old1, finite, _mm512_fmadd_ps(beta1, old1, _mm512_mul_ps(weight1, gradient)));
    const __m512 square = _mm512_mul_ps(_mm512_mul_ps(weight2, gradient), gradient);
    const __m512 second = _mm512_mask_mov_ps(old2, finite, _mm512_fmadd_ps(beta2, old2, square));
    const __m512 divisor = _mm512_fmadd_ps(_mm512_sqrt_ps(second), correction, eps);
    const __m512 change = _mm512_div_ps(_mm512_mul_ps(size, first), divisor);
    _mm512_mask_storeu_ps(parameters + i, finite, _mm512_fmsub_ps(parameter, decay, change));
    _mm512_storeu_ps(fresh.first + i, first);
    _mm512_storeu_ps(fresh.second + i, second);
    largest.first = _mm512_max_ps(largest.first, _mm512_abs_ps(first));
    largest.second = _mm512_max_ps(largest.second, second);
  }
  return largest;
}

CINCH_AVX512 void quantize(const MomentBlock& moments, int count, float inverse1, float inverse2,
                           const Moments& fresh) {
  const std::uint32_t *ranks1 = DynamicMap::of_first_moment().ranks(), *ranks2 = DynamicMap::of_second_moment().ranks();
  const __m512i zero = _mm512_set1_epi32(DynamicMap::of_first_moment().zero()), one = _mm512_set1_epi32(1);
  const __m512 scale1 = _mm512_set1_ps(inverse1), scale2 = _mm512_set1_ps(inverse2);
  for (int i = 0; i + kLanes <= count; i += kLanes) {
    const __m512 first = _mm512_mul_ps(_mm512_loadu_ps(fresh.first + i), scale1);
    const __m512i above = rank_of(first, ranks1);
    const __mmask16 negative = _mm512_cmp_ps_mask(first, _mm512_setzero_ps(), _CMP_LT_OQ);
    write_codes(moments.first + i,
                _mm512_mask_sub_epi32(_mm512_add_epi32(zero, above), negative, zero, _mm512_min_epi32(above, zero)));
    const __m512 second = _mm512_loadu_ps(fresh.second + i);
    const __m512i code = rank_of(_mm512_mul_ps(second, scale2), ranks2);
    const __mmask16 positive = _mm512_cmp_ps_mask(second, _mm512_setzero_ps(), _CMP_GT_OQ);
    write_codes(moments.second + i, _mm512_mask_max_epi32(code, positive, code, one));
  }
}

CINCH_AVX512 float largest_of(__m512 x) { return _mm512_reduce_max_ps(x); }
}  // namespace

CINCH_AVX512 void step_block_avx512(float* parameters, const float* gradients, const MomentBlock& moments, int count,
                                    const AdamWStep& step) {
  Moments fresh;
  const Largest largest = update(parameters, gradients, moments, count, step, fresh);
  fresh.largest_first = largest_of(largest.first);
  fresh.largest_second = largest_of(largest.second);
  const int whole = count / kLanes * kLanes;
  update_rest(parameters, gradients, moments, whole, count, step, fresh);
  const float inverse1 = set_scale(fresh.largest_first, *moments.first_scale);
  const float inverse2 = set_scale(fresh.largest_second, *moments.second_scale);
  quantize(moments, count, inverse1, inverse2, fresh);
  quantize_rest(moments, whole, count, inverse1, inverse2, fresh);
}
}  // namespace cinch::optim::internal
