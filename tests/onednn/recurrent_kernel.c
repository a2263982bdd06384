/* What onednn/listings/recurrent_kernel.txt was compiled from:

   gcc -O2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mbmi2 -mfma -ffp-contract=off -fno-stack-protector
       -fcf-protection=branch -fno-asynchronous-unwind-tables -fno-pie -falign-loops=1 -falign-jumps=1
       -falign-functions=1 -falign-labels=1 -c

   Nothing is contracted: each operation in f32 is rounded as NumPy rounds it. */

#include "lstm_gates.h"

typedef struct {
  const int8_t *weights;
  const int32_t *sums;
  const float *scales, *bias, *constants, *pre;
  float *h, *c;
  uint8_t *codes;
  int32_t *products;
  float *y;
  int64_t steps, directions, batch, hidden, blocks, backwards, next;
} Work;

typedef struct {
  const float *x, *constants;
  uint8_t *codes;
  float *scale;
  int32_t *zero;
  int64_t count;
} Codes;

/* codes as DynamicQuantizeLinear has them, one range for all; a range that is not finite gives a scale of NaN */
static inline __attribute__((always_inline)) __m512i quantized(const float *x, int64_t count, uint8_t *codes, const float *k, float *found) {
  __m512 least = _mm512_setzero_ps(), most = least;
  __m512i none = _mm512_setzero_si512();
  __mmask16 unordered = 0;
#define LEFT(i) (__mmask16)_bzhi_u32(0xffff, count - i < 16 ? (unsigned)(count - i) : 16)
  for (int64_t i = 0; i < count; i += 16) {
    __m512 v = _mm512_maskz_loadu_ps(LEFT(i), x + i);
    least = _mm512_min_ps(least, v);
    most = _mm512_max_ps(most, v);
    unordered |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  }
  float low = _mm512_reduce_min_ps(least), scale = (_mm512_reduce_max_ps(most) - low) / k[LEVELS];
  if (unordered || !(scale - scale == 0)) scale = k[NOT_A_NUMBER];
  if (scale == 0) scale = k[ONE];
  __m512 scale16 = _mm512_set1_ps(scale);
  __m512i zero = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_set1_ps(0 - low), scale16));
  zero = _mm512_min_epi32(_mm512_max_epi32(zero, none), _mm512_set1_epi32(255));
  for (int64_t i = 0; i < count; i += 16) {
    __m512i q = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_maskz_loadu_ps(LEFT(i), x + i), scale16));
    q = _mm512_max_epi32(_mm512_add_epi32(q, zero), none);
    __m128i narrow = _mm512_cvtusepi32_epi8(q);
    __asm__("" : "+v"(narrow)); /* not joined with the store: a masked store that narrows touches what it does not write */
    _mm_mask_storeu_epi8(codes + i, LEFT(i), narrow);
  }
  *found = scale;
  return zero;
}

void quantize(Codes *a) {
  float scale;
  __m512i zero = quantized(a->x, a->count, a->codes, a->constants, &scale);
  *a->scale = scale;
  *a->zero = _mm_cvtsi128_si32(_mm512_castsi512_si128(zero));
}

