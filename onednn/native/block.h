/* Codes of BITS bits in blocks times rows of f32. Lanes beyond the last row of codes read the last one again; multiply_row
   reads panels of columns, as the kernels of coded.h do. */

#define LOWEST ((1 << BITS) - 1)

/* What makes weights of the lowest codes of the lanes, (code - zero) * scale; a table of the 16 codes of 4 bits fits into
   one register of 16 lanes, whose permutation uses the low 4 bits of each lane. */
#if BITS == 4 && VECTOR == 16
typedef F NAMED(Factors);
INLINE F NAMED(code)(I codes) { return _mm512_permutexvar_ps(codes, f_of(i_lanes())); }
INLINE F NAMED(factors)(F zero, F scale) { return f_mul(f_sub(f_of(i_lanes()), zero), scale); }
INLINE F NAMED(weights)(I codes, F factors) { return _mm512_permutexvar_ps(codes, factors); }
#else
typedef struct { F zero, scale; } NAMED(Factors);
INLINE F NAMED(code)(I codes) { return f_of(i_and(codes, i_all(LOWEST))); }
INLINE NAMED(Factors) NAMED(factors)(F zero, F scale) {
  NAMED(Factors) found = {zero, scale};
  return found;
}
INLINE F NAMED(weights)(I codes, NAMED(Factors) factors) { return f_mul(f_sub(NAMED(code)(codes), factors.zero), factors.scale); }
#endif

#define AHEAD 16 /* words of all columns that are asked for before they are read: they come from beyond the second cache */

#if BITS == 4
#define POWER(at) ((127 + 23 - 4 * (at)) << 23) /* the float 2^(23 - 4*at) */
#endif

/* A row of x times some vectors of columns from the one `from` on of a panel, which is `wide`. A code of 4 bits needs no
   conversion, and 8 of them one shift: in bits 0, 4, 8 or 12 and following of the mantissa of 2^23, 2^19, 2^15 or 2^11 it
   makes that float larger by the code, and what is subtracted from it is the same float and the zero point: all exact.
   PLAIN: all zero points are the middle code, and a table of 16 codes has them off. */
INLINE void NAMED(block_row)(const int N, const int PLAIN, BlockWork *a, int64_t first, int64_t from, int64_t wide, int64_t m) {
  int64_t block = a->block, blocks = a->blocks;
  const int32_t *words = (const int32_t *)(a->codes + first * blocks * block * BITS / 8) + from;
  const float *scales = a->scales + first * blocks + from, *x = a->x + m * blocks * block;
  const uint8_t *zeros = a->zeros + first * blocks + from;
#if BITS == 4 && VECTOR == 16
  const F table = f_sub(f_of(i_lanes()), f_all(8.0f));
#endif
  F y[4];
  UNROLL for (int n = 0; n < N; n++) y[n] = f_zero();
  for (int64_t b = 0; b < blocks; b++, scales += wide, zeros += wide) {
    F sum[4];
    I zero[4];
    UNROLL for (int n = 0; n < N; n++) {
      sum[n] = f_zero();
      zero[n] = PLAIN ? i_all(1 << (BITS - 1)) : i_of_bytes(zeros + n * VECTOR);
    }
#if BITS == 4
    F less[4][4];
    UNROLL for (int at = 0; at < 4; at++)
      UNROLL for (int n = 0; n < N; n++) {
        less[at][n] = f_add(f_of(zero[n]), f_all(float_of(POWER(at))));
        KEPT(less[at][n]);
      }
#endif
    for (int64_t k = 0; k < block; k += CODES_OF_WORD, words += wide) {
      I c[4];
      UNROLL for (int n = 0; n < N; n++) {
        c[n] = i_load(words + n * VECTOR);
        PREFETCH(words + n * VECTOR + AHEAD * 16, 0);
      }
      UNROLL for (int i = 0; i < CODES_OF_WORD; i++) {
        F v = f_all(*x++);
        UNROLL for (int n = 0; n < N; n++) {
#if BITS == 4
          int at = i % 4;
#if VECTOR == 16
          if (PLAIN) {
            sum[n] = f_fma(_mm512_permutexvar_ps(c[n], table), v, sum[n]);
            c[n] = i_right(c[n], 4);
            continue;
          }
#endif
          if (i == 4) c[n] = i_right(c[n], 16);
          F code = f_sub(f_cast(i_or(i_and(c[n], i_all(15 << 4 * at)), i_all(POWER(at)))), less[at][n]);
#else
          F code = f_of(i_sub(i_and(c[n], i_all(255)), zero[n]));
          c[n] = i_right(c[n], BITS);
#endif
          sum[n] = f_fma(code, v, sum[n]);
        }
      }
    }
    UNROLL for (int n = 0; n < N; n++) y[n] = f_fma(sum[n], f_load(scales + n * VECTOR), y[n]);
  }
  UNROLL for (int n = 0; n < N; n++) {
    int64_t column = first + from + n * VECTOR, some = a->rows - column;
    f_put(a->out + m * a->ld + column, y[n], some);
    if (f_any_infinite(y[n], some)) a->beyond = 1;
  }
}

