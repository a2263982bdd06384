/* What onednn/listings/coded_kernels_4.txt (-DBITS=4) and coded_kernels_8.txt (-DBITS=8) were compiled from:

   gcc -DBITS=4 -O2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mbmi2 -ffp-contract=off -fno-tree-vectorize
       -fno-stack-protector -fcf-protection=branch -fno-asynchronous-unwind-tables -fno-pie -falign-loops=1 -falign-jumps=1
       -falign-functions=1 -falign-labels=1 -c

   Rows of x become s8 codes with a scale for each block. Codes are multiplied by codes in s32, block by block; each sum is
   scaled and added in f32, every operation rounded, in the order of the blocks: the numbers are NumPy's. */

#include <immintrin.h>
#include <stdint.h>

#define CODES 2048 /* of a column at a time, whole blocks: the panel stays in the second cache */

/* What a thread has at hand of 32 columns: codes, a word of 4 for each column; scales, and what sums begin with, of each
   block. It is the caller's memory: some threads have little stack. */
typedef struct {
  __m512i codes[CODES / 4][2], scales[CODES / 16][2], starts[CODES / 16][2];
#if BITS == 4
  __m512i words[CODES / 8][2];
#endif
} Panel;

typedef struct {
  const uint8_t *codes;
  const float *scales;
  const uint8_t *zeros;
  const float *x;
  int8_t *xcodes;
  float *xscales;
  int32_t *xsums;
  float *out;
  int64_t stride, blocks, block, rows, ld, next, many, size;
  Panel *panels;
  int64_t entered;
} Work;

typedef int64_t I;
typedef __m512i V;
typedef __m512 F;

/* the panel of the thread that asks */
#define OWN_PANEL(work) ((work)->panels + __atomic_fetch_add(&(work)->entered, 1, __ATOMIC_RELAXED))

/* Constants are made of immediate operands: the code has no data of its own. */
#define HIDDEN(type, value) ({ type hidden = value; __asm__("" : "+r"(hidden)); hidden; })
#define INTS(value) _mm512_set1_epi32(HIDDEN(int, value))
#define FLOAT(bits) _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(HIDDEN(int, bits))))
#define BITS_OF(value) _mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(value)))

/* Of the factors of vpdpbusd one is u8, and one s8.
   4 bits: x + 128 times (code - zero), in a sum that begins at -128 times the sum of the latter.
   8 bits: the code times x, in a sum that begins at -zero times the sum of x. */
#if BITS == 4
#define DP(y, x, w) _mm512_dpbusd_epi32(y, x, w)
#else
#define DP(y, x, w) _mm512_dpbusd_epi32(y, w, x)
#endif

/* Rows of x [many, size] as codes [many, blocks * block], with scales and sums [many, blocks].
   Of 8 codes those at even places are in front, for codes of 4 bits. */
void quantize_rows(Work *a) {
  I block = a->block, blocks = a->blocks, size = a->size;
  for (;;) {
    I m = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED);
    if (m >= a->many) return;
    const float *x = a->x + m * size;
    int8_t *to = a->xcodes + m * blocks * block;
    for (I b = 0; b < blocks; b++, x += block, to += block) {
      I left = size - b * block, end = left < block ? left : block;
      V magnitudes = _mm512_setzero_si512();
#define SOME(left) (__mmask16)_bzhi_u32(0xffff, (left) < 16 ? (unsigned)(left) : 16)
      for (I k = 0; k < end; k += 16) {
        V part = _mm512_castps_si512(_mm512_maskz_loadu_ps(SOME(end - k), x + k));
        magnitudes = _mm512_max_epi32(magnitudes, _mm512_and_si512(part, INTS(0x7fffffff)));
      }
      int largest = _mm512_reduce_max_epi32(magnitudes);
      float scale = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(largest))) / FLOAT(0x42fe0000); /* 127 */
      float inverse = FLOAT(0x3f800000) / scale;
      if (largest >= 0x7f800000) {
        scale = FLOAT(0x7fc00000);
        end = 0;
      } else if (BITS_OF(scale) < 0x00800000) {
        scale = _mm_cvtss_f32(_mm_setzero_ps());
        end = 0;
      }
      V sum = _mm512_setzero_si512();
      for (I k = 0; k < block; k += 16) {
        __mmask16 some = k < end ? SOME(end - k) : 0;
        V code = _mm512_maskz_cvtps_epi32(some, _mm512_mul_ps(_mm512_maskz_loadu_ps(some, x + k), _mm512_set1_ps(inverse)));
        sum = _mm512_add_epi32(sum, code);
        __m128i bytes = _mm512_cvtepi32_epi8(code);
#if BITS == 4
        __m128i order = _mm_set_epi64x(HIDDEN(I, 0x0f0d0b090e0c0a08), HIDDEN(I, 0x0705030106040200));
        bytes = _mm_xor_si128(_mm_shuffle_epi8(bytes, order), _mm_set1_epi8(HIDDEN(char, -128)));
#endif
        _mm_mask_storeu_epi8(to + k, SOME(block - k), bytes);
      }
      a->xscales[m * blocks + b] = scale;
      a->xsums[m * blocks + b] = _mm512_reduce_add_epi32(sum);
    }
  }
}

