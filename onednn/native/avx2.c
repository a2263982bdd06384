/* AVX2 and FMA: vectors of 8 lanes. */

#include "common.h"

#ifdef X86
#define AVX2
#define TARGETS "avx2,fma"
#include "target.h"

#define VECTOR 8
typedef __m256 F;
typedef __m256i I;

INLINE I i_all(int32_t x) { return _mm256_set1_epi32(x); }
INLINE I i_lanes(void) { return _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0); }
INLINE I first_lanes(int64_t count) { return _mm256_cmpgt_epi32(i_all((int)least(count, VECTOR)), i_lanes()); }

INLINE F f_zero(void) { return _mm256_setzero_ps(); }
INLINE F f_all(float x) { return _mm256_set1_ps(x); }
INLINE F f_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void f_store(float *p, F v) { _mm256_storeu_ps(p, v); }
INLINE F f_get(const float *p, int64_t count) {
  return count < VECTOR ? _mm256_maskload_ps(p, first_lanes(count)) : _mm256_loadu_ps(p);
}
INLINE void f_put(float *p, F v, int64_t count) {
  if (count < VECTOR) _mm256_maskstore_ps(p, first_lanes(count), v);
  else _mm256_storeu_ps(p, v);
}
INLINE F f_first(F v, int64_t count) { return _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes(count))); }
INLINE F f_add(F a, F b) { return _mm256_add_ps(a, b); }
INLINE F f_sub(F a, F b) { return _mm256_sub_ps(a, b); }
INLINE F f_mul(F a, F b) { return _mm256_mul_ps(a, b); }
INLINE F f_div(F a, F b) { return _mm256_div_ps(a, b); }
INLINE F f_min(F a, F b) { return _mm256_min_ps(a, b); }
INLINE F f_max(F a, F b) { return _mm256_max_ps(a, b); }
INLINE F f_fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
INLINE F f_fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE F f_round(F v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE F f_scaled(F v, F n) { /* two powers of two, each a normal number; the first product is exact */
  I whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half), one = i_all(127);
  v = _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23)));
  return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23)));
}
INLINE F f_if_less(F a, F b, F yes, F no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
INLINE int f_any_nan(F v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }
INLINE int f_any_infinite(F v, int64_t count) { return f_any_nan(f_first(_mm256_sub_ps(v, v), count)); }
#define HALVED(op, v) op(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1))
INLINE float f_lowest(F v) {
  v = _mm256_min_ps(v, _mm256_permute_ps(v, 0x4e));
  return _mm_cvtss_f32(HALVED(_mm_min_ps, _mm256_min_ps(v, _mm256_permute_ps(v, 0xb1))));
}
INLINE float f_highest(F v) {
  v = _mm256_max_ps(v, _mm256_permute_ps(v, 0x4e));
  return _mm_cvtss_f32(HALVED(_mm_max_ps, _mm256_max_ps(v, _mm256_permute_ps(v, 0xb1))));
}
INLINE float f_total(F v) {
  v = _mm256_add_ps(v, _mm256_permute_ps(v, 0x4e));
  return _mm_cvtss_f32(HALVED(_mm_add_ps, _mm256_add_ps(v, _mm256_permute_ps(v, 0xb1))));
}
INLINE F f_gather(const float *p, I at) { return _mm256_i32gather_ps(p, at, 4); }
INLINE F f_of(I v) { return _mm256_cvtepi32_ps(v); }
INLINE F f_cast(I v) { return _mm256_castsi256_ps(v); }

INLINE I i_zero(void) { return _mm256_setzero_si256(); }
INLINE I i_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void i_store(void *p, I v) { _mm256_storeu_si256((__m256i *)p, v); }
INLINE I i_first(I v, int64_t count) { return _mm256_and_si256(v, first_lanes(count)); }
INLINE I i_of(F v) { return _mm256_cvtps_epi32(v); }
INLINE I i_cast(F v) { return _mm256_castps_si256(v); }
INLINE I i_add(I a, I b) { return _mm256_add_epi32(a, b); }
INLINE I i_sub(I a, I b) { return _mm256_sub_epi32(a, b); }
INLINE I i_sub_bytes(I a, I b) { return _mm256_sub_epi8(a, b); }
INLINE I i_mul(I a, I b) { return _mm256_mullo_epi32(a, b); }
INLINE I i_min(I a, I b) { return _mm256_min_epi32(a, b); }
INLINE I i_max(I a, I b) { return _mm256_max_epi32(a, b); }
INLINE I i_and(I a, I b) { return _mm256_and_si256(a, b); }
INLINE I i_or(I a, I b) { return _mm256_or_si256(a, b); }
INLINE I i_xor(I a, I b) { return _mm256_xor_si256(a, b); }
INLINE I i_right(I v, int by) { return _mm256_srli_epi32(v, by); }
INLINE I i_gather(const void *p, I at) { return _mm256_i32gather_epi32((const int *)p, at, 1); }
INLINE I i_of_bytes(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
INLINE I i_of_shorts(const void *p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE I i_get_bytes(const void *p, int64_t count) {
  I found = i_zero();
  if (count >= 32) return i_load(p);
  memcpy(&found, p, (size_t)count);
  return found;
}
#define HALVED_INTS(op, v) op(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1))
INLINE int32_t i_highest(I v) {
  v = _mm256_max_epi32(v, _mm256_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(HALVED_INTS(_mm_max_epi32, _mm256_max_epi32(v, _mm256_shuffle_epi32(v, 0xb1))));
}
INLINE int32_t i_total(I v) {
  v = _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(HALVED_INTS(_mm_add_epi32, _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0xb1))));
}
INLINE I i_upper_bytes(I v) { return _mm256_srli_epi16(v, 8); }
INLINE I i_evens_first(I v) { return _mm256_permutevar8x32_epi32(v, _mm256_set_epi32(7, 5, 3, 1, 6, 4, 2, 0)); }
INLINE void i_put_bytes(void *p, I v, int64_t count) {
  I quarters = _mm256_shuffle_epi8(v, i_all(0x0c080400)); /* the low bytes of four lanes */
  __m128i bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
  if (count < VECTOR) {
    uint8_t all[16];
    _mm_storeu_si128((__m128i *)all, bytes);
    for (int64_t i = 0; i < count; i++) ((uint8_t *)p)[i] = all[i];
  } else {
    _mm_storel_epi64((__m128i *)p, bytes);
  }
}

INLINE I i_dot(I sum, I u, I s) {
  I even = _mm256_madd_epi16(_mm256_and_si256(u, i_all(0x00ff00ff)), _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
  I odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

#define FUNCTIONS functions_avx2
#define FUSED fused_avx2
#include "kernels.h"
#include "target_end.h"
#endif