/* one row of x after the other times a panel of columns at a time */
static void NAMED(block_multiply_row)(BlockWork *a) {
  for (;;) {
    int64_t first = TAKE(&a->next, 64), wide = panel_width(a->rows - first);
    if (first >= a->rows) return;
    for (int64_t m = 0; m < a->many; m++) {
      for (int64_t from = 0; from < wide; from += 4 * VECTOR) {
#define SOME_COLUMNS(N)                                                  \
  if (a->zeros) NAMED(block_row)(N, 0, a, first, from, wide, m);         \
  else NAMED(block_row)(N, 1, a, first, from, wide, m);                  \
  break;
        switch (least((wide - from) / VECTOR, 4)) {
          case 1: SOME_COLUMNS(1)
          case 2: SOME_COLUMNS(2)
          case 3: SOME_COLUMNS(3)
          default: SOME_COLUMNS(4)
        }
      }
    }
  }
}

#define GROUPS (16 / VECTOR) /* of four vectors, in 64 columns */

#ifndef COLUMNS
#define COLUMNS
/* Four vectors of columns, which are decoded a word after the other. */
typedef struct {
  I at[4], of_block[4]; /* offsets of their codes, scales and zero points */
  F scales[4], zeros[4];
  const uint8_t *codes;
  int64_t block, words; /* the next block; words that are left of this one */
} Columns;

INLINE Columns columns_from(const BlockWork *a, int64_t first) {
  Columns found;
  UNROLL for (int i = 0; i < 4; i++) {
    I row = i_min(i_add(i_lanes(), i_all((int)first + VECTOR * i)), i_all((int)a->rows - 1));
    found.at[i] = i_mul(row, i_all((int)a->stride));
    found.of_block[i] = i_mul(row, i_all((int)a->blocks));
    found.scales[i] = found.zeros[i] = f_zero();
  }
  found.codes = a->codes;
  found.block = found.words = 0;
  return found;
}
#endif

INLINE void NAMED(decode_word)(const BlockWork *a, Columns *c, float *to, int64_t ld) {
  I codes[4];
  if (!c->words) {
    UNROLL for (int i = 0; i < 4; i++) {
      c->scales[i] = f_gather(a->scales + c->block, c->of_block[i]);
      c->zeros[i] = f_of(i_and(i_gather(a->zeros + c->block, c->of_block[i]), i_all(255)));
    }
    c->block++;
    c->words = a->block / CODES_OF_WORD;
  }
  c->words--;
  UNROLL for (int i = 0; i < 4; i++) codes[i] = i_gather(c->codes, c->at[i]);
  c->codes += 4;
  NO_UNROLL for (int n = 0; n < CODES_OF_WORD; n++, to += ld)
    UNROLL for (int i = 0; i < 4; i++) {
      f_store(to + VECTOR * i, f_mul(f_sub(NAMED(code)(codes[i]), c->zeros[i]), c->scales[i]));
      codes[i] = i_right(codes[i], BITS);
    }
}

