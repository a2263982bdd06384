/* All kernels over the vectors of one level, and its tables: FUNCTIONS, and those that live on fused multiplications and
   additions, FUSED. */

#define JOINED(name, bits) name##_##bits
#define JOINED_AS(name, bits) JOINED(name, bits)
#define NAMED(name) JOINED_AS(name, BITS)

#define ROWS_AT_ONCE (VECTOR == 16 ? 4 : 2) /* whose sums with four vectors stay in registers */

#define CODES_OF_WORD (32 / BITS)

#include "gates.h"
#include "recurrent.h"

#define BITS 4
#include "coded.h"
#undef BITS
#define BITS 8
#include "coded.h"
#undef BITS

#ifndef CODES_ONLY
#include "average.h"
#include "lookup.h"
#include "lstm.h"
#include "range.h"

#define BITS 4
#include "block.h"
#undef BITS
#define BITS 8
#include "block.h"
#undef BITS
#endif

#define OF_CODED(bits)                                                                                   \
  FUNCTION("coded_kernels_" #bits, "quantize_rows", quantize_rows_##bits, CodedWork_members),            \
  FUNCTION("coded_kernels_" #bits, "multiply_codes", multiply_codes_##bits, CodedWork_members),          \
  FUNCTION("coded_kernels_" #bits, "multiply_row", coded_multiply_row_##bits, CodedWork_members)
#define OF_BLOCK(bits)                                                                                   \
  FUNCTION("block_kernels_" #bits, "multiply_row", block_multiply_row_##bits, BlockWork_members),        \
  FUNCTION("block_kernels_" #bits, "decode_columns", decode_columns_##bits, BlockWork_members),          \
  FUNCTION("block_kernels_" #bits, "multiply_rows", multiply_rows_##bits, BlockWork_members),            \
  FUNCTION("block_kernels_" #bits, "multiply_columns", multiply_columns_##bits, BlockWork_members)

const Function FUNCTIONS[] = {
  OF_CODED(4),
  OF_CODED(8),
#ifndef CODES_ONLY
  FUNCTION("average_kernel", "average", average, AverageWork_members),
  FUNCTION("lookup_kernel", "lookup", lookup, ""),
  FUNCTION("range_kernel", "range", range, ""),
#endif
  {0},
};
const Function FUSED[] = {
  FUNCTION("recurrent_kernel", "quantize", quantize, CodesWork_members),
  FUNCTION("recurrent_kernel", "lstm_steps", dynamic_steps, DynamicWork_members),
#ifndef CODES_ONLY
  OF_BLOCK(4),
  OF_BLOCK(8),
  FUNCTION("lstm_kernel", "lstm_steps", lstm_steps, LstmWork_members),
  FUNCTION("lstm_kernel", "lstm_sequence", lstm_sequence, LstmWork_members),
#endif
  {0},
};