/* Words [words] of 16 rows that are `stride` bytes apart, in `bytes` bytes, as [words, 2, 16]: to every second vector. */
static inline __attribute__((always_inline)) void turned(const uint8_t *const *rows, I at, I bytes, V *to) {
  for (; bytes > 0; bytes -= 64, at += 64, to += 32) {
    V r[16], t[16];
    __mmask64 some = _bzhi_u64(~0ull, bytes < 64 ? (unsigned)bytes : 64);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = _mm512_maskz_loadu_epi8(some, rows[i] + at);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* r[4g + c]: words c, c+4, c+8, c+12 of rows 4g .. 4g+3, a lane each */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
      V p = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88), q = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
      V u = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd), v = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
      _mm512_store_si512(to + 2 * c, _mm512_shuffle_i32x4(p, q, 0x88));
      _mm512_store_si512(to + 2 * (c + 4), _mm512_shuffle_i32x4(u, v, 0x88));
      _mm512_store_si512(to + 2 * (c + 8), _mm512_shuffle_i32x4(p, q, 0xdd));
      _mm512_store_si512(to + 2 * (c + 12), _mm512_shuffle_i32x4(u, v, 0xdd));
    }
  }
}

/* some rows of x times a panel, added to what is there */
static inline __attribute__((always_inline)) void multiplied(const int R, const Work *a, const Panel *p, I m, I b, I count, float *out,
                                                             __mmask16 k0, __mmask16 k1) {
  I block = a->block, blocks = a->blocks, width = blocks * block, ld = a->ld;
  const int8_t *x = a->xcodes + m * width + b * block;
  const float *xs = a->xscales + m * blocks + b;
#if BITS == 8
  const int32_t *sums = a->xsums + m * blocks + b;
#endif
  F y[8][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    y[r][0] = b ? _mm512_maskz_loadu_ps(k0, out + r * ld) : _mm512_setzero_ps();
    y[r][1] = b ? _mm512_maskz_loadu_ps(k1, out + r * ld + 16) : _mm512_setzero_ps();
  }
  const V *w = p->codes[0];
  for (I i = 0; i < count; i++) {
    V acc[8][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#if BITS == 4
      acc[r][0] = p->starts[i][0];
      acc[r][1] = p->starts[i][1];
#else
      V sum = _mm512_set1_epi32(sums[r * blocks + i]);
      acc[r][0] = _mm512_mullo_epi32(p->starts[i][0], sum);
      acc[r][1] = _mm512_mullo_epi32(p->starts[i][1], sum);
#endif
    }
    for (I k = 0; k < block; k += 4, x += 4, w += 2) {
      V w0 = w[0], w1 = w[1];
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        V v = _mm512_set1_epi32(*(const int32_t *)(x + r * width));
        acc[r][0] = DP(acc[r][0], v, w0);
        acc[r][1] = DP(acc[r][1], v, w1);
      }
    }
    F s0 = _mm512_castsi512_ps(p->scales[i][0]), s1 = _mm512_castsi512_ps(p->scales[i][1]);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      F s = _mm512_set1_ps(xs[r * blocks + i]);
      y[r][0] = _mm512_add_ps(y[r][0], _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][0]), _mm512_mul_ps(s, s0)));
      y[r][1] = _mm512_add_ps(y[r][1], _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][1]), _mm512_mul_ps(s, s1)));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    _mm512_mask_storeu_ps(out + r * ld, k0, y[r][0]);
    _mm512_mask_storeu_ps(out + r * ld + 16, k1, y[r][1]);
  }
}

#if BITS == 4
#define STORED p->words[0]
#else
#define STORED p->codes[0]
#endif

