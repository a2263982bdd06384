/* What onednn/listings/lstm_kernel.txt was compiled from:

   gcc -O2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mbmi2 -mfma -ffp-contract=off -fno-stack-protector
       -fcf-protection=branch -fno-asynchronous-unwind-tables -fno-pie -falign-loops=1 -falign-jumps=1
       -falign-functions=1 -falign-labels=1 -c */

#include "lstm_gates.h"

typedef struct {
  const float *weights, *constants, *pre, *first_h, *first_c;
  float *c, *y;
  int64_t steps, directions, batch, hidden, blocks, backwards;
  int64_t pre_step, pre_row, y_step, y_row;
  int64_t next;
  const float *x, *of_x, *bias;
  float *room;
  int64_t inputs;
} Work;

typedef float Row[4][16]; /* of one sequence: 16 hidden values of each gate */

/* Products of one to four sequences with 16 columns of each gate. Every sum goes from the first hidden value to the last,
   however many sequences there are. */
#define GATES(F, r) F(r, 0) F(r, 1) F(r, 2) F(r, 3)
#define START(r, g) __m512 s##r##g = _mm512_setzero_ps();
#define SUM(r, g) s##r##g = _mm512_fmadd_ps(v, w##g, s##r##g);
#define STORE(r, g) _mm512_store_ps(found[r][g], s##r##g);
/* in registers: read once, not once for each sequence */
#define WEIGHTS(r, g) __m512 w##g = _mm512_loadu_ps(w + 16 * g); __asm__("" : "+v"(w##g));
#define ROW(r) { __m512 v = _mm512_set1_ps(x[r * h_row]); GATES(SUM, r) }
#define STARTS(r) GATES(START, r)
#define STORES(r) GATES(STORE, r)
#define ONE_ROW(F) F(0)
#define TWO_ROWS(F) F(0) F(1)
#define THREE_ROWS(F) F(0) F(1) F(2)
#define FOUR_ROWS(F) F(0) F(1) F(2) F(3)
#define PRODUCTS(ROWS) { ROWS(STARTS) for (; w < end; w += 64, x++) { GATES(WEIGHTS, 0) ROWS(ROW) } ROWS(STORES) }

/* gates, and the states that they make */
static inline __attribute__((always_inline)) void update(__m512 i, __m512 o, __m512 f, __m512 g, __mmask16 some, const float *old, float *c, float *h, const float *k) {
  __m512 kept = _mm512_mul_ps(sigmoid(f, k), _mm512_maskz_loadu_ps(some, old));
  __m512 cell = _mm512_add_ps(kept, _mm512_mul_ps(sigmoid(i, k), tangent(g, k)));
  _mm512_mask_storeu_ps(c, some, cell);
  _mm512_mask_storeu_ps(h, some, _mm512_mul_ps(sigmoid(o, k), tangent(cell, k)));
}

void lstm_steps(Work *a) {
  Row found[4] __attribute__((aligned(64)));
  const float *k = a->constants;
  int64_t steps = a->steps, directions = a->directions, batch = a->batch, hidden = a->hidden, blocks = a->blocks;
  __mmask16 last = (__mmask16)_bzhi_u32(0xffff, (unsigned)(hidden - 16 * (blocks - 1)));
  for (;;) {
    int64_t d = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED);
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
      for (int64_t i = 0; i < blocks; i++) {
        int64_t b = t & 1 ? blocks - 1 - i : i;
        const float *block = weights + b * hidden * 64, *end = block + hidden * 64;
        __mmask16 some = b + 1 < blocks ? 0xffff : last;
        for (int64_t n = 0; n < batch;) {
          const float *x = h + n * h_row, *w = block;
          int64_t left = batch - n, tiles = (left + 3) / 4, rows = (left + tiles - 1) / tiles; /* 5 are 3 and 2 */
          if (rows == 4) PRODUCTS(FOUR_ROWS)
          else if (rows == 3) PRODUCTS(THREE_ROWS)
          else if (rows == 2) PRODUCTS(TWO_ROWS)
          else PRODUCTS(ONE_ROW)
          for (Row *p = found; p < found + rows; p++, n++) {
            const float *of_x = pre + place * a->pre_step + n * a->pre_row + 16 * b;
#define OF_PRE(r, g) __m512 x##g = _mm512_add_ps(_mm512_maskz_loadu_ps(some, of_x + g * hidden), _mm512_load_ps((*p)[g]));
            GATES(OF_PRE, 0)
            int64_t at = n * hidden + 16 * b;
            update(x0, x1, x2, x3, some, old + at, c + at, new_h + n * a->y_row + 16 * b, k);
          }
        }
      }
      h = new_h, h_row = a->y_row, old = c;
    }
  }
}

