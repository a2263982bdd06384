/* What onednn/listings/average_kernel.txt was compiled from:

   gcc -O2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mbmi2 -mfma -ffp-contract=off -fno-stack-protector
       -fcf-protection=branch -fno-asynchronous-unwind-tables -fno-pie -falign-loops=1 -falign-jumps=1
       -falign-functions=1 -falign-labels=1 -c */

#include <immintrin.h>
#include <stdint.h>

typedef struct {
  const uint8_t *codes;
  float *means;
  const float *numbers;
  int64_t images, positions, channels, sign;
} Work;

/* so many codes of 8 bits have a sum of 16 */
#define MOST 256

#define UPPER(x) _mm512_srli_epi32(x, 16)
#define LOWER(x) _mm512_and_si512(x, _mm512_set1_epi32(65535))
#define ADD32(s, x) s = _mm512_add_epi32(s, x);
#define ADD16(s, x) s = _mm512_add_epi16(s, x);

/* Sums of up to 64 neighbouring channels: sums[i][j] is that of channel 4 * j + i, plus 128 for each s8 code. */
static inline __attribute__((always_inline)) void sums_of(const uint8_t *codes, int64_t positions, int64_t apart, __mmask64 some, __m512i flip, int32_t sums[4][16]) {
  __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
  while (positions) {
    int64_t next = positions < MOST ? positions : MOST;
    __m512i even = _mm512_setzero_si512(), odd = even;
    positions -= next;
    for (; next; next--, codes += apart) {
      __m512i x = _mm512_xor_si512(_mm512_maskz_loadu_epi8(some, codes), flip);
      ADD16(even, _mm512_and_si512(x, _mm512_set1_epi16(255)))
      ADD16(odd, _mm512_srli_epi16(x, 8))
    }
    ADD32(s0, LOWER(even)) ADD32(s1, LOWER(odd)) ADD32(s2, UPPER(even)) ADD32(s3, UPPER(odd))
  }
  _mm512_storeu_si512(sums[0], s0);
  _mm512_storeu_si512(sums[1], s1);
  _mm512_storeu_si512(sums[2], s2);
  _mm512_storeu_si512(sums[3], s3);
}

/* What averages become, each operation rounded to f32: times 1/n, then twice times a factor plus a shift. It returns a
   status. */
int average(Work *w) {
  const __m512i flip = _mm512_set1_epi8((char)w->sign);
  const int32_t zero = (int32_t)(w->sign * w->positions);
  int32_t sums[4][16];
  for (int64_t image = 0; image < w->images; image++) {
    for (int64_t from = 0; from < w->channels; from += 64) {
      int64_t wide = w->channels - from < 64 ? w->channels - from : 64;
      __mmask64 some = _bzhi_u64(~0ull, wide);
      float *means = w->means + image * w->channels + from;
      sums_of(w->codes + image * w->positions * w->channels + from, w->positions, w->channels, some, flip, sums);
      for (int64_t i = 0; i < wide; i++) {
        float mean = (float)(sums[i % 4][i / 4] - zero) * w->numbers[0];
        mean = __builtin_fmaf(mean, w->numbers[1], w->numbers[2]);
        means[i] = __builtin_fmaf(mean, w->numbers[3], w->numbers[4]);
      }
    }
  }
  return 0;
}