/* rows of codes of x times 32 columns of codes of weights at a time */
void multiply_codes(Work *a) {
  Panel *p = OWN_PANEL(a);
  I block = a->block, blocks = a->blocks, many = a->many, ld = a->ld, at_once = CODES / block;
  for (;;) {
    I first = __atomic_fetch_add(&a->next, 32, __ATOMIC_RELAXED), left = a->rows - first;
    if (left <= 0) return;
    __mmask16 k0 = SOME(left), k1 = left > 16 ? SOME(left - 16) : 0;
    for (I b = 0; b < blocks; b += at_once) {
      I count = blocks - b < at_once ? blocks - b : at_once;
      /* codes, scales, and zero points where there are some: from, bytes of a row, first byte, bytes, to */
      I given[3][5] = {
          {(I)a->codes, a->stride, b * block * BITS / 8, count * block * BITS / 8, (I)STORED},
          {(I)a->scales, blocks * 4, b * 4, count * 4, (I)p->scales[0]},
          {(I)a->zeros, blocks, b, count, (I)p->starts[0]},
      };
#pragma GCC unroll 1
      for (int n = 0; n < 6; n++) {
        const I *one = given[n >> 1], half = n & 1;
        if (!one[0]) break;
        const uint8_t *rows[16];
#pragma GCC unroll 1
        for (I i = 0; i < 16; i++) {
          I row = first + 16 * half + i;
          rows[i] = (const uint8_t *)one[0] + (row < a->rows ? row : a->rows - 1) * one[1];
        }
        turned(rows, one[2], one[3], (V *)one[4] + half);
      }
#pragma GCC unroll 1
      for (int half = 0; half < 2; half++) {
#if BITS == 4
        const V *words = p->words[0] + half;
        V *codes = p->codes[0] + half;
        I per = block / 8;
#endif
        /* there are four zero points in a word; the last ones first: what is written lies behind what is read */
        for (I i = count - 1; i >= 0; i--) {
          V zero = INTS(1 << (BITS - 1));
          if (a->zeros) zero = _mm512_and_si512(_mm512_srlv_epi32(p->starts[i / 4][half], _mm512_set1_epi32((int)(i % 4 * 8))), INTS(255));
#if BITS == 4
          V sum = _mm512_setzero_si512();
          zero = _mm512_mullo_epi32(zero, INTS(0x01010101));
          for (I k = i * per; k < (i + 1) * per; k++) {
            V word = words[2 * k], low = INTS(0x0f0f0f0f);
            V even = _mm512_sub_epi8(_mm512_and_si512(word, low), zero);
            V odd = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi32(word, 4), low), zero);
            codes[4 * k] = even;
            codes[4 * k + 2] = odd;
            sum = DP(sum, INTS(0x80808080), even);
            sum = DP(sum, INTS(0x80808080), odd);
          }
          zero = sum;
#endif
          p->starts[i][half] = _mm512_sub_epi32(_mm512_setzero_si512(), zero);
        }
      }
      float *out = a->out + first;
      I m = 0;
      for (; m + 6 <= many; m += 6) multiplied(6, a, p, m, b, count, out + m * ld, k0, k1);
      for (; m + 4 <= many; m += 4) multiplied(4, a, p, m, b, count, out + m * ld, k0, k1);
      for (; m + 2 <= many; m += 2) multiplied(2, a, p, m, b, count, out + m * ld, k0, k1);
      if (m < many) multiplied(1, a, p, m, b, count, out + m * ld, k0, k1);
    }
  }
}

#define UNIT (128 / BITS) /* codes of a quarter of a register: a block has whole ones */

