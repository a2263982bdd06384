/* Rows of x become s8 codes with a scale for each block. Codes are multiplied by codes in s32, block by block; each sum is
   scaled and added in f32, every operation rounded, in the order of the blocks: the numbers are NumPy's.

   Weights lie in panels of 64 columns, the last one of as many whole 16 as it needs: words of 32 bits of all its columns
   side by side, one after another; scales and zero points of each block likewise. */

/* Of the factors of a product one is u8, and one s8.
   4 bits: x + 128 times (code - zero), in a sum that begins at -128 times the sum of the latter.
   8 bits: the code times x, in a sum that begins at -zero times the sum of x. */
#if BITS == 4
#define DOT(sum, x, w) i_dot(sum, x, w)
#else
#define DOT(sum, x, w) i_dot(sum, w, x)
#endif
#define SOME_128 i_all((int32_t)0x80808080)
#define LOW_CODES i_all(0x0f0f0f0f)

#ifndef CODES
#define CODES 2048 /* of a column at a time, whole blocks: the panel stays in the second cache */

/* What a thread has at hand of 32 columns: codes, a word of 4 for each column; scales, and what sums begin with, of each
   block; sums of 16 rows of two blocks. It is the caller's memory: some threads have little stack. */
typedef struct {
  int32_t codes[CODES / 4][32];
  float scales[CODES / 16][32];
  int32_t starts[CODES / 16][32];
  int32_t sums[2][16][16];
} Panel;
#endif

/* Rows of x [many, size] as codes [many, blocks * block], with scales and sums [many, blocks].
   Of 8 codes those at even places are in front, for codes of 4 bits. */
static void NAMED(quantize_rows)(CodedWork *a) {
  int64_t block = a->block, blocks = a->blocks, size = a->size;
  for (;;) {
    int64_t m = TAKE(&a->next, 1);
    if (m >= a->many) return;
    const float *x = a->x + m * size;
    int8_t *to = a->xcodes + m * blocks * block;
    for (int64_t b = 0; b < blocks; b++, x += block, to += block) {
      int64_t end = least(size - b * block, block);
      I magnitudes = i_zero(), sum = magnitudes;
      for (int64_t k = 0; k < end; k += VECTOR)
        magnitudes = i_max(magnitudes, i_and(i_cast(f_get(x + k, end - k)), i_all(0x7fffffff)));
      int32_t largest = i_highest(magnitudes);
      float scale = float_of(largest) / 127.0f, inverse = 1.0f / scale;
      if (largest >= 0x7f800000) {
        scale = float_of(0x7fc00000);
        end = 0;
      } else if (bits_of(scale) < 0x00800000) {
        scale = 0;
        end = 0;
      }
      for (int64_t k = 0; k < block; k += VECTOR) {
        I code = i_first(i_of(f_mul(f_get(x + k, end - k), f_all(inverse))), end - k);
        sum = i_add(sum, code);
        if (BITS == 4) code = i_xor(i_evens_first(code), i_all(128));
        i_put_bytes(to + k, code, block - k);
      }
      a->xscales[m * blocks + b] = scale;
      a->xsums[m * blocks + b] = i_total(sum);
    }
  }
}

