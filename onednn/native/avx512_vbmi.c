/* AVX-512 with VBMI, whose permutations of bytes take two registers of a table. */

#include "common.h"

#ifdef X86
#define VBMI
#define TARGETS "avx512f,avx512bw,avx512vbmi,bmi2"
#include "target.h"
#include "lookup.h"

const Function functions_avx512_vbmi[] = {FUNCTION("lookup_kernel", "lookup", lookup, ""), {0}};
#include "target_end.h"
#endif
