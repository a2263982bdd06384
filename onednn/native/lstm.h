/* Products of some sequences with some lanes of 16 columns of each gate. Every sum goes from the first hidden value to the
   last, however many sequences there are. */
INLINE void hidden_products(const int ROWS, const float *h, int64_t h_row, const float *w, int64_t hidden, F found[4][4]) {
  F sums[4][4];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int g = 0; g < 4; g++) sums[r][g] = f_zero();
  for (const float *end = w + hidden * 64; w < end; w += 64, h++) {
    F weights[4];
    UNROLL for (int g = 0; g < 4; g++) {
      weights[g] = f_load(w + 16 * g);
      KEPT(weights[g]); /* read once, not once for each sequence */
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
      F value = f_all(h[r * h_row]);
      UNROLL for (int g = 0; g < 4; g++) sums[r][g] = f_fma(value, weights[g], sums[r][g]);
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int g = 0; g < 4; g++) found[r][g] = sums[r][g];
}

/* gates, and the states that they make */
INLINE void update(const F x[4], int64_t some, const float *old, float *c, float *h, const float *k) {
  F kept = f_mul(sigmoid(x[2], k), f_get(old, some));
  F cell = f_add(kept, f_mul(sigmoid(x[0], k), tangent(x[3], k)));
  f_put(c, cell, some);
  f_put(h, f_mul(sigmoid(x[1], k), tangent(cell, k)), some);
}

