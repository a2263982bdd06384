/* What onednn/listings/coded_kernels_4.txt (-DBITS=4) and coded_kernels_8.txt (-DBITS=8) were compiled from:

   gcc -DBITS=4 -O2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mamx-tile -mamx-int8 -mbmi2 -ffp-contract=off -fno-tree-vectorize
       -fno-stack-protector -fcf-protection=branch -fno-asynchronous-unwind-tables -fno-pie -falign-loops=1 -falign-jumps=1
       -falign-functions=1 -falign-labels=1 -c

   Rows of x become s8 codes with a scale for each block. Codes are multiplied by codes in s32, block by block; each sum is
   scaled and added in f32, every operation rounded, in the order of the blocks: the numbers are NumPy's.

   Weights lie in panels of 64 columns, the last one of as many whole 16 as it needs: words of 32 bits of all its columns
   side by side, one after another; scales and zero points of each block likewise. */

#include <immintrin.h>
#include <stdint.h>

#define CODES 2048 /* of a column at a time, whole blocks: the panel stays in the second cache */

/* What a thread has at hand of 32 columns: codes, a word of 4 for each column; scales, and what sums begin with, of each
   block; sums of 16 rows of two blocks. It is the caller's memory: some threads have little stack. */
typedef struct {
  __m512i codes[CODES / 4][2], scales[CODES / 16][2], starts[CODES / 16][2], sums[2][16];
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
  int64_t blocks, block, rows, ld, next, many, size;
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

/* how many vectors of 16 columns lie side by side in the panel of a column */
static inline __attribute__((always_inline)) I vectors(const Work *a, I first) {
  I left = a->rows - (first & -64);
  return left < 64 ? (left + 15) / 16 : 4;
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
typedef struct {
  uint8_t palette, start, none[14];
  uint16_t bytes[16]; /* of a row of each tile */
  uint8_t rows[16];
} Tiles;

/* codes of a block that a tile holds */
#define DEEP(block) ((block) < 64 ? (block) : 64)

/* Tiles 0 and 3: sums of 16 rows and 16 columns; 1 and 4: codes of x; 2 and 5: codes of weights. What the thread had set
   before goes to `before`. */
static inline __attribute__((always_inline)) void set_tiles(const Work *a, Tiles *before) {
  Tiles tiles __attribute__((aligned(64)));
  V *all = (V *)&tiles;
  *all = _mm512_setzero_si512();
  tiles.palette = 1;
  for (int t = 0; t < 6; t += 3) {
    tiles.bytes[t] = tiles.bytes[t + 2] = 64;
    tiles.bytes[t + 1] = DEEP(a->block);
    tiles.rows[t] = tiles.rows[t + 1] = 16;
    tiles.rows[t + 2] = DEEP(a->block) / 4;
  }
  _tile_storeconfig(before);
  _tile_loadconfig(&tiles);
}

/* 16 rows of x times 16 columns of a panel, added to what is there: blocks of up to 64 codes, or whole 64. While the sums
   of a block are scaled those of the next one are stored, and those of the one behind it begin. */
static inline __attribute__((always_inline)) void multiplied_tiles(const Work *a, Panel *p, I half, I m, I b, I count, float *out,
                                                                   __mmask16 some) {
  I block = a->block, blocks = a->blocks, width = blocks * block, ld = a->ld, deep = DEEP(block);
  const int8_t *x = a->xcodes + m * width + b * block;
  const float *xs = a->xscales + m * blocks + b;
  const V *w = p->codes[0] + half;
  F y[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; r++) y[r] = b ? _mm512_maskz_loadu_ps(some, out + r * ld) : _mm512_setzero_ps();
#define SUM(i, to, left, right)                                             \
  do {                                                                      \
    _tile_loadd(to, p->starts[i] + half, 0); /* the same ones in all rows */ \
    for (I k = 0; k < block; k += deep) {                                   \
      _tile_loadd(left, x + (i) * block + k, width);                        \
      _tile_loadd(right, w + ((i) * block + k) / 2, 128);                   \
      _tile_dpbusd(to, left, right);                                        \
    }                                                                       \
  } while (0)
  for (I i = -2, next = 0; i < count; i++, next++) {
    int ready = i + 1 >= 0 && i + 1 < count;
    if (i & 1) {
      if (next < count) SUM(next, 3, 4, 5);
      if (ready) _tile_stored(0, p->sums[0], 64);
    } else {
      if (next < count) SUM(next, 0, 1, 2);
      if (ready) _tile_stored(3, p->sums[1], 64);
    }
    if (i < 0) continue;
    F scale = _mm512_castsi512_ps(p->scales[i][half]);
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
      F both = _mm512_mul_ps(_mm512_set1_ps(xs[r * blocks + i]), scale);
      y[r] = _mm512_add_ps(y[r], _mm512_mul_ps(_mm512_cvtepi32_ps(p->sums[i & 1][r]), both));
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; r++) _mm512_mask_storeu_ps(out + r * ld, some, y[r]);
}
#endif

/* rows of codes of x times 32 columns of codes of weights at a time */
static inline __attribute__((always_inline)) void multiply(Work *a, const int tiles) {
  Panel *p = OWN_PANEL(a);
#if BITS == 4
  Tiles before __attribute__((aligned(64)));
  if (tiles) set_tiles(a, &before);
#endif
  I block = a->block, blocks = a->blocks, many = a->many, ld = a->ld, at_once = CODES / block, per = block * BITS / 32;
  for (;;) {
    I first = __atomic_fetch_add(&a->next, 32, __ATOMIC_RELAXED), left = a->rows - first, beside = vectors(a, first);
    if (left <= 0) break;
    __mmask16 k0 = SOME(left), k1 = left > 16 ? SOME(left - 16) : 0;
    for (I b = 0; b < blocks; b += at_once) {
      I count = blocks - b < at_once ? blocks - b : at_once;
      /* all at once, for they come from afar; a line beyond the last column is nobody's business */
      const V *lines = (const V *)(a->codes + (first & -64) * blocks * block * BITS / 8) + b * per * beside + (first >> 4 & 3);
      for (I k = 0; k < count * per; k++, lines += beside) {
        _mm_prefetch((const char *)lines, _MM_HINT_T1);
        _mm_prefetch((const char *)(lines + 1), _MM_HINT_T1);
      }
#pragma GCC unroll 1
      for (int half = 0; half < 2; half++) {
        I vector = (first >> 4 & 3) + half, column = first & -64; /* beyond the last one it is read again */
        if (vector == beside) vector--;
        const V *words = (const V *)(a->codes + column * blocks * block * BITS / 8) + b * per * beside + vector;
        const V *scales = (const V *)(a->scales + column * blocks) + b * beside + vector;
        const __m128i *zeros = (const __m128i *)(a->zeros + column * blocks) + b * beside + vector;
        V *codes = p->codes[0] + half;
        for (I i = 0; i < count; i++) {
          V zero = a->zeros ? _mm512_cvtepu8_epi32(zeros[i * beside]) : INTS(1 << (BITS - 1));
#if BITS == 4
          V sum = _mm512_setzero_si512(), low = INTS(0x0f0f0f0f);
          zero = _mm512_mullo_epi32(zero, INTS(0x01010101));
          for (I k = 0; k < per; k++, words += beside, codes += 4) {
            V even = _mm512_sub_epi8(_mm512_and_si512(*words, low), zero);
            V odd = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi32(*words, 4), low), zero);
            codes[0] = even;
            codes[2] = odd;
            sum = DP(sum, INTS(0x80808080), even);
            sum = DP(sum, INTS(0x80808080), odd);
          }
          zero = sum;
#else
          for (I k = 0; k < per; k++, words += beside, codes += 2) *codes = *words;
#endif
          p->scales[i][half] = scales[i * beside];
          p->starts[i][half] = _mm512_sub_epi32(_mm512_setzero_si512(), zero);
        }
      }
      float *out = a->out + first;
      I m = 0;
#if BITS == 4
      if (tiles) {
        __asm__ volatile("" ::: "memory"); /* what tiles read is written */
        for (; m + 16 <= many; m += 16) {
#pragma GCC unroll 1
          for (I half = 0; half < 2; half++) multiplied_tiles(a, p, half, m, b, count, out + m * ld + 16 * half, half ? k1 : k0);
        }
      }
#endif
      for (; m + 6 <= many; m += 6) multiplied(6, a, p, m, b, count, out + m * ld, k0, k1);
      for (; m + 4 <= many; m += 4) multiplied(4, a, p, m, b, count, out + m * ld, k0, k1);
      for (; m + 2 <= many; m += 2) multiplied(2, a, p, m, b, count, out + m * ld, k0, k1);
      if (m < many) multiplied(1, a, p, m, b, count, out + m * ld, k0, k1);
    }
  }
#if BITS == 4
  if (tiles) _tile_loadconfig(&before);
#endif
}

