/* codes as DynamicQuantizeLinear has them, one range for all; a range that is not finite gives a scale of NaN */
INLINE int32_t quantized(const float *x, int64_t count, uint8_t *codes, const float *k, float *found) {
  F lowest = f_zero(), highest = lowest;
  int nan = 0;
  for (int64_t i = 0; i < count; i += VECTOR) {
    F v = f_get(x + i, count - i);
    lowest = f_min(lowest, v);
    highest = f_max(highest, v);
    nan |= f_any_nan(v);
  }
  float low = f_lowest(lowest), scale = (f_highest(highest) - low) / k[LEVELS];
  if (nan || !(scale - scale == 0)) scale = k[NOT_A_NUMBER];
  if (scale == 0) scale = k[ONE];
  F all = f_all(scale);
  I none = i_zero(), most = i_all(255), zero = i_of(f_div(f_all(0 - low), all));
  zero = i_min(i_max(zero, none), most);
  for (int64_t i = 0; i < count; i += VECTOR) {
    I q = i_of(f_div(f_get(x + i, count - i), all));
    i_put_bytes(codes + i, i_min(i_max(i_add(q, zero), none), most), count - i);
  }
  *found = scale;
  int32_t lanes[VECTOR];
  i_store(lanes, zero);
  return lanes[0];
}

static void quantize(CodesWork *a) { *a->zero = quantized(a->x, a->count, a->codes, a->constants, a->scale); }

/* Some sequences' codes times the weights of 16 hidden values of all gates, some lanes of them, which pass by four codes
   at a time. `apart`: from the products of one sequence to those of the next. */
INLINE void products_of(const int ROWS, const uint8_t *codes, const int8_t *w, int64_t width, int32_t *out, int64_t apart) {
  I sums[4][4], more[4]; /* of one sequence in two parts: its additions wait for each other */
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int g = 0; g < 4; g++) sums[r][g] = i_zero();
  UNROLL for (int g = 0; g < 4; g++) more[g] = i_zero();
  for (int64_t i = 0; i < width; i += 8) {
    UNROLL for (int half = 0; half < 2; half++, w += 256, codes += 4) {
      I weights[4];
      UNROLL for (int g = 0; g < 4; g++) weights[g] = i_load(w + 64 * g);
      UNROLL for (int r = 0; r < ROWS; r++) {
        I code = i_all(word_at(codes + r * width));
        UNROLL for (int g = 0; g < 4; g++) {
          if (ROWS == 1 && half) more[g] = i_dot(more[g], code, weights[g]);
          else sums[r][g] = i_dot(sums[r][g], code, weights[g]);
        }
      }
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int g = 0; g < 4; g++) i_store(out + r * apart + 16 * g, i_add(sums[r][g], ROWS == 1 ? more[g] : i_zero()));
}

/* What a sum of codes times weights stands for: less the zero point of the codes, times both scales. */
INLINE F product_of(const int32_t *sum, I zero, const int32_t *sums, F scale, const float *scales) {
  return f_mul(f_of(i_sub(i_load(sum), i_mul(zero, i_load(sums)))), f_mul(scale, f_load(scales)));
}

/* The gates of one sequence's hidden values from `at` on, of a block of 16, and the states that they make. */
INLINE void dynamic_update(const DynamicWork *a, int64_t d, int64_t b, int64_t at, int64_t some, F scale, I zero, const int32_t *product,
                           const float *pre, float *state, float *cell, float *y) {
  const float *k = a->constants;
  const int64_t place = (d * a->blocks + b) * 64 + at, hidden = a->hidden;
  F x[4];
  UNROLL for (int g = 0; g < 4; g++) {
    F scaled = product_of(product + 16 * g, zero, a->sums + place + 16 * g, scale, a->scales + place + 16 * g);
    x[g] = f_add(f_add(f_get(pre + g * hidden, some), scaled), f_load(a->bias + place + 16 * g));
  }
  /* lanes beyond the last hidden value stay 0, also where a scale of NaN makes everything NaN */
  F new = f_first(f_add(f_mul(sigmoid(x[2], k), f_load(cell)), f_mul(sigmoid(x[0], k), tangent(x[3], k))), some);
  f_store(cell, new);
  new = f_first(f_mul(sigmoid(x[1], k), tangent(new, k)), some);
  f_store(state, new);
  f_put(y, new, some);
}

static void dynamic_steps(DynamicWork *a) {
  int64_t steps = a->steps, batch = a->batch, blocks = a->blocks, width = blocks * 16, hidden = a->hidden;
  for (;;) {
    int64_t d = TAKE(&a->next, 1);
    if (d >= a->directions) return;
    float *h = a->h + d * batch * width, *c = a->c + d * batch * width;
    uint8_t *codes = a->codes + d * batch * width;
    int32_t *products = a->products + d * batch * width * 4;
    int64_t backwards = a->backwards >> d & 1;
    for (int64_t t = 0; t < steps; t++) {
      float scale;
      I zero = i_all(quantized(h, batch * width, codes, a->constants, &scale));
      F all = f_all(scale);
      const int8_t *block = a->weights + d * width * width * 4;
      for (int64_t b = 0; b < blocks; b++, block += width * 64) {
        for (int64_t lane = 0; lane < 16; lane += VECTOR) {
          int32_t *out = products + b * 64 + lane;
          int64_t n = 0;
          for (; n + ROWS_AT_ONCE <= batch; n += ROWS_AT_ONCE)
            products_of(ROWS_AT_ONCE, codes + n * width, block + 4 * lane, width, out + n * width * 4, width * 4);
          for (; n < batch; n++) products_of(1, codes + n * width, block + 4 * lane, width, out + n * width * 4, width * 4);
        }
      }
      int64_t place = backwards ? steps - 1 - t : t, next = a->directions * 4 * hidden;
      float *y = a->y + (place * a->directions + d) * batch * hidden;
      const float *pre = a->pre + place * batch * next + d * 4 * hidden;
      for (int64_t n = 0; n < batch; n++)
        for (int64_t at = 0; at < width; at += VECTOR) {
          int64_t lane = at & 15, own = n * width + at;
          dynamic_update(a, d, at >> 4, lane, hidden - at, all, zero, products + 4 * (n * width + at - lane) + lane,
                         pre + n * next + at, h + own, c + own, y + n * hidden + at);
        }
    }
  }
}
