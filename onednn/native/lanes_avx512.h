/* Vectors of 16 lanes: AVX-512 with BW, DQ and VL. See plain.c for what the operations mean. */

#define VECTOR 16
typedef __m512 F;
typedef __m512i I;

INLINE __mmask16 first_lanes(int64_t count) {
  return count < VECTOR ? (__mmask16)_bzhi_u32(0xffff, count > 0 ? (unsigned)count : 0) : 0xffff;
}

INLINE F f_zero(void) { return _mm512_setzero_ps(); }
INLINE F f_all(float x) { return _mm512_set1_ps(x); }
INLINE F f_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void f_store(float *p, F v) { _mm512_storeu_ps(p, v); }
INLINE F f_get(const float *p, int64_t count) { return _mm512_maskz_loadu_ps(first_lanes(count), p); }
INLINE void f_put(float *p, F v, int64_t count) { _mm512_mask_storeu_ps(p, first_lanes(count), v); }
INLINE F f_first(F v, int64_t count) { return _mm512_maskz_mov_ps(first_lanes(count), v); }
INLINE F f_add(F a, F b) { return _mm512_add_ps(a, b); }
INLINE F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
INLINE F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
INLINE F f_div(F a, F b) { return _mm512_div_ps(a, b); }
INLINE F f_min(F a, F b) { return _mm512_min_ps(a, b); }
INLINE F f_max(F a, F b) { return _mm512_max_ps(a, b); }
INLINE F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
INLINE F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE F f_round(F v) { return _mm512_roundscale_ps(v, 8); }
INLINE F f_scaled(F v, F n) { return _mm512_scalef_ps(v, n); }
INLINE F f_if_less(F a, F b, F yes, F no) { return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), yes); }
INLINE int f_any_nan(F v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
INLINE int f_any_infinite(F v, int64_t count) { return _mm512_mask_fpclass_ps_mask(first_lanes(count), v, 0x99) != 0; }
INLINE float f_lowest(F v) { return _mm512_reduce_min_ps(v); }
INLINE float f_highest(F v) { return _mm512_reduce_max_ps(v); }
INLINE F f_gather(const float *p, I at) { return _mm512_i32gather_ps(at, p, 4); }
INLINE F f_of(I v) { return _mm512_cvtepi32_ps(v); }
INLINE F f_cast(I v) { return _mm512_castsi512_ps(v); }

INLINE I i_zero(void) { return _mm512_setzero_si512(); }
INLINE I i_all(int32_t x) { return _mm512_set1_epi32(x); }
INLINE I i_lanes(void) { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }
INLINE I i_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void i_store(void *p, I v) { _mm512_storeu_si512(p, v); }
INLINE I i_first(I v, int64_t count) { return _mm512_maskz_mov_epi32(first_lanes(count), v); }
INLINE I i_of(F v) { return _mm512_cvtps_epi32(v); }
INLINE I i_cast(F v) { return _mm512_castps_si512(v); }
INLINE I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
INLINE I i_sub(I a, I b) { return _mm512_sub_epi32(a, b); }
INLINE I i_sub_bytes(I a, I b) { return _mm512_sub_epi8(a, b); }
INLINE I i_mul(I a, I b) { return _mm512_mullo_epi32(a, b); }
INLINE I i_min(I a, I b) { return _mm512_min_epi32(a, b); }
INLINE I i_max(I a, I b) { return _mm512_max_epi32(a, b); }
INLINE I i_and(I a, I b) { return _mm512_and_si512(a, b); }
INLINE I i_or(I a, I b) { return _mm512_or_si512(a, b); }
INLINE I i_xor(I a, I b) { return _mm512_xor_si512(a, b); }
INLINE I i_right(I v, int by) { return _mm512_srli_epi32(v, (unsigned)by); }
INLINE I i_gather(const void *p, I at) { return _mm512_i32gather_epi32(at, p, 1); }
INLINE I i_of_bytes(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE I i_of_shorts(const void *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
INLINE I i_get_bytes(const void *p, int64_t count) {
  return _mm512_maskz_loadu_epi8(count < 64 ? _bzhi_u64(~0ull, (unsigned)count) : ~0ull, p);
}
INLINE int32_t i_highest(I v) { return _mm512_reduce_max_epi32(v); }
INLINE int32_t i_total(I v) { return _mm512_reduce_add_epi32(v); }
INLINE I i_upper_bytes(I v) { return _mm512_srli_epi16(v, 8); }
INLINE I i_evens_first(I v) {
  return _mm512_permutexvar_epi32(_mm512_set_epi32(15, 13, 11, 9, 14, 12, 10, 8, 7, 5, 3, 1, 6, 4, 2, 0), v);
}
INLINE void i_put_bytes(void *p, I v, int64_t count) {
  __m128i bytes = _mm512_cvtepi32_epi8(v);
  KEPT(bytes); /* a masked store that narrows touches what it does not write */
  _mm_mask_storeu_epi8(p, first_lanes(count), bytes);
}

#ifdef VNNI
INLINE I i_dot(I sum, I u, I s) { return _mm512_dpbusd_epi32(sum, u, s); }
#else
INLINE I i_dot(I sum, I u, I s) {
  I even = _mm512_madd_epi16(_mm512_and_si512(u, _mm512_set1_epi32(0x00ff00ff)), _mm512_srai_epi16(_mm512_slli_epi16(s, 8), 8));
  I odd = _mm512_madd_epi16(_mm512_srli_epi16(u, 8), _mm512_srai_epi16(s, 8));
  return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
}
#endif
