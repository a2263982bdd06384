/* What onednn/listings/block_kernels_4.txt (-DBITS=4) and block_kernels_8.txt (-DBITS=8) were compiled from:

   gcc -DBITS=4 -O2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mbmi2 -fno-stack-protector -fcf-protection=branch
       -fno-asynchronous-unwind-tables -fno-pie -falign-loops=1 -falign-jumps=1 -falign-functions=1 -falign-labels=1 -c

   A permutation by 16 codes uses the low 4 bits of each lane, so codes of 4 bits need not be masked. Lanes beyond the
   last row read the last row again; multiply_row reads panels of columns, as the kernels of coded_kernels.c do.

   Where columns have zero points of their own, multiply_row needs no permutation, and one shift for 8 codes: a code in
   bits 0, 4, 8 or 12 and following of the mantissa of 2^23, 2^19, 2^15 or 2^11 makes that float larger by the code, and
   what is subtracted from it is the same float and the zero point. All of it is exact. Codes are asked for AHEAD vectors
   before they are read, beyond the end as well, which no processor minds: they come from beyond the second cache. */

#include <immintrin.h>
#include <stdint.h>

typedef struct {
  const uint8_t *codes;
  const float *scales;
  const uint8_t *zeros;
  const float *table, *x;
  float *out;
  int64_t stride, blocks, block, rows, ld, next, many;
  float (*panels)[64 * 64];
  int64_t entered, beyond;
} Work;

/* PAIRS: 32 codes, each lane with a code for an even element of x below that for an odd one.
   FACTORS: what REAL needs of block b of row i.  REAL: the weights of the lowest codes of the lanes. */
#define AHEAD 16
#if BITS == 4
#define POWER(at) ((127 + 23 - 4 * (at)) << 23) /* the float 2^(23 - 4*at) */
#define PAIRS(c) _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(c)))
#define FACTORS(i, z, s) __m512 t##i = _mm512_mul_ps(_mm512_sub_ps(table, _mm512_set1_ps((float)(z))), _mm512_set1_ps(s));
#define REAL(v, i) _mm512_permutexvar_ps(v, t##i)
#define CODE(c) _mm512_permutexvar_ps(c, table)
#else
#define PAIRS(c) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(c)))
#define FACTORS(i, z, s) __m512 n##i = _mm512_set1_ps((float)(z)), f##i = _mm512_set1_ps(s);
#define REAL(v, i) _mm512_mul_ps(_mm512_sub_ps(CODE(v), n##i), f##i)
#define CODE(c) _mm512_cvtepi32_ps(_mm512_and_si512(c, _mm512_set1_epi32(255)))
#endif

/* a row of x times some vectors of 16 columns in panels; PLAIN: all zero points are the middle code */
static inline __attribute__((always_inline)) void multiplied_row(const int N, const int PLAIN, Work *a, int64_t first, int64_t m) {
  int64_t block = a->block, blocks = a->blocks, left = a->rows - first;
  const __m512i *words = (const __m512i *)(a->codes + first * blocks * block * BITS / 8);
  const __m512 *scales = (const __m512 *)(a->scales + first * blocks);
  const __m128i *zeros = (const __m128i *)(a->zeros + first * blocks);
  const float *x = a->x + m * blocks * block;
  int half = 1 << (BITS - 1);
  __asm__("" : "+r"(half)); /* its float would lie in memory, outside of the code */
  __m512i middle = _mm512_set1_epi32(half);
#if BITS == 4
  __m512 table = _mm512_loadu_ps(a->table);
  if (PLAIN) table = _mm512_sub_ps(table, _mm512_cvtepi32_ps(middle));
#endif
  __m512 y[4];
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) y[n] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    __m512 sum[4];
    __m512i zero[4];
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      sum[n] = _mm512_setzero_ps();
      zero[n] = PLAIN ? middle : _mm512_cvtepu8_epi32(*zeros++);
    }
#if BITS == 4
    __m512 less[4][4]; /* read where !PLAIN */
#pragma GCC unroll 4
    for (int at = 0; at < 4; at++) {
      int power = POWER(at);
      __asm__("" : "+r"(power)); /* likewise */
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) {
        less[at][n] = _mm512_add_ps(_mm512_cvtepi32_ps(zero[n]), _mm512_castsi512_ps(_mm512_set1_epi32(power)));
        if (!PLAIN) __asm__("" : "+v"(less[at][n])); /* made once, not for each code */
      }
    }