/* 64 columns at a time */
static void NAMED(decode_columns)(BlockWork *a) {
  int64_t width = a->blocks * a->block, ld = a->ld;
  for (;;) {
    int64_t first = TAKE(&a->next, 64);
    if (first >= a->rows) return;
    for (int64_t part = first; part < first + 64; part += 4 * VECTOR) {
      Columns columns = columns_from(a, part);
      float *out = a->out + part;
      for (int64_t k = 0; k < width; k += CODES_OF_WORD) NAMED(decode_word)(a, &columns, out + k * ld, ld);
    }
  }
}

#define SIDE (VECTOR == 16 ? 4 : 2) /* columns side by side, each with the sums of four rows */

/* Four rows of x, in which the even ones of 32 elements are in front of the odd ones, times some rows of codes: sums of 16
   lanes, the lower half of which comes first where a vector has 8. */
INLINE void NAMED(block_tile)(const BlockWork *a, const float *const x[4], int64_t r, int64_t left, int64_t rows, float *out) {
  int64_t per = a->block / 32, blocks = a->blocks, ld = a->ld;
  const uint8_t *codes[SIDE], *zeros[SIDE];
  const float *scales[SIDE];
  UNROLL for (int i = 0; i < SIDE; i++) {
    int64_t row = r + least(i, left - 1);
    codes[i] = a->codes + row * a->stride;
    zeros[i] = a->zeros + row * blocks;
    scales[i] = a->scales + row * blocks;
  }
#if VECTOR == 8
  float found[4][SIDE];
#endif
  for (int half = 0; half < 16; half += VECTOR) {
    F y[4][SIDE];
    UNROLL for (int j = 0; j < 4; j++)
      UNROLL for (int i = 0; i < SIDE; i++) y[j][i] = f_zero();
    for (int64_t b = 0, at = 0; b < blocks; b++) {
      NAMED(Factors) factors[SIDE];
      UNROLL for (int i = 0; i < SIDE; i++)
        factors[i] = NAMED(factors)(f_all((float)zeros[i][b]), f_all(scales[i][b]));
      for (int64_t w = 0; w < per; w++, at += 32) {
        F of_even[4], of_odd[4];
        UNROLL for (int j = 0; j < 4; j++) {
          of_even[j] = f_load(x[j] + at + half);
          of_odd[j] = f_load(x[j] + at + 16 + half);
        }
        UNROLL for (int i = 0; i < SIDE; i++) {
          const uint8_t *some = codes[i] + at * BITS / 8 + half * BITS / 4;
          /* each lane with a code for an even element below that for an odd one */
          I pairs = BITS == 4 ? i_of_bytes(some) : i_of_shorts(some);
          F even = NAMED(weights)(pairs, factors[i]), odd = NAMED(weights)(i_right(pairs, BITS), factors[i]);
          UNROLL for (int j = 0; j < 4; j++) y[j][i] = f_fma(even, of_even[j], y[j][i]);
          UNROLL for (int j = 0; j < 4; j++) y[j][i] = f_fma(odd, of_odd[j], y[j][i]);
        }
      }
    }
#if VECTOR == 16
    /* lanes of 4: the sums of the four columns; then the four lanes of each row of x */
#define PAIR(p, q) _mm512_add_ps(_mm512_unpacklo_ps(p, q), _mm512_unpackhi_ps(p, q))
#define HALVES(p, q) _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xdd))
    F sums[4];
    UNROLL for (int j = 0; j < 4; j++) {
      __m512d f = _mm512_castps_pd(PAIR(y[j][0], y[j][1])), g = _mm512_castps_pd(PAIR(y[j][2], y[j][3]));
      sums[j] = f_add(_mm512_castpd_ps(_mm512_unpacklo_pd(f, g)), _mm512_castpd_ps(_mm512_unpackhi_pd(f, g)));
    }
    F all = HALVES(HALVES(sums[0], sums[1]), HALVES(sums[2], sums[3]));
    __mmask8 some = (__mmask8)_bzhi_u32(15, (unsigned)left);
    /* the compiler must not join the two: a masked vextractf32x4 touches what it does not write */
#define ROW_OUT(j) if (rows > j) { __m128 part = _mm512_extractf32x4_ps(all, j); KEPT(part); _mm_mask_storeu_ps(out + j * ld, some, part); }
    ROW_OUT(0) ROW_OUT(1) ROW_OUT(2) ROW_OUT(3)
#else
    UNROLL for (int j = 0; j < 4; j++)
      UNROLL for (int i = 0; i < SIDE; i++) found[j][i] = half ? found[j][i] + f_total(y[j][i]) : f_total(y[j][i]);
  }
  for (int j = 0; j < least(rows, 4); j++) {
    for (int i = 0; i < least(left, SIDE); i++) out[j * ld + i] = found[j][i];
#endif
  }
}