/* some rows of x times two vectors of columns of a panel, added to what is there */
INLINE void NAMED(multiplied)(const int ROWS, const CodedWork *a, const Panel *p, int64_t column, int64_t m, int64_t b, int64_t count, float *out,
                              int64_t left) {
  int64_t block = a->block, blocks = a->blocks, width = blocks * block, ld = a->ld;
  const int8_t *x = a->xcodes + m * width + b * block;
  const float *xs = a->xscales + m * blocks + b;
  const int32_t *w = p->codes[0] + column, *xsums = a->xsums + m * blocks + b;
  F y[6][2];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < 2; v++) y[r][v] = b ? f_get(out + r * ld + v * VECTOR, left - v * VECTOR) : f_zero();
  for (int64_t i = 0; i < count; i++) {
    I sums[6][2];
    UNROLL for (int r = 0; r < ROWS; r++)
      UNROLL for (int v = 0; v < 2; v++) {
        I start = i_load(p->starts[i] + column + v * VECTOR);
        sums[r][v] = BITS == 4 ? start : i_mul(start, i_all(xsums[r * blocks + i]));
      }
    for (int64_t k = 0; k < block; k += 4, x += 4, w += 32) {
      I w0 = i_load(w), w1 = i_load(w + VECTOR);
      UNROLL for (int r = 0; r < ROWS; r++) {
        I codes = i_all(word_at(x + r * width));
        sums[r][0] = DOT(sums[r][0], codes, w0);
        sums[r][1] = DOT(sums[r][1], codes, w1);
      }
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
      F s = f_all(xs[r * blocks + i]);
      UNROLL for (int v = 0; v < 2; v++)
        y[r][v] = f_add(y[r][v], f_mul(f_of(sums[r][v]), f_mul(s, f_load(p->scales[i] + column + v * VECTOR))));
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < 2; v++) f_put(out + r * ld + v * VECTOR, y[r][v], left - v * VECTOR);
}

#if BITS == 4 && defined(AMX)
typedef struct {
  uint8_t palette, start, none[14];
  uint16_t bytes[16]; /* of a row of each tile */
  uint8_t rows[16];
} Tiles;

/* codes of a block that a tile holds */
#define DEEP(block) ((block) < 64 ? (block) : 64)

/* Tiles 0 and 3: sums of 16 rows and 16 columns; 1 and 4: codes of x; 2 and 5: codes of weights. What the thread had set
   before goes to `before`. */
INLINE void set_tiles(const CodedWork *a, Tiles *before) {
  ALIGNED Tiles tiles;
  memset(&tiles, 0, sizeof tiles);
  tiles.palette = 1;
  for (int t = 0; t < 6; t += 3) {
    tiles.bytes[t] = tiles.bytes[t + 2] = 64;
    tiles.bytes[t + 1] = (uint16_t)DEEP(a->block);
    tiles.rows[t] = tiles.rows[t + 1] = 16;
    tiles.rows[t + 2] = (uint8_t)(DEEP(a->block) / 4);
  }
  _tile_storeconfig(before);
  _tile_loadconfig(&tiles);
}

/* 16 rows of x times 16 columns of a panel, added to what is there: blocks of up to 64 codes, or whole 64. While the sums
   of a block are scaled those of the next one are stored, and those of the one behind it begin. */
INLINE void multiplied_tiles(const CodedWork *a, Panel *p, int64_t column, int64_t m, int64_t b, int64_t count, float *out, int64_t left) {
  int64_t block = a->block, blocks = a->blocks, width = blocks * block, ld = a->ld, deep = DEEP(block);
  const int8_t *x = a->xcodes + m * width + b * block;
  const float *xs = a->xscales + m * blocks + b;
  F y[16];
  UNROLL for (int r = 0; r < 16; r++) y[r] = b ? f_get(out + r * ld, left) : f_zero();
#define SUM(i, to, of_x, of_w)                                                  \
  do {                                                                          \
    _tile_loadd(to, p->starts[i] + column, 0); /* the same ones in all rows */  \
    for (int64_t k = 0; k < block; k += deep) {                                 \
      _tile_loadd(of_x, x + (i) * block + k, width);                            \
      _tile_loadd(of_w, p->codes[((i) * block + k) / 4] + column, 128);         \
      _tile_dpbusd(to, of_x, of_w);                                             \
    }                                                                           \
  } while (0)
  for (int64_t i = -2, next = 0; i < count; i++, next++) {
    int ready = i + 1 >= 0 && i + 1 < count;
    if (i & 1) {
      if (next < count) SUM(next, 3, 4, 5);
      if (ready) _tile_stored(0, p->sums[0], 64);
    } else {
      if (next < count) SUM(next, 0, 1, 2);
      if (ready) _tile_stored(3, p->sums[1], 64);
    }
    if (i < 0) continue;
    F scale = f_load(p->scales[i] + column);
    UNROLL for (int r = 0; r < 16; r++)
      y[r] = f_add(y[r], f_mul(f_of(i_load(p->sums[i & 1][r])), f_mul(f_all(xs[r * blocks + i]), scale)));
  }
  UNROLL for (int r = 0; r < 16; r++) f_put(out + r * ld, y[r], left);
}
#endif

