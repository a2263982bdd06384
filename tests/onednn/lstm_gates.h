/* The gates of an LSTM, 16 values at once. Numbers come from `CONSTANTS` of onednn/recurrent_kernel.py: a listing has
   no data of its own. */

#include <immintrin.h>
#include <stdint.h>

enum { ONE, TWO, LEVELS, NOT_A_NUMBER, LOW, HIGH, LOG2_E, LN2_HIGH, LN2_LOW, EXP, TANH = EXP + 6, SMALL = TANH + 5 };
#define K(i) _mm512_set1_ps(k[i])

/* e^x: x = n*ln 2 + r, |r| <= ln 2 / 2; the polynomial is that of Cephes' expf */
static inline __attribute__((always_inline)) __m512 exponential(__m512 x, const float *k) {
  x = _mm512_min_ps(K(HIGH), _mm512_max_ps(K(LOW), x)); /* of a NaN and a number these give the second */
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, K(LOG2_E)), 8);
  __m512 r = _mm512_fnmadd_ps(n, K(LN2_LOW), _mm512_fnmadd_ps(n, K(LN2_HIGH), x));
  __m512 p = K(EXP);
  p = _mm512_fmadd_ps(p, r, K(EXP + 1));
  p = _mm512_fmadd_ps(p, r, K(EXP + 2));
  p = _mm512_fmadd_ps(p, r, K(EXP + 3));
  p = _mm512_fmadd_ps(p, r, K(EXP + 4));
  p = _mm512_fmadd_ps(p, r, K(EXP + 5));
  p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, _mm512_add_ps(r, K(ONE)));
  return _mm512_scalef_ps(p, n);
}

static inline __attribute__((always_inline)) __m512 sigmoid(__m512 x, const float *k) {
  __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), x), k);
  return _mm512_div_ps(K(ONE), _mm512_add_ps(K(ONE), e));
}

/* near 0 the polynomial of Cephes' tanhf, else 1 - 2/(e^2|x| + 1) with the sign of x */
static inline __attribute__((always_inline)) __m512 tangent(__m512 x, const float *k) {
  __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0x80000000));
  __m512 size = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), sign));
  __m512 e = exponential(_mm512_add_ps(size, size), k);
  __m512 large = _mm512_sub_ps(K(ONE), _mm512_div_ps(K(TWO), _mm512_add_ps(e, K(ONE))));
  large = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(large), sign));
  __m512 z = _mm512_mul_ps(x, x), p = K(TANH);
  p = _mm512_fmadd_ps(p, z, K(TANH + 1));
  p = _mm512_fmadd_ps(p, z, K(TANH + 2));
  p = _mm512_fmadd_ps(p, z, K(TANH + 3));
  p = _mm512_fmadd_ps(p, z, K(TANH + 4));
  p = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
  return _mm512_mask_mov_ps(large, _mm512_cmp_ps_mask(size, K(SMALL), _CMP_LT_OQ), p);
}