#endif
    for (int64_t k = 0; k < block; k += 32 / BITS, words += N) {
      __m512i c[4];
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) {
        c[n] = words[n];
        _mm_prefetch((const char *)(words + AHEAD + n), _MM_HINT_T0);
      }
#pragma GCC unroll 8
      for (int i = 0; i < 32 / BITS; i++) {
        __m512 v = _mm512_set1_ps(*x++);
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) {
#if BITS == 4
          int at = i % 4, by = PLAIN ? 4 * (i > 0) : i == 4 ? 16 : 0;
          c[n] = _mm512_srli_epi32(c[n], by);
          __m512i placed = _mm512_ternarylogic_epi32(c[n], _mm512_set1_epi32(15 << 4 * at), _mm512_set1_epi32(POWER(at)), 0xea); /* (a & b) | c */
          __m512 code = PLAIN ? _mm512_permutexvar_ps(c[n], table) : _mm512_sub_ps(_mm512_castsi512_ps(placed), less[at][n]);
#else
          __m512 code = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_and_si512(c[n], _mm512_set1_epi32(255)), zero[n]));
          c[n] = _mm512_srli_epi32(c[n], BITS);
#endif
          sum[n] = _mm512_fmadd_ps(code, v, sum[n]);
        }
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) y[n] = _mm512_fmadd_ps(sum[n], *scales++, y[n]);
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) {
    int64_t rest = left - 16 * n;
    __mmask16 some = (__mmask16)_bzhi_u32(0xffff, rest < 16 ? (unsigned)rest : 16);
    _mm512_mask_storeu_ps(a->out + m * a->ld + first + 16 * n, some, y[n]);
    if (_mm512_mask_fpclass_ps_mask(some, y[n], 0x99)) a->beyond = 1; /* NaN or an infinity */
  }
}

/* one row of x after the other times a panel of columns at a time */
void multiply_row(Work *a) {
  for (;;) {
    int64_t first = __atomic_fetch_add(&a->next, 64, __ATOMIC_RELAXED), left = a->rows - first;
    if (left <= 0) return;
    for (int64_t m = 0; m < a->many; m++) {
#define OF(N) if (a->zeros) multiplied_row(N, 0, a, first, m); else multiplied_row(N, 1, a, first, m);
      if (left > 48) { OF(4) } else if (left > 32) { OF(3) } else if (left > 16) { OF(2) } else { OF(1) }
    }
  }
}
#undef OF

/* 64 columns at a time */
#define EACH(F) F(0) F(1) F(2) F(3)
void decode_columns(Work *a) {
  __m512 table = _mm512_loadu_ps(a->table);
  __m512i lane = _mm512_cvttps_epi32(table);
  int64_t per = a->block >> (BITS == 4 ? 3 : 2), ld = a->ld;
  for (;;) {
    int64_t first = __atomic_fetch_add(&a->next, 64, __ATOMIC_RELAXED);
    if (first >= a->rows) return;
    __m512i top = _mm512_set1_epi32((int)a->rows - 1);
    __m512i stride = _mm512_set1_epi32((int)a->stride), blocks = _mm512_set1_epi32((int)a->blocks);
#define ROWS(i) __m512i row##i = _mm512_min_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32((int)first + 16*i)), top); \
    __m512i at##i = _mm512_mullo_epi32(row##i, stride), bat##i = _mm512_mullo_epi32(row##i, blocks);
    EACH(ROWS)
    float *out = a->out + first;
    const uint8_t *codes = a->codes; 
    for (int64_t b = 0; b < a->blocks; b++) {
#define PAR(i) __m512 s##i = _mm512_i32gather_ps(bat##i, a->scales + b, 4), \
    z##i = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_i32gather_epi32(bat##i, a->zeros + b, 1), _mm512_set1_epi32(255)));
      EACH(PAR)
      for (int64_t w = 0; w < per; w++) {
#define CODES(i) __m512i c##i = _mm512_i32gather_epi32(at##i, codes, 1);
        EACH(CODES)
        codes += 4;
#pragma GCC unroll 1
        for (int n = 0; n < 32 / BITS; n++) {
#define ONE(i) _mm512_storeu_ps(out + 16*i, _mm512_mul_ps(_mm512_sub_ps(CODE(c##i), z##i), s##i)); c##i = _mm512_srli_epi32(c##i, BITS);
          EACH(ONE)
          out += ld;
        }
      }
    }
  }
}