void lstm_steps(Work *a) {
  const float *k = a->constants;
  int64_t steps = a->steps, batch = a->batch, blocks = a->blocks, width = blocks * 16, hidden = a->hidden;
  __mmask16 last = (__mmask16)_bzhi_u32(0xffff, (unsigned)(hidden - (width - 16)));
  for (;;) {
    int64_t d = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED);
    if (d >= a->directions) return;
    float *h = a->h + d * batch * width, *c = a->c + d * batch * width;
    uint8_t *codes = a->codes + d * batch * width;
    int32_t *products = a->products + d * batch * width * 4;
    const float *scales = a->scales + d * width * 4, *bias = a->bias + d * width * 4;
    const int32_t *sums = a->sums + d * width * 4;
    int64_t backwards = a->backwards >> d & 1;
    for (int64_t t = 0; t < steps; t++) {
      float scale;
      __m512i zero16 = quantized(h, batch * width, codes, k, &scale), none = _mm512_setzero_si512();
      __m512 scale16 = _mm512_set1_ps(scale);
      /* their products: 16 hidden values of all gates, of four sequences or one */
      const int8_t *block = a->weights + d * width * width * 4;
      for (int64_t b = 0; b < blocks; b++, block += width * 64) {
        int32_t *out = products + b * 64;
        int64_t n = 0;
#define GATES(F, r) F(r, 0) F(r, 1) F(r, 2) F(r, 3)
#define START(r, g) __m512i s##r##g = none;
#define WEIGHTS(r, g) __m512i w##g = _mm512_loadu_si512(w + 64 * g);
#define SUM(r, g) s##r##g = _mm512_dpbusd_epi32(s##r##g, q, w##g);
#define STORE(r, g) _mm512_storeu_si512(out + r * width * 4 + 16 * g, s##r##g);
#define CODES(at) __m512i q = _mm512_set1_epi32(*(const int32_t *)(x + (at)));
#define ROW(r) { CODES(r * width) GATES(SUM, r) }
        for (; n + 4 <= batch; n += 4, out += width * 16) {
          const uint8_t *x = codes + n * width;
          const int8_t *w = block;
          GATES(START, 0) GATES(START, 1) GATES(START, 2) GATES(START, 3)
          for (int64_t i = 0; i < width; i += 4, x += 4, w += 256) {
            GATES(WEIGHTS, 0)
            ROW(0) ROW(1) ROW(2) ROW(3)
          }
          GATES(STORE, 0) GATES(STORE, 1) GATES(STORE, 2) GATES(STORE, 3)
        }
        for (; n < batch; n++, out += width * 4) {
          const uint8_t *x = codes + n * width;
          const int8_t *w = block;
          GATES(START, 0) GATES(START, 1)
          for (int64_t i = 0; i < width; i += 8, x += 8) {
            { CODES(0) GATES(WEIGHTS, 0) GATES(SUM, 0) }
            w += 256;
            { CODES(4) GATES(WEIGHTS, 1) GATES(SUM, 1) }
            w += 256;
          }
#define JOIN(r, g) s0##g = _mm512_add_epi32(s0##g, s1##g);
          GATES(JOIN, 0)
          GATES(STORE, 0)
        }
      }
      /* gates and states */
      int64_t place = backwards ? steps - 1 - t : t, next = a->directions * 4 * hidden;
      float *y = a->y + (place * a->directions + d) * batch * hidden;
      const float *pre = a->pre + place * batch * next + d * 4 * hidden;
      const int32_t *product = products;
      for (int64_t n = 0; n < batch; n++, pre += next, y += hidden) {
        for (int64_t b = 0; b < blocks; b++, product += 64) {
          __mmask16 some = b + 1 < blocks ? 0xffff : last;
          int64_t at = b * 64;
#define GATE(r, g) __m512i p##g = _mm512_sub_epi32(_mm512_loadu_si512(product + 16 * g), _mm512_mullo_epi32(zero16, _mm512_loadu_si512(sums + at + 16 * g))); \
          __m512 x##g = _mm512_mul_ps(_mm512_cvtepi32_ps(p##g), _mm512_mul_ps(scale16, _mm512_loadu_ps(scales + at + 16 * g))); \
          x##g = _mm512_add_ps(_mm512_add_ps(_mm512_maskz_loadu_ps(some, pre + g * hidden + 16 * b), x##g), _mm512_loadu_ps(bias + at + 16 * g));
          GATES(GATE, 0)
          float *state = h + n * width + 16 * b, *cell = c + n * width + 16 * b;
          /* lanes beyond the last hidden value stay 0, also where a scale of NaN makes everything NaN */
          __m512 new = _mm512_maskz_add_ps(some, _mm512_mul_ps(sigmoid(x2, k), _mm512_loadu_ps(cell)), _mm512_mul_ps(sigmoid(x0, k), tangent(x3, k)));
          _mm512_storeu_ps(cell, new);
          new = _mm512_maskz_mul_ps(some, sigmoid(x1, k), tangent(new, k));
          _mm512_storeu_ps(state, new);
          _mm512_mask_storeu_ps(y + 16 * b, some, new);
        }
      }
    }
  }
}
