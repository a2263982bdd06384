/* What the listing of onednn/lstm_kernel.py was compiled from:

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
#define GATE(r, g) __m512 x##g = _mm512_add_ps(_mm512_maskz_loadu_ps(some, of_x + g * hidden), _mm512_load_ps((*p)[g]));
            GATES(GATE, 0) /* i o f c */
            int64_t at = n * hidden + 16 * b;
            __m512 kept = _mm512_mul_ps(sigmoid(x2, k), _mm512_maskz_loadu_ps(some, old + at));
            __m512 cell = _mm512_add_ps(kept, _mm512_mul_ps(sigmoid(x0, k), tangent(x3, k)));
            _mm512_mask_storeu_ps(c + at, some, cell);
            _mm512_mask_storeu_ps(new_h + n * a->y_row + 16 * b, some, _mm512_mul_ps(sigmoid(x1, k), tangent(cell, k)));
          }
        }
      }
      h = new_h, h_row = a->y_row, old = c;
    }
  }
}