/* Codes, scales and starts of one vector of columns, of some blocks: words of all columns of its panel lie side by side. */
INLINE void NAMED(fill)(const CodedWork *a, Panel *p, int64_t column, int64_t first, int64_t b, int64_t count) {
  int64_t block = a->block, blocks = a->blocks, per = block * BITS / 32, panel = first & -64, wide = panel_width(a->rows - panel);
  int64_t within = (first & 63) + column;
  if (within >= wide) within -= 16; /* beyond the last one it is read again */
  const int32_t *words = (const int32_t *)(a->codes + panel * blocks * block * BITS / 8) + b * per * wide + within;
  const float *scales = a->scales + panel * blocks + b * wide + within;
  const uint8_t *zeros = a->zeros + panel * blocks + b * wide + within;
  int32_t *codes = p->codes[0] + column;
  for (int64_t i = 0; i < count; i++) {
    I zero = a->zeros ? i_of_bytes(zeros + i * wide) : i_all(1 << (BITS - 1));
#if BITS == 4
    I sum = i_zero();
    zero = i_mul(zero, i_all(0x01010101));
    for (int64_t k = 0; k < per; k++, words += wide, codes += 64) {
      I both = i_load(words);
      I even = i_sub_bytes(i_and(both, LOW_CODES), zero), odd = i_sub_bytes(i_and(i_right(both, 4), LOW_CODES), zero);
      i_store(codes, even);
      i_store(codes + 32, odd);
      sum = i_dot(i_dot(sum, SOME_128, even), SOME_128, odd);
    }
    zero = sum;
#else
    for (int64_t k = 0; k < per; k++, words += wide, codes += 32) i_store(codes, i_load(words));
#endif
    f_store(p->scales[i] + column, f_load(scales + i * wide));
    i_store(p->starts[i] + column, i_sub(i_zero(), zero));
  }
}

/* rows of codes of x times 32 columns of codes of weights at a time */
INLINE void NAMED(multiply)(CodedWork *a, const int tiles) {
  Panel *p = (Panel *)a->panels + TAKE(&a->entered, 1); /* the thread's own */
#if BITS == 4 && defined(AMX)
  ALIGNED Tiles before;
  if (tiles) set_tiles(a, &before);
#else
  (void)tiles;
#endif
  int64_t block = a->block, blocks = a->blocks, many = a->many, ld = a->ld, at_once = CODES / block, per = block * BITS / 32;
  for (;;) {
    int64_t first = TAKE(&a->next, 32), panel = first & -64, wide = panel_width(a->rows - panel);
    if (first >= a->rows) break;
    for (int64_t b = 0; b < blocks; b += at_once) {
      int64_t count = least(blocks - b, at_once);
      /* all at once, for they come from afar; a line beyond the last column is nobody's business */
      const int32_t *lines = (const int32_t *)(a->codes + panel * blocks * block * BITS / 8) + b * per * wide + (first & 63);
      for (int64_t k = 0; k < count * per; k++, lines += wide) {
        PREFETCH(lines, 1);
        PREFETCH(lines + 16, 1);
      }
      NO_UNROLL for (int64_t column = 0; column < 32; column += VECTOR) NAMED(fill)(a, p, column, first, b, count);
      NO_UNROLL for (int64_t column = 0; column < 32; column += 2 * VECTOR) {
        int64_t left = a->rows - first - column, m = 0;
        float *out = a->out + first + column;
        if (left <= 0) break;
#if BITS == 4 && defined(AMX)
        if (tiles) {
          __asm__ volatile("" ::: "memory"); /* what tiles read is written */
          for (; m + 16 <= many; m += 16) {
            NO_UNROLL for (int64_t half = 0; half < 32; half += 16)
              multiplied_tiles(a, p, half, m, b, count, out + m * ld + half, left - half);
          }
        }
#endif
#define SOME_ROWS(many_rows) for (; m + many_rows <= many; m += many_rows) NAMED(multiplied)(many_rows, a, p, column, m, b, count, out + m * ld, left)
#if VECTOR == 16
        SOME_ROWS(6);
#endif
        SOME_ROWS(4);
        SOME_ROWS(2);
        SOME_ROWS(1);
      }
    }
  }
#if BITS == 4 && defined(AMX)
  if (tiles) _tile_loadconfig(&before);
#endif
}