/* many rows of x, four at a time, times 32 rows of codes, four at a time: 16 sums side by side */
void multiply_rows(Work *a) {
  int64_t per = a->block >> 5, blocks = a->blocks, width = blocks * a->block;
  for (;;) {
    int64_t first = __atomic_fetch_add(&a->next, 32, __ATOMIC_RELAXED);
    if (first >= a->rows) return;
    int64_t last = first + 32 < a->rows ? first + 32 : a->rows;
    for (int64_t m = 0; m < a->many; m += 4) {
      int64_t rows = a->many - m;
      const float *x0 = a->x + m * width, *x1 = rows > 1 ? x0 + width : x0, *x2 = rows > 2 ? x1 + width : x0,
                  *x3 = rows > 3 ? x2 + width : x0;
      for (int64_t r = first; r < last; r += 4) {
        int64_t left = last - r;
        int64_t r1 = left > 1 ? r + 1 : r, r2 = left > 2 ? r + 2 : r, r3 = left > 3 ? r + 3 : r;
#define COLUMN(F) F(0, r) F(1, r1) F(2, r2) F(3, r3)
#define START(i, row) const uint8_t *c##i = a->codes + row * a->stride, *z##i = a->zeros + row * blocks; \
        const float *s##i = a->scales + row * blocks;                                                  \
        __m512 y0##i = _mm512_setzero_ps(), y1##i = y0##i, y2##i = y0##i, y3##i = y0##i;
        COLUMN(START)
        int64_t at = 0;
        for (int64_t b = 0; b < blocks; b++) {
#if BITS == 4
          __m512 table = _mm512_loadu_ps(a->table);
#endif
#define OF_BLOCK(i, row) FACTORS(i, z##i[b], s##i[b])
          COLUMN(OF_BLOCK)
          for (int64_t w = 0; w < per; w++) {
            __m512 e0 = _mm512_loadu_ps(x0 + at), e1 = _mm512_loadu_ps(x1 + at), e2 = _mm512_loadu_ps(x2 + at), e3 = _mm512_loadu_ps(x3 + at);
            __m512 o0 = _mm512_loadu_ps(x0 + at + 16), o1 = _mm512_loadu_ps(x1 + at + 16), o2 = _mm512_loadu_ps(x2 + at + 16), o3 = _mm512_loadu_ps(x3 + at + 16);
#define SUMS(i, row) { __m512i v = PAIRS(c##i + at * BITS / 8);  \
            __m512 l = REAL(v, i), h = REAL(_mm512_srli_epi32(v, BITS), i); \
            y0##i = _mm512_fmadd_ps(l, e0, y0##i); y1##i = _mm512_fmadd_ps(l, e1, y1##i);                          \
            y2##i = _mm512_fmadd_ps(l, e2, y2##i); y3##i = _mm512_fmadd_ps(l, e3, y3##i);                          \
            y0##i = _mm512_fmadd_ps(h, o0, y0##i); y1##i = _mm512_fmadd_ps(h, o1, y1##i);                          \
            y2##i = _mm512_fmadd_ps(h, o2, y2##i); y3##i = _mm512_fmadd_ps(h, o3, y3##i); }
            COLUMN(SUMS)
            at += 32;
          }
        }
        /* lanes of 4: the sums of the four columns; then the four lanes of each row of x */
#define PAIR(p, q) _mm512_add_ps(_mm512_unpacklo_ps(p, q), _mm512_unpackhi_ps(p, q))
#define FOUR(p, q, u, v) ({ __m512d f = _mm512_castps_pd(PAIR(p, q)), g = _mm512_castps_pd(PAIR(u, v)); \
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(f, g)), _mm512_castpd_ps(_mm512_unpackhi_pd(f, g))); })
#define HALVES(p, q) _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xdd))
        __m512 y = HALVES(HALVES(FOUR(y00, y01, y02, y03), FOUR(y10, y11, y12, y13)),
                          HALVES(FOUR(y20, y21, y22, y23), FOUR(y30, y31, y32, y33)));
        __mmask8 k = (__mmask8)_bzhi_u32(15, left > 4 ? 4 : (unsigned)left);
        float *out = a->out + m * a->ld + r;
        /* the compiler must not join the two: a masked vextractf32x4 touches what it does not write */