/* many rows of x, four at a time, times 32 rows of codes, SIDE at a time */
static void NAMED(multiply_rows)(BlockWork *a) {
  int64_t width = a->blocks * a->block;
  for (;;) {
    int64_t first = TAKE(&a->next, 32), last = least(first + 32, a->rows);
    if (first >= a->rows) return;
    for (int64_t m = 0; m < a->many; m += 4) {
      const float *x[4];
      for (int j = 0; j < 4; j++) x[j] = a->x + least(m + j, a->many - 1) * width;
      for (int64_t r = first; r < last; r += SIDE)
        NAMED(block_tile)(a, x, r, least(last - r, SIDE), a->many - m, a->out + m * a->ld + r);
    }
  }
}

#ifndef COLUMN_PRODUCTS
#define COLUMN_PRODUCTS
/* Some rows of x times four vectors of decoded columns, added to what is there but for the first ones. */
INLINE void column_products(const int ROWS, const BlockWork *a, const float *from, const float *x, float *y, int64_t count, int fresh, int64_t left) {
  int64_t width = a->blocks * a->block, ld = a->ld;
  F sums[4][4];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int i = 0; i < 4; i++) sums[r][i] = fresh ? f_zero() : f_get(y + r * ld + VECTOR * i, left - VECTOR * i);
  for (int64_t k = 0; k < count; k++, from += 64, x++) {
    F weights[4];
    UNROLL for (int i = 0; i < 4; i++) {
      weights[i] = f_load(from + VECTOR * i);
      KEPT(weights[i]);
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
      F value = f_all(x[r * width]);
      UNROLL for (int i = 0; i < 4; i++) sums[r][i] = f_fma(value, weights[i], sums[r][i]);
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int i = 0; i < 4; i++) f_put(y + r * ld + VECTOR * i, sums[r][i], left - VECTOR * i);
}
#endif

/* any number of rows of x: of 64 columns some codes at a time are decoded, [64, 64], and multiplied from the first cache
   by all rows, whose sums wait in the result */
static void NAMED(multiply_columns)(BlockWork *a) {
  int64_t width = a->blocks * a->block, many = a->many;
  /* a panel for each thread, on a cache line: the caller's memory, as some threads have little stack */
  float *panel = a->panels[TAKE(&a->entered, 1)];
  for (;;) {
    int64_t first = TAKE(&a->next, 64);
    if (first >= a->rows) return;
    Columns columns[GROUPS];
    UNROLL for (int g = 0; g < GROUPS; g++) columns[g] = columns_from(a, first + g * 4 * VECTOR);
    for (int64_t done = 0; done < width; done += 64) {
      int64_t count = least(width - done, 64);
      UNROLL for (int g = 0; g < GROUPS; g++) {
        int64_t column = g * 4 * VECTOR, left = a->rows - first - column, m = 0;
        float *from = panel + column, *y = a->out + first + column;
        const float *x = a->x + done;
        if (left <= 0) continue;
        for (int64_t k = 0; k < count; k += CODES_OF_WORD) NAMED(decode_word)(a, &columns[g], from + 64 * k, 64);
        for (; m + ROWS_AT_ONCE <= many; m += ROWS_AT_ONCE)
          column_products(ROWS_AT_ONCE, a, from, x + m * width, y + m * a->ld, count, !done, left);
        for (; m < many; m++) column_products(1, a, from, x + m * width, y + m * a->ld, count, !done, left);
      }
    }
  }
}
#undef POWER
#undef SOME_COLUMNS
