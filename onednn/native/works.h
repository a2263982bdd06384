/* What functions read and write: words of 64 bits, addresses or numbers. Python reads the names of a work's members from
   its text (onednn/native.py), so that they stand here alone. The modules of onednn/ say what they mean. */

#ifndef WORKS_H
#define WORKS_H

#include <stdint.h>

#if UINTPTR_MAX != UINT64_MAX
#error "a word of a work is an address: 64 bits"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "codes are read as words, the first one lowest"
#endif

#define WORK(Name, ...)                  \
  typedef struct { __VA_ARGS__ } Name;   \
  static const char Name##_members[] = #__VA_ARGS__;

/* A function of a level. */
typedef struct {
  const char *kernel, *name;
  void (*address)(void);
  const char *members; /* of its work; empty: it takes none */
} Function;

#define FUNCTION(kernel, name, function, members) {kernel, name, (void (*)(void))function, members}

WORK(AverageWork,
  const uint8_t *codes; float *means; const float *numbers;
  int64_t images, positions, channels, sign;)

WORK(BlockWork,
  const uint8_t *codes; const float *scales; const uint8_t *zeros; const float *x; float *out;
  int64_t stride, blocks, block, rows, ld, next, many; float (*panels)[64 * 64];
  int64_t entered, beyond;)

WORK(CodedWork,
  const uint8_t *codes; const float *scales; const uint8_t *zeros; const float *x; int8_t *xcodes; float *xscales;
  int32_t *xsums; float *out;
  int64_t blocks, block, rows, ld, next, many, size; char *panels; int64_t entered;)

WORK(CodesWork, const float *x, *constants; uint8_t *codes; float *scale; int32_t *zero; int64_t count;)

WORK(DynamicWork,
  const int8_t *weights; const int32_t *sums; const float *scales, *bias, *constants, *pre; float *h, *c; uint8_t *codes;
  int32_t *products; float *y;
  int64_t steps, directions, batch, hidden, blocks, backwards, next;)

WORK(LstmWork,
  const float *weights, *constants, *pre, *first_h, *first_c; float *c, *y;
  int64_t steps, directions, batch, hidden, blocks, backwards;
  int64_t pre_step, pre_row, y_step, y_row; int64_t next;
  const float *x, *of_x, *bias; float *room; int64_t inputs;)

#endif