#define STORE(j) if (rows > j) { __m128 part = _mm512_extractf32x4_ps(y, j); __asm__("" : "+v"(part)); \
        _mm_mask_storeu_ps(out + j * a->ld, k, part); }
        STORE(0) STORE(1) STORE(2) STORE(3)
      }
    }
  }
}

#undef ROW
/* any number of rows of x: of 64 columns some codes at a time are decoded, [64, 64], and multiplied from the first cache
   by all rows, whose sums wait in the result */
void multiply_columns(Work *a) {
  __m512 table = _mm512_loadu_ps(a->table);
  __m512i lane = _mm512_cvttps_epi32(table);
  int64_t per = a->block >> (BITS == 4 ? 3 : 2), ld = a->ld, width = a->blocks * a->block, many = a->many;
  /* a panel for each thread, on a cache line: the caller's memory, as some threads have little stack */
  float *panel = a->panels[__atomic_fetch_add(&a->entered, 1, __ATOMIC_RELAXED)];
  for (;;) {
    int64_t first = __atomic_fetch_add(&a->next, 64, __ATOMIC_RELAXED), left = a->rows - first;
    if (left <= 0) return;
    __m512i top = _mm512_set1_epi32((int)a->rows - 1);
    __m512i stride = _mm512_set1_epi32((int)a->stride), blocks = _mm512_set1_epi32((int)a->blocks);
    EACH(ROWS)
#define SOME(i) __mmask16 k##i = (__mmask16)_bzhi_u32(0xffff, left <= 16 * i ? 0 : left >= 16 * i + 16 ? 16 : (unsigned)(left - 16 * i));
    EACH(SOME)
    const uint8_t *codes = a->codes;
    int64_t b = 0, words = 0;
#define NONE(i) __m512 s##i = _mm512_setzero_ps(), z##i = s##i;
    EACH(NONE)
    for (int64_t done = 0; done < width; done += 64) {
      int64_t count = width - done < 64 ? width - done : 64;
      float *to = panel, *end = panel + 64 * count;
      while (to < end) {
        if (words == 0) {
#define NEXT(i) s##i = _mm512_i32gather_ps(bat##i, a->scales + b, 4); \
    z##i = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_i32gather_epi32(bat##i, a->zeros + b, 1), _mm512_set1_epi32(255)));
          EACH(NEXT)
          b++;
          words = per;
        }
        words--;
        EACH(CODES)
        codes += 4;
#pragma GCC unroll 1
        for (int n = 0; n < 32 / BITS; n++) {
#define TO(i) _mm512_store_ps(to + 16*i, _mm512_mul_ps(_mm512_sub_ps(CODE(c##i), z##i), s##i)); c##i = _mm512_srli_epi32(c##i, BITS);
          EACH(TO)
          to += 64;
        }
      }
      const float *x = a->x + done;
      float *y = a->out + first;
      int64_t m = 0;
#define ROW(F, r) F(r, 0) F(r, 1) F(r, 2) F(r, 3)
#define FROM(r, i) __m512 y##r##i = done ? _mm512_maskz_loadu_ps(k##i, y + r * ld + 16 * i) : _mm512_setzero_ps();
#define OF(r) { __m512 v = _mm512_set1_ps(x[r * width + k]); ROW(ADD, r) }
#define ADD(r, i) y##r##i = _mm512_fmadd_ps(v, p##i, y##r##i);
#define LOAD(i) __m512 p##i = _mm512_load_ps(from + 16 * i);
#define BACK(r, i) _mm512_mask_storeu_ps(y + r * ld + 16 * i, k##i, y##r##i);
      for (; m + 4 <= many; m += 4, x += 4 * width, y += 4 * ld) {
        const float *from = panel;
        ROW(FROM, 0) ROW(FROM, 1) ROW(FROM, 2) ROW(FROM, 3)
        for (int64_t k = 0; k < count; k++, from += 64) {
          EACH(LOAD)
          OF(0) OF(1) OF(2) OF(3)
        }
        ROW(BACK, 0) ROW(BACK, 1) ROW(BACK, 2) ROW(BACK, 3)
      }
      for (; m < many; m++, x += width, y += ld) {
        const float *from = panel;
        ROW(FROM, 0)
        for (int64_t k = 0; k < count; k++, from += 64) {
          EACH(LOAD)
          OF(0)
        }
        ROW(BACK, 0)
      }
    }
  }
}