static void NAMED(multiply_codes)(CodedWork *a) { NAMED(multiply)(a, 0); }

#if BITS == 4 && defined(AMX)
/* the same, with AMX; blocks of up to 64 codes, or whole 64 */
static void multiply_by_tiles(CodedWork *a) { NAMED(multiply)(a, 1); }
#endif

/* a row of x times some vectors of columns from the one `from` on of a panel, which is `wide` */
INLINE void NAMED(coded_row)(const int N, const CodedWork *a, int64_t first, int64_t from, int64_t wide, int64_t m) {
  int64_t block = a->block, blocks = a->blocks;
  const int32_t *words = (const int32_t *)(a->codes + first * blocks * block * BITS / 8) + from;
  const float *scales = a->scales + first * blocks + from;
  const uint8_t *zeros = a->zeros + first * blocks + from;
  const int8_t *x = a->xcodes + m * blocks * block;
  F y[4];
  UNROLL for (int n = 0; n < N; n++) y[n] = f_zero();
  for (int64_t b = 0; b < blocks; b++, scales += wide, zeros += wide) {
    /* the sum of x counts as often as the zero point says, and is taken away */
    I sums[4], minus = i_all(-a->xsums[m * blocks + b]);
    UNROLL for (int n = 0; n < N; n++)
      sums[n] = i_mul(a->zeros ? i_of_bytes(zeros + n * VECTOR) : i_all(1 << (BITS - 1)), minus);
    for (int64_t k = 0; k < block; k += CODES_OF_WORD, x += CODES_OF_WORD, words += wide) {
#if BITS == 4
      I even = i_xor(SOME_128, i_all(word_at(x))), odd = i_xor(SOME_128, i_all(word_at(x + 4)));
      UNROLL for (int n = 0; n < N; n++) {
        I both = i_load(words + n * VECTOR);
        sums[n] = i_dot(sums[n], i_and(both, LOW_CODES), even);
        sums[n] = i_dot(sums[n], i_and(i_right(both, 4), LOW_CODES), odd);
      }
#else
      I codes = i_all(word_at(x));
      UNROLL for (int n = 0; n < N; n++) sums[n] = i_dot(sums[n], i_load(words + n * VECTOR), codes);
#endif
    }
    F s = f_all(a->xscales[m * blocks + b]);
    UNROLL for (int n = 0; n < N; n++) y[n] = f_add(y[n], f_mul(f_of(sums[n]), f_mul(s, f_load(scales + n * VECTOR))));
  }
  UNROLL for (int n = 0; n < N; n++) {
    int64_t column = first + from + n * VECTOR;
    f_put(a->out + m * a->ld + column, y[n], a->rows - column);
  }
}

/* a row of x after the other times a panel of columns at a time: for few rows */
static void NAMED(coded_multiply_row)(CodedWork *a) {
  for (;;) {
    int64_t first = TAKE(&a->next, 64), wide = panel_width(a->rows - first);
    if (first >= a->rows) return;
    for (int64_t m = 0; m < a->many; m++) {
      for (int64_t from = 0; from < wide; from += 4 * VECTOR) {
        switch (least((wide - from) / VECTOR, 4)) {
          case 1: NAMED(coded_row)(1, a, first, from, wide, m); break;
          case 2: NAMED(coded_row)(2, a, first, from, wide, m); break;
          case 3: NAMED(coded_row)(3, a, first, from, wide, m); break;
          default: NAMED(coded_row)(4, a, first, from, wide, m);
        }
      }
    }
  }
}
#undef DOT
