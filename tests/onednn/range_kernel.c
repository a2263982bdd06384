/* What onednn/listings/range_kernel.txt was compiled from:

   gcc -O2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mbmi2 -mfma -ffp-contract=off -fno-stack-protector
       -fcf-protection=branch -fno-asynchronous-unwind-tables -fno-pie -falign-loops=1 -falign-jumps=1
       -falign-functions=1 -falign-labels=1 -c */

#include <immintrin.h>
#include <stdint.h>

/* Scale and zero point of u8 codes for the range of some numbers, widened to 0: (high - low) / 255 and what
   0 becomes, each operation in f32; 1 and 0 for a range of 0. Returns 1 where there is a NaN, an infinity or a
   range beyond f32. */
int range(const float *x, int64_t count, float *scale, uint8_t *zero) {
  __m512 low = _mm512_setzero_ps(), high = low;
  __mmask16 nan = 0;
  for (int64_t at = 0; at < count; at += 16) {
    __mmask16 rest = count - at < 16 ? (1u << (count - at)) - 1 : 0xffff;
    __m512 some = _mm512_maskz_loadu_ps(rest, x + at);
    nan |= _mm512_cmp_ps_mask(some, some, _CMP_UNORD_Q);
    low = _mm512_min_ps(low, some);
    high = _mm512_max_ps(high, some);
  }
  int largest = 255, one = 1; /* hidden from the compiler, which would lay constants outside of the function */
  __asm__("" : "+r"(largest), "+r"(one));
  __m128 zeros = _mm_setzero_ps(), levels = _mm_cvti32_ss(zeros, largest);
  __m128 least = _mm_set_ss(_mm512_reduce_min_ps(low));
  __m128 step = _mm_div_ss(_mm_sub_ss(_mm_set_ss(_mm512_reduce_max_ps(high)), least), levels);
  uint32_t bits = (uint32_t)_mm_cvtsi128_si32(_mm_castps_si128(step));
  if (nan || bits >= 0x7f800000u) return 1;
  if (!bits) {
    step = _mm_cvti32_ss(zeros, one);
    least = zeros;
  }
  __m128 place = _mm_div_ss(_mm_sub_ss(zeros, least), step);
  place = _mm_roundscale_ss(place, place, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  place = _mm_min_ss(_mm_max_ss(place, zeros), levels);
  _mm_store_ss(scale, step);
  *zero = (uint8_t)_mm_cvtss_si32(place);
  return 0;
}
