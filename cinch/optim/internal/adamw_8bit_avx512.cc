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

/// A map's tables, in registers as far as they fit.
struct Lines {
  __m512 start, slope, next_low, next_high, scale, offset, limit;
  __m512i piece_low, piece_high, first;
  const std::uint32_t* ranks;
};

CINCH_AVX512 inline Lines load(const DynamicMap& map) {
  const DynamicMapLines& lines = map.lines();
  return {_mm512_load_ps(lines.start.data()),
          _mm512_load_ps(lines.slope.data()),
          _mm512_load_ps(lines.next_piece.data()),
          _mm512_load_ps(lines.next_piece.data() + kLanes),
          _mm512_load_ps(lines.scale.data()),
          _mm512_load_ps(lines.offset.data()),
          _mm512_load_ps(lines.limit.data()),
          _mm512_load_si512(lines.piece.data()),
          _mm512_load_si512(lines.piece.data() + kLanes),
          _mm512_load_si512(lines.first.data()),
          map.ranks()};
}

/// Values of places, by formula (DynamicMapLines); places of 0 give what the caller throws away.
CINCH_AVX512 inline __m512 values_of(__m512i places, const Lines& lines) {
  const __m512 k = _mm512_cvtepi32_ps(places);
  const __m512i bits = _mm512_castps_si512(k);
  const __m512 power = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0x7f800000)));
  const __m512i entry = _mm512_srli_epi32(bits, 23);
  return _mm512_fmadd_ps(_mm512_permutexvar_ps(entry, lines.slope), _mm512_sub_ps(k, power),
                         _mm512_permutexvar_ps(entry, lines.start));
}

CINCH_AVX512 inline __m512i read_codes(const std::uint8_t* codes) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}

CINCH_AVX512 inline __m512 read_first(const std::uint8_t* codes, const Lines& lines, __m512i zero) {
  const __m512i above = _mm512_sub_epi32(read_codes(codes), zero);
  const __m512 magnitude = values_of(_mm512_abs_epi32(above), lines);
  const __m512i sign = _mm512_and_si512(above, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
  const __m512i value = _mm512_or_si512(_mm512_castps_si512(magnitude), sign);
  return _mm512_castsi512_ps(_mm512_maskz_mov_epi32(_mm512_test_epi32_mask(above, above), value));
}

CINCH_AVX512 inline __m512 read_second(const std::uint8_t* codes, const Lines& lines) {
  return values_of(_mm512_add_epi32(read_codes(codes), _mm512_set1_epi32(1)), lines);
}

/// DynamicMap::rank(), from its table.
CINCH_AVX512 inline __m512i rank_by_table(__m512i bits, const std::uint32_t* ranks) {
  const __m512i first = _mm512_set1_epi32(DynamicMap::kFirstBucket);
  const __m512i last = _mm512_set1_epi32(DynamicMap::kLastBucket);
  const __m512i bucket = _mm512_min_epi32(_mm512_max_epi32(_mm512_srli_epi32(bits, 16), first), last);
  const __m512i entry = _mm512_i32gather_epi32(_mm512_sub_epi32(bucket, first), ranks, sizeof(std::uint32_t));
  return _mm512_srli_epi32(_mm512_add_epi32(entry, _mm512_and_si512(bits, _mm512_set1_epi32(0xffff))), 16);
}

/// The same by formula: no gather, which takes longer than all the rest. Where a number is too close to a boundary for
/// the formula, one in thousands, the table is asked.
CINCH_AVX512 inline __m512i rank_of(__m512 x, const Lines& lines) {
  const __m512i least = _mm512_set1_epi32(static_cast<int>(DynamicMap::kFirstBucket << 16));
  const __m512i most = _mm512_set1_epi32(static_cast<int>(DynamicMap::kLastBucket << 16 | 0xffff));
  const __m512i magnitude_bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
  const __m512i bits = _mm512_min_epi32(_mm512_max_epi32(magnitude_bits, least), most);
  const __m512 magnitude = _mm512_castsi512_ps(bits);
  const __m512i exponent = _mm512_srli_epi32(bits, 23);
  const __m512 next = _mm512_permutex2var_ps(lines.next_low, exponent, lines.next_high);
  const __m512i before = _mm512_permutex2var_epi32(lines.piece_low, exponent, lines.piece_high);
  const __mmask16 beyond = _mm512_cmp_ps_mask(magnitude, next, _CMP_GE_OQ);
  const __m512i piece = _mm512_mask_add_epi32(before, beyond, before, _mm512_set1_epi32(1));
  const __m512 place =
      _mm512_fmadd_ps(magnitude, _mm512_permutexvar_ps(piece, lines.scale), _mm512_permutexvar_ps(piece, lines.offset));
  const __m512 inside =
      _mm512_min_ps(_mm512_max_ps(place, _mm512_setzero_ps()), _mm512_permutexvar_ps(piece, lines.limit));
  const __m512i rank = _mm512_add_epi32(_mm512_permutexvar_epi32(piece, lines.first), _mm512_cvttps_epi32(inside));
  const __m512 whole = _mm512_roundscale_ps(place, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __mmask16 unsure = _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_sub_ps(place, whole)),
                                              _mm512_set1_ps(DynamicMapLines::kUnsure), _CMP_LT_OQ);
  return unsure == 0 ? rank : rank_by_table(magnitude_bits, lines.ranks);
}

CINCH_AVX512 inline void write_codes(std::uint8_t* to, __m512i codes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes));
}

struct Largest {
  __m512 first, second;
};

CINCH_AVX512 Largest update(float* parameters, const float* gradients, const MomentBlock& moments, int count,
                            const AdamWStep& step, Moments& fresh) {
  const Lines lines1 = load(DynamicMap::of_first_moment()), lines2 = load(DynamicMap::of_second_moment());
  const __m512i zero = _mm512_set1_epi32(DynamicMap::of_first_moment().zero());
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
    const __m512 old1 = _mm512_mul_ps(read_first(moments.first + i, lines1, zero), scale1);
    const __m512 old2 = _mm512_mul_ps(read_second(moments.second + i, lines2), scale2);
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
  const Lines lines1 = load(DynamicMap::of_first_moment()), lines2 = load(DynamicMap::of_second_moment());
  const __m512i zero = _mm512_set1_epi32(DynamicMap::of_first_moment().zero()), one = _mm512_set1_epi32(1);
  const __m512 scale1 = _mm512_set1_ps(inverse1), scale2 = _mm512_set1_ps(inverse2);
  for (int i = 0; i + kLanes <= count; i += kLanes) {
    const __m512 first = _mm512_mul_ps(_mm512_loadu_ps(fresh.first + i), scale1);
    const __m512i above = rank_of(first, lines1);
    const __mmask16 negative = _mm512_cmp_ps_mask(first, _mm512_setzero_ps(), _CMP_LT_OQ);
    write_codes(moments.first + i,
                _mm512_mask_sub_epi32(_mm512_add_epi32(zero, above), negative, zero, _mm512_min_epi32(above, zero)));
    const __m512 second = _mm512_loadu_ps(fresh.second + i);
    const __m512i code = rank_of(_mm512_mul_ps(second, scale2), lines2);
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