/* a row of x after the other times 16 columns at a time, whose codes stay in the order of their rows: for few rows */
void multiply_row(Work *a) {
  Panel *p = OWN_PANEL(a);
  V(*scales)[2] = p->scales, (*zeros)[2] = p->starts;
  I block = a->block, blocks = a->blocks, many = a->many, width = blocks * block, at_once = CODES / block, units = block / UNIT;
  for (;;) {
    I first = __atomic_fetch_add(&a->next, 16, __ATOMIC_RELAXED), left = a->rows - first;
    if (left <= 0) return;
    __mmask16 some = SOME(left);
    for (I b = 0; b < blocks; b += at_once) {
      I count = blocks - b < at_once ? blocks - b : at_once, bytes = count * block * BITS / 8;
      I given[3][5] = {
          {(I)a->zeros, blocks, b, count, (I)zeros[0]},
          {(I)a->scales, blocks * 4, b * 4, count * 4, (I)scales[0]},
          {(I)a->codes, a->stride, b * block * BITS / 8, 0, 0},
      };
      const uint8_t *rows[16];
#pragma GCC unroll 1
      for (int n = 0; n < 3; n++) {
        const I *one = given[n];
        if (!one[0]) continue;
#pragma GCC unroll 1
        for (I i = 0; i < 16; i++) {
          I row = i < left ? first + i : a->rows - 1;
          rows[i] = (const uint8_t *)one[0] + row * one[1] + one[2];
        }
        turned(rows, 0, one[3], (V *)one[4]);
      }
      for (I m = 0; m < many; m++) {
        const int8_t *x = a->xcodes + m * width + b * block;
        const float *xs = a->xscales + m * blocks + b;
        const int32_t *sums = a->xsums + m * blocks + b;
        float *out = a->out + m * a->ld + first;
        F y = b ? _mm512_maskz_loadu_ps(some, out) : _mm512_setzero_ps();
        V sum = _mm512_setzero_si512();
        I i = 0, unit = 0;
        for (I at = 0; at < bytes; at += 64, x += 4 * UNIT) {
          I rest = bytes - at;
          __mmask64 k = _bzhi_u64(~0ull, rest < 64 ? (unsigned)rest : 64);
#if BITS == 4
          /* x at even places, and at odd ones: words of the two by turns, with 128 more */
          V u = _mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, 2 * rest < 64 ? (unsigned)(2 * rest) : 64), x);
          V v = _mm512_maskz_loadu_epi8(rest > 32 ? _bzhi_u64(~0ull, 2 * rest - 64 < 64 ? (unsigned)(2 * rest - 64) : 64) : 0, x + 64);
          V more = INTS(0x80808080), low = INTS(0x0f0f0f0f);
#define HALVES(u, v) _mm512_xor_si512(more, _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(u)), _mm512_cvtepi64_epi32(v), 1))
          V even = HALVES(u, v), odd = HALVES(_mm512_srli_epi64(u, 32), _mm512_srli_epi64(v, 32));
#define SUM(w) _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(w, low), even), \
                                   _mm512_and_si512(_mm512_srli_epi32(w, 4), low), odd)
#else
          V u = _mm512_maskz_loadu_epi8(k, x);
#define SUM(w) _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, u)
#endif
          V r[4]; /* of 4 columns each: their sums side by side, one quarter a unit */
#pragma GCC unroll 4
          for (int c = 0; c < 4; c++) {
            V s[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
              V w = _mm512_maskz_loadu_epi8(k, rows[4 * c + j] + at);
              s[j] = SUM(w);
            }
#define PAIR(p, q) _mm512_add_epi32(_mm512_unpacklo_epi32(p, q), _mm512_unpackhi_epi32(p, q))
            V f = PAIR(s[0], s[1]), g = PAIR(s[2], s[3]);
            r[c] = _mm512_add_epi32(_mm512_unpacklo_epi64(f, g), _mm512_unpackhi_epi64(f, g));
          }
          V p = _mm512_shuffle_i32x4(r[0], r[1], 0x88), q = _mm512_shuffle_i32x4(r[2], r[3], 0x88);
          V t = _mm512_shuffle_i32x4(r[0], r[1], 0xdd), z = _mm512_shuffle_i32x4(r[2], r[3], 0xdd);
          V of_units[4] = {_mm512_shuffle_i32x4(p, q, 0x88), _mm512_shuffle_i32x4(t, z, 0x88), _mm512_shuffle_i32x4(p, q, 0xdd),
                           _mm512_shuffle_i32x4(t, z, 0xdd)};
          for (I n = 0; n < 4 && 16 * n < rest; n++) {
            sum = _mm512_add_epi32(sum, of_units[n]);
            if (++unit < units) continue;
            V zero = INTS(1 << (BITS - 1));
            if (a->zeros) zero = _mm512_and_si512(_mm512_srlv_epi32(zeros[i >> 2][0], _mm512_set1_epi32((int)(i & 3) * 8)), INTS(255));
            sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(zero, _mm512_set1_epi32(sums[i])));
            F s = _mm512_mul_ps(_mm512_set1_ps(xs[i]), _mm512_castsi512_ps(scales[i][0]));
            y = _mm512_add_ps(y, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), s));
            sum = _mm512_setzero_si512();
            unit = 0;
            i++;
          }
        }
        _mm512_mask_storeu_ps(out, some, y);
      }
    }
  }
}