/* One sequence of at least eight steps, which multiplies its input, too. While a step waits for weights, half of the
   multiplications that the CPU is capable of are free: the input of the next eight steps takes them, an eighth of it in
   each step, two gates at a time. */
#define TWO(F, r) F(r, 0) F(r, 1)
#define EIGHT_ROWS(F) FOUR_ROWS(F) F(4) F(5) F(6) F(7)
#define BEGIN(r, g) __m512 s##r##g = _mm512_loadu_ps(from + r * from_row + 16 * g);
#define BEGINS(r) TWO(BEGIN, r)
#define INPUT_SUM(r) { __m512 v = _mm512_set1_ps(x[r * x_row]); TWO(SUM, r) }
#define END(r, g) _mm512_storeu_ps(to + r * 32 + 16 * g, s##r##g);
#define ENDS(r) TWO(END, r)
#define STATE_START(r, g) __m512 z##g = _mm512_setzero_ps();
#define STATE_SUM(r, g) z##g = _mm512_fmadd_ps(v, _mm512_loadu_ps(w_h + 16 * g), z##g);
#define STATE { __m512 v = _mm512_set1_ps(*h++); GATES(STATE_SUM, 0) w_h += 64; }
#define INPUT(more) { EIGHT_ROWS(BEGINS) for (; w < w_end; w += 32, x++) { TWO(WEIGHTS, 0) EIGHT_ROWS(INPUT_SUM) more } EIGHT_ROWS(ENDS) }

void lstm_sequence(Work *a) {
  const float *k = a->constants;
  int64_t steps = a->steps, hidden = a->hidden, blocks = a->blocks, inputs = a->inputs;
  __mmask16 last = (__mmask16)_bzhi_u32(0xffff, (unsigned)(hidden - 16 * (blocks - 1)));
  for (;;) {
    int64_t d = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED);
    if (d >= a->directions) return;
    const float *weights = a->weights + d * blocks * hidden * 64, *of_x = a->of_x + d * blocks * inputs * 64;
    const float *bias = a->bias + d * blocks * 64, *old = a->first_c + d * hidden, *state = a->first_h + d * hidden;
    float *c = a->c + d * hidden, *room = a->room + d * 2 * blocks * 512;
    int64_t backwards = a->backwards >> d & 1, x_row = backwards ? -inputs : inputs;
    /* `now`: the step that is taken; with it goes a piece of the input of eight steps from `start` on. The first eight
       come in front of all steps. */
    for (int64_t now = -8; now < steps; now++) {
      int64_t group = (now + 8) / 8, start = group * 8 <= steps - 8 ? group * 8 : steps - 8; /* the last eight overlap */
      int64_t piece = now & 7, two = piece / 4, first = (piece & 3) * inputs / 4, end = ((piece & 3) + 1) * inputs / 4;
      if (group * 8 >= steps) end = first; /* no steps are left */
      float *next = room + (group & 1) * blocks * 512, *these = room + (~group & 1) * blocks * 512;
      /* how far `now` is behind the first of the eight steps whose input is there */
      int64_t before = group - 1, row = now - (before * 8 <= steps - 8 ? before * 8 : steps - 8);
      int64_t place = backwards ? steps - 1 - now : now;
      const float *source = a->x + (backwards ? steps - 1 - start : start) * inputs + first;
      float *y = a->y + place * a->y_step + d * hidden;
      for (int64_t i = 0; i < blocks; i++) {
        int64_t b = now & 1 ? blocks - 1 - i : i;
        __mmask16 some = b + 1 < blocks ? 0xffff : last;
        const float *w = of_x + (b * 2 + two) * inputs * 32 + first * 32, *w_end = w + (end - first) * 32, *x = source;
        float *to = next + (b * 2 + two) * 256;
        const float *from = first ? to : bias + b * 64 + two * 32;
        int64_t from_row = first ? 32 : 0;
        if (now < 0) {
          INPUT()
          continue;
        }
        const float *h = state, *w_h = weights + b * hidden * 64, *h_end = h + hidden;
        int64_t each = end > first ? hidden / (end - first) : 0;
        GATES(STATE_START, 0)
        if (each) INPUT(for (const float *stop = h + each; h < stop;) STATE)
        else if (end > first) INPUT()
        while (h < h_end) STATE
        const float *of_these = these + b * 512 + row * 32;
#define OF_ROOM(r, g) __m512 x##g = _mm512_add_ps(_mm512_loadu_ps(of_these + (g / 2) * 256 + (g % 2) * 16), z##g);
        GATES(OF_ROOM, 0)
        update(x0, x1, x2, x3, some, old + 16 * b, c + 16 * b, y + 16 * b, k);
      }
      if (now >= 0) state = y, old = c;
    }
  }
}
