/* AVX-512 with VNNI, for products of codes; and AMX. */

#include "common.h"

#ifdef X86
#define VNNI
#if defined(__GNUC__) || _MSC_VER >= 1930
#define AMX
#endif
#define CODES_ONLY
#define TARGETS "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,bmi2,fma,amx-tile,amx-int8"
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
