#include <immintrin.h>

#include <algorithm>

#include "cinch/optim/internal/adamw_8bit_block.h"
#include "cinch/optim/internal/dynamic_map.h"

#define CINCH_AVX2 __attribute__((target("avx2,fma")))

namespace cinch::optim::internal {
namespace {
constexpr int kLanes = 8;

CINCH_AVX2 inline __m256 read_moment(const std::uint8_t* codes, const float* values, __m256 scale) {
  const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  return _mm256_mul_ps(_mm256_i32gather_ps(values, code, sizeof(float)), scale);
}

/// DynamicMap::rank().
CINCH_AVX2 inline __m256i rank_of(__m256 x, const std::uint32_t* ranks) {
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
  const __m256i first = _mm256_set1_epi32(DynamicMap::kFirstBucket);
  const __m256i last = _mm256_set1_epi32(DynamicMap::kLastBucket);
  const __m256i bucket = _mm256_min_epi32(_mm256_max_epi32(_mm256_srli_epi32(bits, 16), first), last);
  const __m256i entry = _mm256_i32gather_epi32(reinterpret_cast<const int*>(ranks), _mm256_sub_epi32(bucket, first),
                                               sizeof(std::uint32_t));
  return _mm256_srli_epi32(_mm256_add_epi32(entry, _mm256_and_si256(bits, _mm256_set1_epi32(0xffff))), 16);
}

/// The low bytes of eight numbers below 256.
CINCH_AVX2 inline void write_codes(std::uint8_t* to, __m256i codes) {
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
}

CINCH_AVX2 inline float largest_of(__m256 x) {
  alignas(32) float lanes[kLanes];
  _mm256_store_ps(lanes, x);
  return *std::max_element(lanes, lanes + kLanes);
}

CINCH_AVX2 void update(float* parameters, const float* gradients, const MomentBlock& moments, int count,
                       const AdamWStep& step, Moments& fresh) {
  const float* values1 = DynamicMap::of_first_moment().values().data();
  const float* values2 = DynamicMap::of_second_moment().values().data();
  const __m256 scale1 = _mm256_set1_ps(*moments.first_scale), scale2 = _mm256_set1_ps(*moments.second_scale);
  const __m256 beta1 = _mm256_set1_ps(step.beta1), beta2 = _mm256_set1_ps(step.beta2);
  const __m256 weight1 = _mm256_set1_ps(step.weight1), weight2 = _mm256_set1_ps(step.weight2);
  const __m256 size = _mm256_set1_ps(step.step_size), eps = _mm256_set1_ps(step.eps);
  const __m256 correction = _mm256_set1_ps(step.inverse_correction2), decay = _mm256_set1_ps(step.decay);
  const __m256 most = _mm256_set1_ps(__FLT_MAX__), sign = _mm256_set1_ps(-0.0F);
  __m256 largest1 = _mm256_setzero_ps(), largest2 = _mm256_setzero_ps();
  for (int i = 0; i + kLanes <= count; i += kLanes) {
    const __m256 gradient = _mm256_loadu_ps(gradients + i), parameter = _mm256_loadu_ps(parameters + i);
    const __m256 finite = _mm256_cmp_ps(_mm256_mul_ps(gradient, gradient), most, _CMP_LE_OQ);
    const __m256 old1 = read_moment(moments.first + i, values1, scale1);
    const __m256 old2 = read_moment(moments.second + i, values2, scale2);
    const __m256 first = _mm256_blendv_ps(old1, _mm256_fmadd_ps(beta1, old1, _mm256_mul_ps(weight1, gradient)), finite);
    const __m256 square = _mm256_mul_ps(_mm256_mul_ps(weight2, gradient), gradient);
    const __m256 second = _mm256_blendv_ps(old2, _mm256_fmadd_ps(beta2, old2, square), finite);
    const __m256 divisor = _mm256_fmadd_ps(_mm256_sqrt_ps(second), correction, eps);
    const __m256 change = _mm256_div_ps(_mm256_mul_ps(size, first), divisor);
    _mm256_storeu_ps(parameters + i, _mm256_blendv_ps(parameter, _mm256_fmsub_ps(parameter, decay, change), finite));
    _mm256_storeu_ps(fresh.first + i, first);
    _mm256_storeu_ps(fresh.second + i, second);
    largest1 = _mm256_max_ps(largest1, _mm256_andnot_ps(sign, first));
    largest2 = _mm256_max_ps(largest2, second);
  }
  fresh.largest_first = largest_of(largest1);
  fresh.largest_second = largest_of(largest2);
}

CINCH_AVX2 void quantize(const MomentBlock& moments, int count, float inverse1, float inverse2, const Moments& fresh) {
  const std::uint32_t *ranks1 = DynamicMap::of_first_moment().ranks(), *ranks2 = DynamicMap::of_second_moment().ranks();
  const __m256i zero = _mm256_set1_epi32(DynamicMap::of_first_moment().zero()), one = _mm256_set1_epi32(1);
  const __m256 scale1 = _mm256_set1_ps(inverse1), scale2 = _mm256_set1_ps(inverse2);
  for (int i = 0; i + kLanes <= count; i += kLanes) {
    const __m256 first = _mm256_mul_ps(_mm256_loadu_ps(fresh.first + i), scale1);
    const __m256i above = rank_of(first, ranks1);
    const __m256i negative = _mm256_castps_si256(_mm256_cmp_ps(first, _mm256_setzero_ps(), _CMP_LT_OQ));
    write_codes(moments.first + i, _mm256_blendv_epi8(_mm256_add_epi32(zero, above),
                                                      _mm256_sub_epi32(zero, _mm256_min_epi32(above, zero)), negative));
    const __m256 second = _mm256_loadu_ps(fresh.second + i);
    const __m256i code = rank_of(_mm256_mul_ps(second, scale2), ranks2);
    const __m256i positive = _mm256_castps_si256(_mm256_cmp_ps(second, _mm256_setzero_ps(), _CMP_GT_OQ));
    write_codes(moments.second + i, _mm256_max_epi32(code, _mm256_and_si256(positive, one)));
  }
}
}  // namespace

CINCH_AVX2 void step_block_avx2(float* parameters, const float* gradients, const MomentBlock& moments, int count,
                                const AdamWStep& step) {
  Moments fresh;
  update(parameters, gradients, moments, count, step, fresh);
  const int whole = count / kLanes * kLanes;
  update_rest(parameters, gradients, moments, whole, count, step, fresh);
  const float inverse1 = set_scale(fresh.largest_first, *moments.first_scale);
  const float inverse2 = set_scale(fresh.largest_second, *moments.second_scale);
  quantize(moments, count, inverse1, inverse2, fresh);
  quantize_rest(moments, whole, count, inverse1, inverse2, fresh);
}
}  // namespace cinch::optim::internal