void multiply_codes(Work *a) { multiply(a, 0); }

#if BITS == 4
/* the same, with AMX; blocks of up to 64 codes, or whole 64 */
void multiply_by_tiles(Work *a) { multiply(a, 1); }
#endif

/* a row of x times some vectors of 16 columns */
static inline __attribute__((always_inline)) void multiplied_row(const int N, const Work *a, I first, I m) {
  I block = a->block, blocks = a->blocks, left = a->rows - first;
  const V *words = (const V *)(a->codes + first * blocks * block * BITS / 8);
  const V *scales = (const V *)(a->scales + first * blocks);
  const __m128i *zeros = (const __m128i *)(a->zeros + first * blocks);
  const int8_t *x = a->xcodes + m * blocks * block;
  F y[4];
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) y[n] = _mm512_setzero_ps();
  for (I b = 0; b < blocks; b++) {
    /* the sum of x counts as often as the zero point says, and is taken away */
    V acc[4], minus = _mm512_set1_epi32(-a->xsums[m * blocks + b]);
#pragma GCC unroll 4
    for (int n = 0; n < N; n++)
      acc[n] = a->zeros ? _mm512_mullo_epi32(_mm512_cvtepu8_epi32(*zeros++), minus) : _mm512_slli_epi32(minus, BITS - 1);
    for (I k = 0; k < block; k += 32 / BITS, x += 32 / BITS, words += N) {
#if BITS == 4
      V more = INTS(0x80808080), low = INTS(0x0f0f0f0f);
#define OF_X(at) _mm512_xor_si512(more, _mm512_set1_epi32(*(const int32_t *)(x + at)))
      V even = OF_X(0), odd = OF_X(4);
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) {
        acc[n] = _mm512_dpbusd_epi32(acc[n], _mm512_and_si512(words[n], low), even);
        acc[n] = _mm512_dpbusd_epi32(acc[n], _mm512_and_si512(_mm512_srli_epi32(words[n], 4), low), odd);
      }
#else
      V v = _mm512_set1_epi32(*(const int32_t *)x);
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) acc[n] = _mm512_dpbusd_epi32(acc[n], words[n], v);
#endif
    }
    F s = _mm512_set1_ps(a->xscales[m * blocks + b]);
#pragma GCC unroll 4
    for (int n = 0; n < N; n++)
      y[n] = _mm512_add_ps(y[n], _mm512_mul_ps(_mm512_cvtepi32_ps(acc[n]), _mm512_mul_ps(s, _mm512_castsi512_ps(*scales++))));
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) _mm512_mask_storeu_ps(a->out + m * a->ld + first + 16 * n, SOME(left - 16 * n), y[n]);
}

/* a row of x after the other times a panel of columns at a time: for few rows */
void multiply_row(Work *a) {
  for (;;) {
    I first = __atomic_fetch_add(&a->next, 64, __ATOMIC_RELAXED);
    if (first >= a->rows) return;
    for (I m = 0; m < a->many; m++) {
      switch (vectors(a, first)) {
        case 1: multiplied_row(1, a, first, m); break;
        case 2: multiplied_row(2, a, first, m); break;
        case 3: multiplied_row(3, a, first, m); break;
        default: multiplied_row(4, a, first, m);
      }
    }
  }
}
