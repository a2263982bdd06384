/* AVX-512 with VNNI, for products of codes; and AMX. */

#include "common.h"

#ifdef X86
#define VNNI
#define CODES_ONLY
#define OF_VNNI "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,bmi2,fma"
#if defined(__clang__) || __GNUC__ >= 11
#define AMX
#define TARGETS OF_VNNI ",amx-tile,amx-int8"
#else
#define TARGETS OF_VNNI
#endif
#include "target.h"
#include "lanes_avx512.h"

#define FUNCTIONS functions_avx512_vnni
#define FUSED fused_avx512_vnni
#include "kernels.h"

const Function functions_avx512_amx[] = {
#ifdef AMX
  FUNCTION("coded_kernels_4", "multiply_by_tiles", multiply_by_tiles, CodedWork_members),
#endif
  {0},
};
#include "target_end.h"
#endif