static void lstm_steps(LstmWork *a) {
  const float *k = a->constants;
  int64_t steps = a->steps, directions = a->directions, batch = a->batch, hidden = a->hidden, blocks = a->blocks;
  for (;;) {
    int64_t d = TAKE(&a->next, 1);
    if (d >= directions) return;
    const float *weights = a->weights + d * blocks * hidden * 64, *pre = a->pre + d * 4 * hidden;
    float *y = a->y + d * hidden;
    const float *h = a->first_h + d * batch * hidden, *old = a->first_c + d * batch * hidden;
    int64_t h_row = hidden, backwards = a->backwards >> d & 1;
    float *c = a->c + d * batch * hidden;
    for (int64_t t = 0; t < steps; t++) {
      int64_t place = backwards ? steps - 1 - t : t;
      float *new_h = y + place * a->y_step;
      /* there and back: what the last step read last is still in the cache where not all of it is */
      for (int64_t i = 0; i < 16 * blocks; i += VECTOR) {
        int64_t b = t & 1 ? blocks - 1 - (i >> 4) : i >> 4, lane = i & 15, at = b * 16 + lane, some = hidden - at;
        const float *block = weights + b * hidden * 64 + lane;
        for (int64_t n = 0; n < batch;) {
          F found[4][4];
          const float *x = h + n * h_row;
          int64_t left = batch - n, tiles = (left + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, rows = (left + tiles - 1) / tiles; /* 5 are 3 and 2 */
          if (rows == 4) hidden_products(4, x, h_row, block, hidden, found);
          else if (rows == 3) hidden_products(3, x, h_row, block, hidden, found);
          else if (rows == 2) hidden_products(2, x, h_row, block, hidden, found);
          else hidden_products(1, x, h_row, block, hidden, found);
          for (int64_t r = 0; r < rows; r++, n++) {
            const float *of_x = pre + place * a->pre_step + n * a->pre_row + at;
            F gates[4];
            UNROLL for (int g = 0; g < 4; g++) gates[g] = f_add(f_get(of_x + g * hidden, some), found[r][g]);
            update(gates, some, old + n * hidden + at, c + n * hidden + at, new_h + n * a->y_row + at, k);
          }
        }
      }
      h = new_h, h_row = a->y_row, old = c;
    }
  }
}

#define GROUP 8 /* steps whose input is multiplied together */

/* `GATES` gates of a group's input, of some of its features, added to what is there; `hidden`: of these hidden values the
   products go on meanwhile, some with each feature. */
INLINE const float *input_products(const float *x, int64_t x_row, const float *w, int64_t count, const float *from, int64_t from_row, float *to,
                                   const float *h, const float **w_h, int64_t each, F state[4]) {
  F sums[GROUP][2];
  UNROLL for (int r = 0; r < GROUP; r++)
    UNROLL for (int g = 0; g < 2; g++) sums[r][g] = f_load(from + r * from_row + 16 * g);
  for (const float *end = w + count * 32; w < end; w += 32, x++) {
    F weights[2];
    UNROLL for (int g = 0; g < 2; g++) {
      weights[g] = f_load(w + 16 * g);
      KEPT(weights[g]);
    }
    UNROLL for (int r = 0; r < GROUP; r++) {
      F value = f_all(x[r * x_row]);
      UNROLL for (int g = 0; g < 2; g++) sums[r][g] = f_fma(value, weights[g], sums[r][g]);
    }
    for (const float *stop = h + each; h < stop; *w_h += 64) {
      F value = f_all(*h++);
      UNROLL for (int g = 0; g < 4; g++) state[g] = f_fma(value, f_load(*w_h + 16 * g), state[g]);
    }
  }
  UNROLL for (int r = 0; r < GROUP; r++)
    UNROLL for (int g = 0; g < 2; g++) f_store(to + r * 32 + 16 * g, sums[r][g]);
  return h;
}

/* One sequence of at least a group of steps, which multiplies its input, too. While a step waits for weights, half of the
   multiplications that the CPU is capable of are free: the input of the next group takes them, an eighth of it in each
   step, two gates at a time. */
static void lstm_sequence(LstmWork *a) {
  const float *k = a->constants;
  int64_t steps = a->steps, hidden = a->hidden, blocks = a->blocks, inputs = a->inputs;
  for (;;) {
    int64_t d = TAKE(&a->next, 1);
    if (d >= a->directions) return;
    const float *weights = a->weights + d * blocks * hidden * 64, *of_x = a->of_x + d * blocks * inputs * 64;
    const float *bias = a->bias + d * blocks * 64, *old = a->first_c + d * hidden, *state = a->first_h + d * hidden;
    float *c = a->c + d * hidden, *room = a->room + d * 2 * blocks * 512;
    int64_t backwards = a->backwards >> d & 1, x_row = backwards ? -inputs : inputs;
    /* `now`: the step that is taken; with it goes a piece of the input of eight steps from `start` on. The first eight
       come in front of all steps. */
    for (int64_t now = -GROUP; now < steps; now++) {
      int64_t group = (now + GROUP) / GROUP, start = least(group * GROUP, steps - GROUP); /* the last eight overlap */
      int64_t piece = now & 7, two = piece / 4, first = (piece & 3) * inputs / 4, end = ((piece & 3) + 1) * inputs / 4;
      if (group * GROUP >= steps) end = first; /* no steps are left */
      float *next = room + (group & 1) * blocks * 512, *these = room + (~group & 1) * blocks * 512;
      /* how far `now` is behind the first of the eight steps whose input is there */
      int64_t row = now - least((group - 1) * GROUP, steps - GROUP);
      int64_t place = backwards ? steps - 1 - now : now;
      const float *source = a->x + (backwards ? steps - 1 - start : start) * inputs + first;
      float *y = a->y + place * a->y_step + d * hidden;
      for (int64_t i = 0; i < 16 * blocks; i += VECTOR) {
        int64_t b = now & 1 ? blocks - 1 - (i >> 4) : i >> 4, lane = i & 15, at = b * 16 + lane, some = hidden - at;
        const float *w = of_x + (b * 2 + two) * inputs * 32 + first * 32 + lane;
        float *to = next + (b * 2 + two) * 256 + lane;
        const float *from = first ? to : bias + b * 64 + two * 32 + lane, *h = state, *w_h = weights + b * hidden * 64 + lane;
        int64_t from_row = first ? 32 : 0, each = now >= 0 && end > first ? hidden / (end - first) : 0;
        F sums[4], gates[4];
        UNROLL for (int g = 0; g < 4; g++) sums[g] = f_zero();
        if (each) h = input_products(source, x_row, w, end - first, from, from_row, to, h, &w_h, each, sums);
        else if (now < 0 || end > first) input_products(source, x_row, w, end - first, from, from_row, to, h, &w_h, 0, sums);
        if (now < 0) continue;
        for (; h < state + hidden; h++, w_h += 64) {
          F value = f_all(*h);
          UNROLL for (int g = 0; g < 4; g++) sums[g] = f_fma(value, f_load(w_h + 16 * g), sums[g]);
        }
        const float *of_these = these + b * 512 + row * 32 + lane;
        UNROLL for (int g = 0; g < 4; g++) gates[g] = f_add(f_load(of_these + (g / 2) * 256 + (g % 2) * 16), sums[g]);
        update(gates, some, old + at, c + at, y + at, k);
      }
      if (now >= 0) state = y, old = c;
    }
  }
}
