/* AVX-512 with BW, DQ and VL. */

#include "common.h"

#ifdef X86
#define TARGETS "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,fma"
#include "target.h"
#include "lanes_avx512.h"

#define FUNCTIONS functions_avx512
#define FUSED fused_avx512
#include "kernels.h"
#include "target_end.h"
#endif
